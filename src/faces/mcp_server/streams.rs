//! The two directions of a connection.

/// The input that a client or a person writes, and the output that they read.
pub(crate) struct ClientStreams<R, W> {
    pub(crate) input: R,
    pub(crate) output: W,
}
