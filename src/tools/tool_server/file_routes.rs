//! The routes by which code in a kernel without the workspace's files gets its packages and uploads.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::Uri;
use axum::routing::post;
use axum::{Json, Router};
use futures::future::BoxFuture;
use serde_json::Value;

/// The largest request body.
const REQUEST_BYTES: usize = 64 * 1024;

/// Answers a request for `/files`, `/source` or `/upload`: the path, then the body.
pub(crate) type FileAnswers = Arc<dyn Fn(String, String) -> BoxFuture<'static, Value> + Send + Sync>;

pub(super) fn router(answers: FileAnswers) -> Router {
    let router = ["/files", "/source", "/upload"]
        .into_iter()
        .fold(Router::new(), |router, path| router.route(path, post(route)));
    router.layer(DefaultBodyLimit::max(REQUEST_BYTES)).with_state(answers)
}

async fn route(State(answers): State<FileAnswers>, uri: Uri, body: String) -> Json<Value> {
    Json(answers(uri.path().to_owned(), body).await)
}
