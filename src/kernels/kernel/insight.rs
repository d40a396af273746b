//! The answers of a kernel to an [`CodeInquiry`](super::CodeInquiry).

use std::collections::BTreeMap;

use serde::Deserialize;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CodeInsight {
    Completions(CodeCompletions),
    Completeness(CodeCompleteness),
    Environment(PythonVersions),
    /// `None` if the kernel could not measure it in time.
    Effort(Option<KernelEffort>),
}

/// The work of a kernel and the processes that it has started, as far as they live or it has waited for them, in
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct KernelEffort {
    /// The processor time.
    pub(crate) spent: u64,
    /// The time for which living threads could have run and had no processor; 0 where the system does not say so.
    pub(crate) waited: u64,
}

/// The versions of a kernel's Python and packages.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct PythonVersions {
    pub(crate) python: String,
    /// The system and the processor.
    pub(crate) platform: String,
    pub(crate) packages: BTreeMap<String, String>,
}

/// The possible continuations of code.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct CodeCompletions {
    pub(crate) matches: Vec<String>,
    /// The number of characters before the cursor at which they begin; from the kernel, the position itself.
    #[serde(rename = "cursor_start")]
    pub(crate) start: usize,
}

/// Whether code is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(crate) enum CodeCompleteness {
    /// It can run, or never will: the kernel says why when it runs.
    #[serde(alias = "invalid")]
    Complete,
    /// It goes on.
    Incomplete,
    /// The kernel does not know.
    #[serde(other)]
    Unknown,
}
