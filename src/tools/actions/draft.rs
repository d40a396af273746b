//! An action that code wants to save, as it describes it. Nothing in it is trusted.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::record::{ActionFiles, SOURCES, check_name};
use super::store::SOURCE_BYTES;
use crate::ground::text::{backticked, one_line};

/// The longest docstring, signature, and JSON Schema with the example, in bytes.
pub(super) const TEXT_BYTES: usize = 16 * 1024;
pub(super) const JSON_BYTES: usize = 128 * 1024;

/// An action to save.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionDraft {
    pub(crate) category: String,
    pub(crate) name: String,
    /// The Python files, by name.
    files: BTreeMap<String, String>,
    /// The docstring of its function.
    pub(crate) description: String,
    pub(crate) signature: String,
    pub(crate) is_async: bool,
    pub(crate) input_schema: Map<String, Value>,
    pub(crate) output_schema: Option<Map<String, Value>>,
    pub(crate) example: Map<String, Value>,
    /// Whether approvers are asked to publish it.
    #[serde(default)]
    pub(crate) publish: bool,
}

/// Why a draft cannot be an action.
#[derive(Debug, thiserror::Error)]
#[error("save the action `{path}`: {why}")]
pub(crate) struct UnusableDraft {
    path: String,
    why: String,
}

/// Saves the actions of a session's code. The answer is a text for its author, and so is the error.
pub(crate) trait ActionSaver: Send + Sync {
    /// Tests an action, asks about it, and saves it.
    fn save(&self, draft: ActionDraft) -> BoxFuture<'_, Result<String, String>>;
}

impl ActionDraft {
    /// Its files, once all of it is within its limits.
    ///
    /// # Errors
    /// A name cannot be used, a file is missing or one too many, or something is too large.
    pub(crate) fn check(&self) -> Result<ActionFiles, UnusableDraft> {
        let path = one_line(&format!("gentools.{}.{}", self.category, self.name)).chars().take(160).collect();
        let refused = |why: String| UnusableDraft { path, why };
        match check_name(&self.category).and_then(|()| check_name(&self.name)) {
            Err(error) => return Err(refused(error.to_string())),
            Ok(()) if !self.files.keys().eq(SOURCES.iter()) => {
                let files = backticked(SOURCES.map(str::to_owned));
                return Err(refused(format!("its files must be {files}, and no others")));
            }
            Ok(()) => {}
        }
        if let Some((name, _)) = self.files.iter().find(|(_, text)| text.len() > SOURCE_BYTES) {
            return Err(refused(format!("`{name}` has more than {SOURCE_BYTES} bytes")));
        }
        if self.description.trim().is_empty() {
            return Err(refused("its function has no docstring".to_owned()));
        }
        if self.description.len().max(self.signature.len()) > TEXT_BYTES {
            return Err(refused(format!("its docstring or signature has more than {TEXT_BYTES} bytes")));
        }
        let objects = [Some(&self.input_schema), self.output_schema.as_ref(), Some(&self.example)];
        let bytes =
            |object: &Map<String, Value>| serde_json::to_vec(object).map_or(usize::MAX, |text| text.len());
        if objects.into_iter().flatten().any(|object| bytes(object) > JSON_BYTES) {
            return Err(refused(format!("its schemas or its example have more than {JSON_BYTES} bytes")));
        }
        Ok(self.files.clone().into_iter().collect())
    }

    /// The first line of the docstring.
    pub(crate) fn summary(&self) -> String {
        one_line(self.description.trim().lines().next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn draft(change: impl FnOnce(&mut Value)) -> ActionDraft {
        let files = json!({"__init__.py": "", "api.py": "", "impl.py": ""});
        let mut draft = json!({
            "category": "reports", "name": "busiest", "files": files, "description": "Count.\n\nMore.", "signature": "()",
            "is_async": false, "input_schema": {}, "output_schema": null, "example": {},
        });
        change(&mut draft);
        serde_json::from_value(draft).unwrap()
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), why: &str) {
        let error = draft(change).check().unwrap_err().to_string();
        assert!(error.contains(why) && error.len() < 1000, "{error}");
    }

    #[test]
    fn names_that_lead_elsewhere_and_huge_texts_are_refused() {
        assert_eq!(draft(|_| ()).check().unwrap().len(), 3);
        assert_eq!(draft(|_| ()).summary(), "Count.");
        for name in ["..", "../x", "a/b", "", ".hidden", "import", "A"] {
            check(|draft| draft["name"] = json!(name), "as a package name");
            check(|draft| draft["category"] = json!(name), "as a package name");
        }
        check(|draft| draft["name"] = json!("x".repeat(1_000_000)), "gentools.reports.xxx");
        check(|draft| draft["files"]["../x.py"] = json!(""), "no others");
        check(|draft| draft["files"]["more.py"] = json!(""), "no others");
        check(|draft| drop(draft["files"].as_object_mut().unwrap().remove("impl.py")), "must be");
        check(
            |draft| draft["files"]["impl.py"] = json!("x".repeat(SOURCE_BYTES + 1)),
            "`impl.py` has more than",
        );
        check(|draft| draft["description"] = json!("x".repeat(TEXT_BYTES + 1)), "docstring or signature");
        check(|draft| draft["description"] = json!(" \n"), "no docstring");
        check(|draft| draft["example"]["x"] = json!("x".repeat(JSON_BYTES)), "schemas or its example");
    }
}
