//! The policy for code in the sandbox: a document in the settings format of sandbox-runtime (`srt` 0.0.78), for both
//! backends.
//!
//! ```text
//! text → document (JSON) → schema (every key known, every value fit) → Policy
//! Policy + PolicyPaths → rules: real paths, our own protections in → Rules → settings for srt
//!                                                                    → settings for bubblewrap and Landlock
//! ```
//!
//! It reads the policy's file and resolves paths; it starts nothing, and it writes nothing.

mod client_permissions;
mod closed;
mod codex;
mod document;
mod homes;
mod meet;
mod of_workspace;
mod paths;
mod policy_paths;
mod rules;
mod schema;
mod settings;
mod top_names;
mod trusted;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub(crate) use self::client_permissions::ClientPermissions;
use self::of_workspace::OnDefault;
pub use self::paths::PathProblem;
pub(crate) use self::paths::{PathPattern, resolution_steps};
pub(crate) use self::policy_paths::PolicyPaths;
pub(crate) use self::rules::SandboxRules;
pub(super) use self::top_names::takes_permission;
pub(crate) use self::trusted::configures_programs;
pub(super) use self::trusted::{MODULES, is_directory, placeholder};
use super::domain::DomainError;
use super::stubs::is_stub;
use crate::ground::files::small;
use crate::ground::web::RangeError;

/// The policy if the user has no file.
const EMBEDDED: &str = include_str!("../../../../sandbox-default.json");

/// The name of the embedded policy in errors.
const EMBEDDED_NAME: &str = "the embedded policy";

/// The file of a workspace's own policy. Code inside never writes it, whether this session uses it or not.
const WORKSPACE_POLICY: &str = "sandbox-config.json";

/// A policy whose keys and values are all known and fit. Its paths are as the user spelled them.
#[derive(Debug, Clone)]
pub(crate) struct SandboxPolicy {
    document: Map<String, Value>,
    source: PolicySource,
    /// Whether the default's lists for reading are in it: they hold for all homes of the user, too.
    has_defaults: bool,
    /// The document of a workspace, if this is its policy.
    on_default: Option<Box<OnDefault>>,
    /// Whether every host may be reached, which no document can say.
    opens_network: bool,
}

/// The source of a policy.
#[derive(Debug, Clone)]
struct PolicySource {
    /// Its name in errors.
    name: String,
    /// The file, if it is one; code inside must not write it.
    file: Option<PathBuf>,
}

/// Why a policy cannot be read or enforced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxPolicyError {
    /// The file cannot be read.
    #[error("read the sandbox policy `{path}`", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no text.
    #[error("use `{path}` as the sandbox policy: line {line} is not UTF-8", path = path.display())]
    Encoding {
        /// The file.
        path: PathBuf,
        /// The first line that is damaged, from 1.
        line: usize,
    },
    /// It is empty.
    #[error(
        "use {name} as the sandbox policy: it is empty\n\
         hint: a policy that allows nothing is `{{\"network\": {{\"allowedDomains\": [], \"deniedDomains\": []}}, \
         \"filesystem\": {{\"denyRead\": [], \"allowWrite\": [], \"denyWrite\": []}}}}`"
    )]
    Empty {
        /// The word that should have been one.
        name: String,
    },
    /// The text is no JSON, or has a key twice.
    #[error("use {name} as the sandbox policy: it is not JSON")]
    Json {
        /// The word that should have been one.
        name: String,
        /// The fault, with its line and column.
        source: serde_json::Error,
    },
    /// A key or its value cannot be used.
    #[error("use {name} as the sandbox policy: {key}: {problem}")]
    Key {
        /// The policy.
        name: String,
        /// The key, as in `` `filesystem.allowWrite[2]` ``.
        key: String,
        /// The fault of it.
        problem: PolicyProblem,
    },
    /// One of our own files or directories has a path that cannot be in a policy.
    #[error("protect `{path}` from code in the sandbox: {problem}", path = path.display())]
    Own {
        /// The file or directory.
        path: PathBuf,
        /// The fault of it.
        problem: PathProblem,
    },
}

/// The fault of a key of a policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyProblem {
    /// An unknown key: srt would ignore it, and leave open what it should protect.
    #[error("there is no such key\nhint: {hint}")]
    Unknown {
        /// The key that may be meant.
        hint: String,
    },
    /// It has to be there.
    #[error("it is missing\nhint: write {allowed}")]
    Missing {
        /// The values that it may have.
        allowed: &'static str,
    },
    /// The value is of the wrong type or out of range.
    #[error("{value} is not allowed\nhint: write {allowed}")]
    Value {
        /// The value as JSON, its beginning if it is long.
        value: String,
        /// The values that it may have.
        allowed: &'static str,
    },
    /// It is not possible here.
    #[error("{value} is not allowed: {reason}")]
    Refused {
        /// The value as JSON, its beginning if it is long.
        value: String,
        /// Why.
        reason: &'static str,
    },
    /// The value is no domain.
    #[error(transparent)]
    Domain(Box<dyn std::error::Error + Send + Sync>),
    /// The value is no path that can be used here.
    #[error("`{value}`: {problem}")]
    Path {
        /// The value.
        value: String,
        /// The fault of it.
        problem: PathProblem,
    },
    /// The value would open a closed path.
    #[error(
        "`{value}` would open `{closed}`, which ipybox keeps closed\n\
         hint: leave it out; a directory above it may be named, it stays closed beneath that", closed = closed.display()
    )]
    Opens {
        /// The value.
        value: String,
        /// The path that it would open.
        closed: PathBuf,
    },
}

impl From<DomainError> for PolicyProblem {
    fn from(error: DomainError) -> Self {
        Self::Domain(Box::new(error))
    }
}

impl From<RangeError> for PolicyProblem {
    fn from(error: RangeError) -> Self {
        Self::Domain(Box::new(error))
    }
}

impl SandboxPolicy {
    /// The file of a workspace's own policy.
    pub(crate) const WORKSPACE_FILE: &str = WORKSPACE_POLICY;

    /// Whether the document has a key at its top level.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.document.contains_key(key)
    }

    /// The hosts that code can reach.
    pub(crate) fn allowed_domains(&self) -> Vec<String> {
        let domains =
            self.document.get("network").and_then(|network| network.get("allowedDomains")?.as_array());
        domains.into_iter().flatten().filter_map(|domain| domain.as_str().map(str::to_owned)).collect()
    }

    /// The document: two policies with the same text allow the same in the same workspace.
    pub(crate) fn text(&self) -> String {
        Value::Object(self.document.clone()).to_string()
    }

    /// The policy that holds unless the user names a file: no network, secrets hidden, the workspace writable.
    ///
    /// # Errors
    /// None, as long as its test passes.
    pub(crate) fn embedded() -> Result<Self, SandboxPolicyError> {
        Ok(Self { has_defaults: true, ..Self::parse(EMBEDDED, EMBEDDED_NAME)? })
    }

    /// The policy in `workspace`, `sandbox-config.json`, if there is one, on the embedded one; else the embedded one.
    ///
    /// A stub that keeps code from creating the file is no policy: another sandbox runs here, or was killed.
    ///
    /// # Errors
    /// See [`SandboxPolicy::read`].
    pub(crate) fn of_workspace(workspace: &Path) -> Result<Self, SandboxPolicyError> {
        let file = workspace.join(WORKSPACE_POLICY);
        match file.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::embedded(),
            Ok(found) if is_stub(&found) => Self::embedded(),
            _ => Self::read_in(workspace, &file)?.on_default(),
        }
    }

    /// The policy of a workspace: its denials are added to those of the default.
    fn on_default(self) -> Result<Self, SandboxPolicyError> {
        let on_default = OnDefault::new(self.document, Self::embedded()?.document);
        let document = on_default.document();
        Ok(Self { document, has_defaults: true, on_default: Some(Box::new(on_default)), ..self })
    }

    /// The openings of a workspace's policy beyond the default, each as a key and a value. Nothing for other policies.
    pub(crate) fn openings(&self, paths: &PolicyPaths) -> Vec<String> {
        self.on_default.iter().flat_map(|on_default| on_default.openings(paths)).collect()
    }

    /// A digest of the content of a workspace's policy; `None` for other policies.
    pub(crate) fn content_of_workspace(&self) -> Option<String> {
        self.on_default.as_deref().map(OnDefault::digest)
    }

    /// A policy from a file that is named relative to `workspace`. One in the workspace may come from a stranger: it must not
    /// lead out of there.
    ///
    /// # Errors
    /// See [`SandboxPolicy::read`].
    pub(crate) fn read_in(workspace: &Path, file: &Path) -> Result<Self, SandboxPolicyError> {
        let path = workspace.join(file);
        small::check_link(workspace, &path)
            .map_err(|source| SandboxPolicyError::Read { path: path.clone(), source })?;
        Self::read(path)
    }

    /// A policy from a file, a regular one of at most 1 MiB.
    ///
    /// # Errors
    /// [`SandboxPolicyError`], which names the file, if it cannot be read or is no policy.
    pub(crate) fn read(path: impl AsRef<Path>) -> Result<Self, SandboxPolicyError> {
        let path = path.as_ref();
        let failed = |source| SandboxPolicyError::Read { path: path.to_owned(), source };
        let file = std::path::absolute(path).map_err(failed)?;
        let text =
            String::from_utf8(small::read(path, small::BY_HAND).map_err(failed)?).map_err(|error| {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
                SandboxPolicyError::Encoding { path: path.to_owned(), line }
            })?;
        let mut policy = Self::parse(&text, &format!("`{}`", path.display()))?;
        policy.source.file = Some(file);
        Ok(policy)
    }

    /// Its name in messages: its file's path, or another text for a policy without a file.
    pub(crate) fn name(&self) -> &str {
        &self.source.name
    }

    /// A policy from the text of its file, which errors call `name`.
    ///
    /// # Errors
    /// [`SandboxPolicyError`] if anything in it is unknown, missing or not as it should be: srt ignores what it does not
    /// know, so that a misspelt protection would be none.
    pub(crate) fn parse(text: &str, name: &str) -> Result<Self, SandboxPolicyError> {
        let source = PolicySource { name: name.to_owned(), file: None };
        if text.trim().is_empty() {
            return Err(SandboxPolicyError::Empty { name: source.name });
        }
        let document = match document::parse(text) {
            Ok(document) => document,
            Err(error) => return Err(SandboxPolicyError::Json { name: source.name, source: error }),
        };
        match schema::check(&document) {
            Ok(document) => {
                let document = document.clone();
                Ok(Self { document, source, has_defaults: false, on_default: None, opens_network: false })
            }
            Err((key, problem)) => Err(source.at(key, problem)),
        }
    }
}

impl PolicySource {
    fn at(&self, key: String, problem: PolicyProblem) -> SandboxPolicyError {
        SandboxPolicyError::Key { name: self.name.clone(), key, problem }
    }
}

#[cfg(test)]
mod tests;
