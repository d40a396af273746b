//! The socket and the pipe between a kernel of our own and us.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// The size of the pipe, if the system allows it: code that prints waits less often.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1024 * 1024;

/// Both ends of the socket and the pipe between a kernel and us.
pub(super) struct Endpoints {
    pub(super) socket: UnixStream,
    pub(super) pipe: pipe::Receiver,
    pub(super) their_socket: OwnedFd,
    pub(super) their_pipe: OwnedFd,
}

impl Endpoints {
    /// Makes them.
    pub(super) fn open() -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (reader, writer) = io::pipe()?;
        // A larger pipe is better, but not needed.
        #[cfg(target_os = "linux")]
        rustix::pipe::fcntl_setpipe_size(&reader, PIPE_BYTES).ok();
        Ok(Self {
            socket: UnixStream::from_std(ours)?,
            pipe: pipe::Receiver::from_owned_fd(reader.into())?,
            their_socket: theirs.into(),
            their_pipe: writer.into(),
        })
    }
}
