//! The one connection between the host and the gateway in the sandbox: frames of JSON over a socket, each
//! with at most one descriptor.
//!
//! A frame is its length in bytes (32 bits, little-endian) and as much JSON; a descriptor comes with its
//! first byte. The receiver treats the other side as hostile: lengths are bounded, and a second or unexpected
//! descriptor ends the connection.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// The longest frame. The largest that we send hold a kernel's environment.
const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
const LENGTH_BYTES: usize = size_of::<u32>();

// On other systems Rust programs ignore SIGPIPE anyway, and received descriptors are closed in children
// explicitly.
#[cfg(target_os = "linux")]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const SEND_FLAGS: SendFlags = SendFlags::empty();
#[cfg(target_os = "linux")]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();

/// One end of the connection.
pub(crate) struct GatewayChannel {
    stream: UnixStream,
    /// Frames that are sent at the same time must not mix.
    sending: Mutex<()>,
}

impl GatewayChannel {
    /// Two ends: ours, and the other to be inherited by a child.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        Ok((Self::from_std(ours)?, theirs.into()))
    }

    /// The end that was inherited.
    pub(crate) fn from_inherited(descriptor: OwnedFd) -> io::Result<Self> {
        Self::from_std(descriptor.into())
    }

    fn from_std(stream: StdUnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: UnixStream::from_std(stream)?, sending: Mutex::default() })
    }

    /// Sends a frame, with a descriptor or without. Not cancellation safe: a frame may be sent in part.
    pub(crate) async fn send(
        &self,
        frame: &impl Serialize,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let text = serde_json::to_vec(frame)?;
        let length = u32::try_from(text.len()).ok().filter(|_| text.len() <= FRAME_BYTES_MAX);
        let length = length.ok_or_else(|| invalid(format!("a frame of {} bytes is too long", text.len())))?;
        let bytes = [&length.to_le_bytes()[..], &text].concat();
        let _turn = self.sending.lock().await;
        let mut sent = 0;
        while sent < bytes.len() {
            let descriptor = descriptor.filter(|_| sent == 0);
            sent += self
                .stream
                .async_io(Interest::WRITABLE, || self.send_some(&bytes[sent..], descriptor))
                .await?;
        }
        Ok(())
    }

    fn send_some(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = Vec::from_iter(descriptor);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        Ok(sendmsg(self.stream.as_fd(), &[IoSlice::new(bytes)], &mut control, SEND_FLAGS)?)
    }

    /// The next frame and its descriptor, or `None` at the end. Not cancellation safe: a frame may be read in part.
    pub(crate) async fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut descriptor = None;
        let mut length = [0; LENGTH_BYTES];
        if !self.fill(&mut length, &mut descriptor).await? {
            return Ok(None);
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(invalid(format!("a frame of {length} bytes is too long")));
        }
        let mut text = vec![0; length];
        if !self.fill(&mut text, &mut descriptor).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some((serde_json::from_slice(&text)?, descriptor)))
    }

    /// Fills `bytes`, and no byte more is read, so that a descriptor belongs to the frame that is being read. `false` if
    /// there was nothing at all.
    async fn fill(&self, bytes: &mut [u8], descriptor: &mut Option<OwnedFd>) -> io::Result<bool> {
        let mut filled = 0;
        while filled < bytes.len() {
            let read =
                self.stream.async_io(Interest::READABLE, || self.read_some(&mut bytes[filled..], descriptor));
            match read.await? {
                0 if filled == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(true)
    }

    fn read_some(&self, bytes: &mut [u8], descriptor: &mut Option<OwnedFd>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(self.stream.as_fd(), &mut [IoSliceMut::new(bytes)], &mut control, RECEIVE_FLAGS)?;
        let mut excess = received.flags.contains(ReturnFlags::CTRUNC);
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(descriptors) = message else { continue };
            for next in descriptors {
                if RECEIVE_FLAGS.is_empty() {
                    rustix::io::fcntl_setfd(&next, rustix::io::FdFlags::CLOEXEC)?;
                }
                excess |= descriptor.replace(next).is_some();
            }
        }
        if excess { Err(invalid("a frame with more than one descriptor")) } else { Ok(received.bytes) }
    }

    /// Shuts down sending.
    pub(crate) fn close(&self) {
        // It is closed already if the other side is gone.
        rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Write).ok();
    }
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use serde_json::{Value, json};

    use super::*;

    fn ends() -> (GatewayChannel, GatewayChannel) {
        let (ours, theirs) = GatewayChannel::pair().unwrap();
        (ours, GatewayChannel::from_inherited(theirs).unwrap())
    }

    async fn next(channel: &GatewayChannel) -> io::Result<Option<(Value, Option<OwnedFd>)>> {
        channel.receive().await
    }

    #[tokio::test]
    async fn frames_come_in_order_with_their_own_descriptors() {
        let (ours, theirs) = ends();
        let (mut reader, writer) = io::pipe().unwrap();
        ours.send(&json!(1), None).await.unwrap();
        ours.send(&json!({ "two": 2 }), Some(writer.as_fd())).await.unwrap();
        ours.send(&json!(3), None).await.unwrap();
        drop(writer);
        assert!(matches!(next(&theirs).await.unwrap().unwrap(), (one, None) if one == 1));
        let (two, writer) = next(&theirs).await.unwrap().unwrap();
        assert_eq!(two, json!({ "two": 2 }));
        std::fs::File::from(writer.unwrap()).write_all(b"here").unwrap();
        assert!(matches!(next(&theirs).await.unwrap().unwrap(), (three, None) if three == 3));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "here");
        ours.close();
        assert!(next(&theirs).await.unwrap().is_none());
        theirs.send(&json!("still"), None).await.unwrap();
        assert_eq!(next(&ours).await.unwrap().unwrap().0, "still");
    }

    #[tokio::test]
    async fn frames_larger_than_a_socket_holds_arrive() {
        let (ours, theirs) = ends();
        let text = "x".repeat(3_000_000);
        let (sent, received) = tokio::join!(ours.send(&text, None), theirs.receive::<String>());
        sent.unwrap();
        assert_eq!(received.unwrap().unwrap().0, text);
    }

    async fn refused(bytes: &[u8], descriptors: usize) -> String {
        let (raw, theirs) = StdUnixStream::pair().unwrap();
        let theirs = GatewayChannel::from_inherited(theirs.into()).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = vec![null.as_fd(); descriptors];
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        sendmsg(raw.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
        drop(raw);
        match next(&theirs).await {
            Ok(frame) => panic!("accepted {frame:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn what_is_no_frame_ends_the_conversation() {
        assert!(refused(&[1, 0], 0).await.contains("end of file"));
        assert!(refused(&[5, 0, 0, 0, b'1'], 0).await.contains("end of file"));
        assert!(refused(&u32::MAX.to_le_bytes(), 0).await.contains("too long"));
        assert!(refused(&[3, 0, 0, 0, b'{', b'{', b'{'], 0).await.contains("key"));
        assert!(refused(&[1, 0, 0, 0, b'1'], 2).await.contains("more than one descriptor"));
        assert!(refused(&[1, 0, 0, 0, b'1'], 8).await.contains("more than one descriptor"));
    }
}
