//! How far a session is.

/// What the session is doing before it can run the first cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Something that takes a while, in words for a user.
    Preparing(String),
    /// Cells run as soon as it is their turn.
    Ready,
}
