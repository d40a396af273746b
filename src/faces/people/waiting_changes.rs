//! The changes that wait in copies of the workspace, as people see and settle them.

use serde::{Deserialize, Serialize};

/// A copy of the workspace in which changes wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitingCopy {
    /// Its id.
    pub id: String,
    /// Whether its session goes on.
    pub is_live: bool,
    /// Whether there are changes that cannot be listed.
    pub is_cut: bool,
    /// The changes, by path.
    pub changes: Vec<WaitingChange>,
}

/// A change that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitingChange {
    /// Its path in the workspace.
    pub path: String,
    /// Its kind, in a word.
    pub kind: String,
    /// The bytes of the file in the copy; 0 if it is none.
    pub bytes: u64,
    /// Remarks about it.
    pub marks: Vec<ChangeRemark>,
    /// Distinguishes what is there from everything else that could be.
    pub digest: String,
    /// The difference.
    pub diff: String,
    /// Whether that is all of it.
    pub is_whole: bool,
}

/// A remark about a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangeRemark {
    /// The remark.
    pub words: String,
    /// Whether it is a reason to look closely.
    pub is_warning: bool,
}

/// A change as a person has seen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SeenChange {
    /// Its path in the workspace.
    pub path: String,
    /// Its digest then.
    pub digest: String,
}

impl SeenChange {
    pub(crate) fn of(path: &str, digest: &str) -> Self {
        Self { path: path.to_owned(), digest: digest.to_owned() }
    }
}
