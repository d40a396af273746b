//! The socket and the pipe between a kernel of our own and us.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::BytesMut;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// The size of the pipe, if the system allows it: code that prints waits less often.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1024 * 1024;

/// The bytes that are read after a kernel's end, as many as a pipe or a socket can hold. Surviving child processes
/// may go on writing.
const REST_BYTES_MAX: usize = 1024 * 1024;
/// The bytes that are read at a time.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// Both ends of the socket and the pipe between a kernel and us.
pub(super) struct KernelEndpoints {
    pub(super) socket: UnixStream,
    pub(super) pipe: pipe::Receiver,
    pub(super) their_socket: OwnedFd,
    pub(super) their_pipe: OwnedFd,
}

impl KernelEndpoints {
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

/// Sends bytes, the first of which carries descriptors, and returns how many were sent.
#[cfg(target_os = "linux")]
pub(super) async fn passed_on(
    socket: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let send = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(descriptors));
        Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
    };
    socket.async_io(Interest::WRITABLE, send).await
}

/// Reads what has been written, up to what the system can hold. Returns whether the other end is closed.
pub(super) fn read_rest(from: impl AsFd, rest: &mut BytesMut) -> bool {
    let mut piece = [0; READ_BYTES];
    let mut left = REST_BYTES_MAX;
    while left > 0 {
        match rustix::io::read(&from, &mut piece) {
            Ok(0) => return true,
            Ok(read) => {
                rest.extend_from_slice(&piece[..read]);
                left = left.saturating_sub(read);
            }
            Err(_) => return false,
        }
    }
    false
}
