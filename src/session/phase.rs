//! The progress of a session's start.

/// The current step of the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartPhase {
    /// A step that takes a while, described for a user.
    Preparing(String),
    /// The kernel is ready: queued cells run.
    Ready,
}
