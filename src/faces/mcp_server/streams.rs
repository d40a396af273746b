//! The two directions of a connection.

/// What a client or a person writes, and where they read.
pub(crate) struct ClientStreams<R, W> {
    pub(crate) input: R,
    pub(crate) output: W,
}
