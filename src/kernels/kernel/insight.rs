//! What a kernel answers to an [`Inquiry`](super::Inquiry).

use serde::Deserialize;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Insight {
    Completions(Completions),
    Completeness(Completeness),
}

/// How code could go on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Completions {
    pub(crate) matches: Vec<String>,
    /// How many characters before the cursor they begin; from the kernel, the position itself.
    #[serde(rename = "cursor_start")]
    pub(crate) start: usize,
}

/// Whether code is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(crate) enum Completeness {
    /// It can run, or never will: the kernel says why when it runs.
    #[serde(alias = "invalid")]
    Complete,
    /// It goes on.
    Incomplete,
    /// The kernel does not know.
    #[serde(other)]
    Unknown,
}
