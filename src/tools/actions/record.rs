//! The record of a saved action.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use ipybox_codegen as codegen;

/// The Python files of each action. A parser that it imports, a file of `mcpparse/`, is kept beside them, by its module's name:
/// `mcpparse.git.git_log.py`.
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
    /// The saved actions that its code imports, by name, as they were when it was tested last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) uses: BTreeMap<String, UsedAction>,
    /// The SHA-256 of each file, by its name, in hexadecimal digits.
    pub(crate) files: BTreeMap<String, String>,
    /// The sandbox of the session that saved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<SandboxOfTest>,
    pub(crate) test: ActionTest,
}

/// A version of an action that another one imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsedAction {
    pub(crate) version: u32,
    /// The SHA-256 of its files.
    pub(crate) digest: String,
}

/// The sandbox that an action was tested in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxOfTest {
    pub(crate) backend: String,
    /// The file with its policy; `None` if it is ipybox's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<PathBuf>,
    /// Whether the policy in the workspace is added.
    #[serde(default)]
    pub(crate) workspace_config: bool,
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

    /// Itself, as an action that another one imports.
    pub(crate) fn as_used(&self) -> UsedAction {
        let sources = self.files.iter().filter(|(name, _)| *name != TEST);
        let listed: String = sources.map(|(name, digest)| format!("{digest} {name}\n")).collect();
        UsedAction { version: self.version, digest: digest(listed.as_bytes()) }
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

/// The place of a parser in a workspace, by the name of its file among those of an action; `None` for others.
pub(super) fn parser_path(name: &str) -> Option<PathBuf> {
    let path = name.strip_suffix(".py")?.strip_prefix("mcpparse.")?;
    let (server, tool) = path.split_once('.')?;
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let is_module = |part: &str| !part.is_empty() && part != "__init__" && part.chars().all(is_word);
    let place = || Path::new("mcpparse").join(server).join(format!("{tool}.py"));
    (is_module(server) && is_module(tool)).then(place)
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

    #[test]
    fn files_of_parsers_have_their_place_in_the_workspace() {
        assert_eq!(parser_path("mcpparse.git.git_log.py").unwrap(), Path::new("mcpparse/git/git_log.py"));
        for name in [
            "api.py",
            "mcpparse.git.py",
            "mcpparse...py",
            "mcpparse.git.a/b.py",
            "mcpparse.git.a.b.py",
            "mcpparse.git.__init__.py",
        ] {
            assert_eq!(parser_path(name), None, "{name}");
        }
    }
}
