//! Answers to code in a kernel without the workspace's files, which wants its packages and uploads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{modules, uploads};
use crate::tools::tool_server::FileAnswers;

/// The answers from the files of this workspace.
pub(crate) fn answers(workspace: &Path) -> FileAnswers {
    let workspace = workspace.to_owned();
    Arc::new(move |path, body| Box::pin(answer(workspace.clone(), path, body)))
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
