//! The record of a saved action.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use ipybox_codegen as codegen;

/// The Python files of an action.
pub(crate) const SOURCES: [&str; 3] = ["__init__.py", "api.py", "impl.py"];

/// The recording that tests it.
pub(crate) const TEST: &str = "test.jsonl";

/// The part of a name that is checked, in bytes: longer ones are none of packages.
const NAME_BYTES: usize = 256;

/// The digests of the definitions of tools, by server and tool.
pub(crate) type ToolDigests = BTreeMap<String, BTreeMap<String, String>>;

/// The names and texts of an action's files.
pub(crate) type ActionFiles = Vec<(String, String)>;

/// A saved action, as its record describes the newest version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedAction {
    pub(crate) category: String,
    /// Unique over all categories.
    pub(crate) name: String,
    /// From 1.
    pub(crate) version: u32,
    /// The time at which this version was saved (RFC 3339).
    pub(crate) saved: String,
    /// The first line of the docstring.
    pub(crate) summary: String,
    /// The docstring.
    pub(crate) description: String,
    /// The parameters and the result, as Python text: `(path: str, top: int = 5) -> list[Author]`.
    pub(crate) signature: String,
    /// Whether it is a coroutine function, `run_async`.
    pub(crate) is_async: bool,
    /// JSON Schema of the arguments.
    pub(crate) input_schema: Map<String, Value>,
    /// JSON Schema of the result, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_schema: Option<Map<String, Value>>,
    /// Arguments for which it has worked.
    pub(crate) example: Map<String, Value>,
    /// The digests of the tools that its test calls, as they were defined when it was tested last.
    pub(crate) servers: ToolDigests,
    /// The SHA-256 of each file, by its name, in hexadecimal digits.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) test: ActionTest,
}

/// The newest result of an action's test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ActionTest {
    pub(crate) passed: bool,
    /// Why it did not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// The time of the test (RFC 3339).
    pub(crate) time: String,
}

/// Checks the name of a category or an action.
///
/// # Errors
/// It cannot be the name of a package.
pub(crate) fn check_name(name: &str) -> Result<(), codegen::PackageNameError> {
    // An error repeats all of it. What is cut is too long as well.
    codegen::validate_package_name(&name[..name.floor_char_boundary(NAME_BYTES)])
}

impl SavedAction {
    /// The path by which code imports it.
    pub(crate) fn path(&self) -> String {
        format!("gentools.{}.{}", self.category, self.name)
    }

    /// The import and the call, as Python text.
    pub(crate) fn call(&self) -> String {
        let Self { category, name, signature, .. } = self;
        let function = self.function();
        format!("from gentools.{category} import {name}\n{name}.{function}{signature}")
    }

    /// The name of the function in its package.
    pub(crate) fn function(&self) -> &'static str {
        if self.is_async { "run_async" } else { "run" }
    }
}

/// Whether the files have this word.
pub(crate) fn names_word(files: &ActionFiles, word: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    files.iter().any(|(_, text)| text.split(|character| !is_word(character)).any(|found| found == word))
}

/// The SHA-256 of a file, in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_whole_words() {
        let files: ActionFiles =
            vec![("impl.py".to_owned(), "from mcptools import probe, git_log".to_owned())];
        assert!(names_word(&files, "probe") && names_word(&files, "git_log"));
        assert!(!names_word(&files, "prob") && !names_word(&files, "git"));
    }
}
