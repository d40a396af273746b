//! The beginning of a copy of the workspace, and what of it has been shown: documents beside the files of the copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tree::TreeStamp;

/// The name of directories with compiled modules.
pub(super) const BYTECODE: &str = "__pycache__";

/// The beginning of a copy.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CopyBase {
    /// The workspace that it is a copy of.
    pub(super) workspace: PathBuf,
    /// When it was made, in seconds since 1970.
    pub(super) created: u64,
    pub(super) entries: BTreeMap<PathBuf, BaseEntry>,
    pub(super) parts: WritableParts,
    /// The audit log of its session, if that keeps one.
    #[serde(default)]
    pub(super) audit: Option<CopyAudit>,
}

/// The audit log of the session of a copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CopyAudit {
    /// Its absolute path.
    pub file: PathBuf,
    /// The size in bytes from which on it is rotated.
    pub max_bytes: u64,
}

/// An entry that the copy and the workspace had in common.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BaseEntry {
    /// Its state in the workspace then.
    pub(super) original: TreeStamp,
    /// Its state in the copy then; `None` if that is not certain, so that contents are compared.
    pub(super) copy: Option<TreeStamp>,
}

/// The changes that a person has seen, each with the digest of what was there.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ShownChanges {
    pub(super) digests: BTreeMap<PathBuf, String>,
}

/// The parts of the workspace that code may write, of which alone there are copies. The others are the workspace's own, or
/// hidden.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WritableParts(BTreeMap<PathBuf, bool>);

impl WritableParts {
    /// Those by the rules of a sandbox: paths, each with all that is beneath it down to the next one, and whether code may write
    /// there.
    pub(crate) fn new(workspace: &Path, rules: impl IntoIterator<Item = (PathBuf, bool)>) -> Self {
        let below = |(path, is_writable): (PathBuf, bool)| {
            Some((path.strip_prefix(workspace).ok()?.to_owned(), is_writable))
        };
        Self(rules.into_iter().filter_map(below).collect())
    }

    /// Whether code may write the path, and it is no bytecode: Python makes that anew, and nobody could judge it.
    pub(super) fn has(&self, path: &Path) -> bool {
        let is_bytecode = path.components().any(|part| part.as_os_str() == BYTECODE);
        !is_bytecode && path.ancestors().find_map(|above| self.0.get(above)).copied().unwrap_or_default()
    }

    /// Whether code may write the path, or something below.
    pub(super) fn has_any_of(&self, path: &Path) -> bool {
        self.has(path) || self.below(path).any(|is_writable| is_writable)
    }

    fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = bool> + 'a {
        self.0.iter().filter(move |(rule, _)| rule.starts_with(path)).map(|(_, is_writable)| *is_writable)
    }
}

impl CopyBase {
    /// The beginning of a copy of this one's copy, of which these entries were copied: what has changed in the one is compared
    /// with the workspace in the other, too.
    pub(super) fn passed_on(mut self, mut copied: BTreeMap<PathBuf, BaseEntry>) -> Self {
        for (path, entry) in &mut self.entries {
            let before = entry.copy.take();
            let copied = copied.remove(path).filter(|copied| before.as_ref() == Some(&copied.original));
            entry.copy = copied.and_then(|copied| copied.copy);
        }
        self
    }

    /// Whether a path in the copy may be code's: it is no placeholder on which something is mounted.
    pub(super) fn may_be_codes(&self, path: &Path) -> bool {
        if self.parts.has(path) {
            self.entries.contains_key(path) || self.parts.below(path).all(|is_writable| is_writable)
        } else {
            self.parts.has_any_of(path)
        }
    }
}
