//! Reasons why a process of ours has not forked.

use super::Error;

/// Makes a new token for the origin of a fork, which knows the earlier one.
pub(crate) type RenewOrigin = Box<dyn FnOnce() -> String + Send + Sync>;

/// Why there is no branch. The origin goes on as before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BranchError {
    /// Its kernel is on another machine.
    #[error("copy a kernel that a Jupyter server runs: only kernels of ipybox's own can be copied")]
    Remote,
    /// The system cannot.
    #[cfg(not(target_os = "linux"))]
    #[error("copy the kernel: this needs Linux")]
    System,
    /// A copy would suffer, or its origin.
    #[error("copy the kernel: {}\nhint: end or close this first, and copy again", .0.join("; "))]
    Refused(Vec<String>),
    /// A kernel under these conditions is none of the template.
    #[error("fork a kernel under other conditions")]
    OtherConditions,
    /// The kernel does not do its part.
    #[error("copy the kernel: it did not answer as it should")]
    Unanswered,
    /// The kernel has failed meanwhile.
    #[error("copy the kernel")]
    Kernel(#[source] Error),
}
