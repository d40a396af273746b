//! Files that a client passes with a cell: in the request's `_meta`, which models neither see nor write.
//!
//! They are in `uploads/` of the workspace when the cell runs.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::percent_decode_str;
use rmcp::model::JsonObject;
use serde::Deserialize;

use crate::ground::files::inside;

/// The key in `_meta`, whose value is a list of resource contents.
const KEY: &str = "ipybox/files";

/// The directory in the workspace.
const DIRECTORY: &str = "uploads";

/// The number of files that one request passes.
const MOST_FILES: usize = 32;

/// The longest name, in bytes; that of file systems.
const NAME_BYTES: usize = 255;

/// A resource with its content, as `resources/read` has it.
#[derive(Deserialize)]
struct Passed {
    uri: String,
    text: Option<String>,
    blob: Option<String>,
}

/// Puts the files of a request into the workspace.
///
/// # Errors
/// A file cannot be used. The text says which, and why; files before it have been put.
pub(super) async fn put(workspace: &Path, meta: &JsonObject) -> Result<(), String> {
    let Some(value) = meta.get(KEY) else { return Ok(()) };
    let passed = Vec::<Passed>::deserialize(value).map_err(|error| {
        format!("`_meta` has `{KEY}`, which is no list of contents with `uri` and `text` or `blob`: {error}")
    })?;
    if passed.len() > MOST_FILES {
        return Err(format!(
            "`_meta` has {} files in `{KEY}`, and at most {MOST_FILES} are taken",
            passed.len()
        ));
    }
    let workspace = workspace.to_owned();
    let putting =
        tokio::task::spawn_blocking(move || passed.into_iter().try_for_each(|file| file.put(&workspace)));
    putting.await.unwrap_or_else(|error| Err(error.to_string()))
}

impl Passed {
    fn put(self, workspace: &Path) -> Result<(), String> {
        let shown: String = self.uri.chars().take(200).collect();
        let failed = |why: String| format!("the file `{shown}` in `{KEY}` cannot be used: {why}");
        let name = name(&self.uri).ok_or_else(|| {
            failed("its URI does not end with a name, which does not begin with a dot".to_owned())
        })?;
        let bytes = match (self.text, self.blob) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(blob)) => {
                BASE64.decode(blob).map_err(|error| failed(format!("`blob` is not Base64: {error}")))?
            }
            _ => return Err(failed("it has not either `text` or `blob`".to_owned())),
        };
        inside::put(workspace, DIRECTORY, &name, &bytes)
            .map_err(|error| failed(format!("it is not written to `{DIRECTORY}/{name}`: {error}")))
    }
}

/// The name at the end of a URI, if a file can have it.
fn name(uri: &str) -> Option<String> {
    let path = uri.split(['?', '#']).next()?;
    let (_, last) = path.rsplit_once('/').unwrap_or(("", path));
    let name = percent_decode_str(last).decode_utf8().ok()?;
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES
        && !name.starts_with('.')
        && !name.contains(|char: char| char == '/' || char == '\\' || char.is_control());
    is_name.then(|| name.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meta(files: Value) -> JsonObject {
        JsonObject::from_iter([(KEY.to_owned(), files)])
    }

    #[tokio::test]
    async fn files_are_in_the_directory_of_uploads() {
        let workspace = tempfile::tempdir().unwrap();
        put(workspace.path(), &JsonObject::new()).await.unwrap();
        assert_eq!(std::fs::read_dir(workspace.path()).unwrap().count(), 0);
        let files = json!([
            {"uri": "file:///home/me/%C3%A9t%C3%A9.csv?x#y", "mimeType": "text/csv", "text": "a,b"},
            {"uri": "numbers.bin", "blob": "AQI="},
        ]);
        put(workspace.path(), &meta(files)).await.unwrap();
        let read = |name: &str| std::fs::read(workspace.path().join(DIRECTORY).join(name)).unwrap();
        assert_eq!((read("\u{e9}t\u{e9}.csv"), read("numbers.bin")), (b"a,b".to_vec(), vec![1, 2]));
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_named() {
        let workspace = tempfile::tempdir().unwrap();
        let check = async |files: Value, expected: &str| {
            let refusal = put(workspace.path(), &meta(files)).await.unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        };
        check(json!("a.txt"), "no list of contents").await;
        check(json!([{"text": "x"}]), "missing field `uri`").await;
        check(json!([{"uri": "a.txt"}]), "`a.txt` in `ipybox/files` cannot be used: it has not either").await;
        check(json!([{"uri": "a.txt", "text": "", "blob": ""}]), "it has not either").await;
        check(json!([{"uri": "a.txt", "blob": "%"}]), "is not Base64").await;
        for uri in ["", "x/", "..", "a/..", ".env", "%2e%2e%2f.env", "a%2Fb", "a%00b", "%ff"] {
            check(json!([{"uri": uri, "text": "x"}]), "does not end with a name").await;
        }
        let many: Vec<Value> = (0..33).map(|number| json!({"uri": number.to_string(), "text": ""})).collect();
        check(json!(many), "at most 32").await;
        assert_eq!(std::fs::read_dir(workspace.path()).unwrap().count(), 0);
        std::os::unix::fs::symlink("..", workspace.path().join(DIRECTORY)).unwrap();
        check(json!([{"uri": "a.txt", "text": "x"}]), "`uploads` is no directory").await;
    }
}
