//! The routes by which code in a kernel without the workspace's files gets its packages and uploads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::Uri;
use axum::routing::post;
use serde_json::{Value, json};

use super::{modules, uploads};

/// The largest request body.
const REQUEST_BYTES: usize = 64 * 1024;

/// The routes for the files of this workspace.
pub(crate) fn router(workspace: &Path) -> Router {
    let workspace: Arc<Path> = Arc::from(workspace);
    Router::new()
        .route("/files", post(route))
        .route("/source", post(route))
        .route("/upload", post(route))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES))
        .with_state(workspace)
}

async fn route(State(workspace): State<Arc<Path>>, uri: Uri, body: String) -> Json<Value> {
    Json(answer(workspace.to_path_buf(), uri.path().to_owned(), body).await)
}

/// Answers a request for `/files`, `/source` or `/upload`.
pub(super) async fn answer(workspace: PathBuf, path: String, body: String) -> Value {
    let reading = tokio::task::spawn_blocking(move || match path.as_str() {
        "/upload" => uploads::answer(&workspace, &body),
        _ => modules::answer(&workspace, &path, &body),
    });
    match reading.await.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(result) => json!({ "result": result }),
        Err(message) => json!({ "error": { "kind": "tool", "message": message } }),
    }
}
