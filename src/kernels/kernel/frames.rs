//! Messages of a kernel as they arrive on its socket. All kernels of this process share the memory for them.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::OwnedReadHalf;
use tokio::time::Instant;

use crate::ground::budget::{Lease, MESSAGE_BYTES, OUTPUT};

/// How many bytes come before a message and give its length.
const HEAD_BYTES: usize = size_of::<u32>();

/// Messages up to this length need no lease: each kernel reads one at a time. Replies are among them.
const FREE_BYTES: usize = 256 * 1024;

/// How much is read at a time of what has no lease.
const READ_BYTES: usize = 64 * 1024;

/// How long a message waits for memory that messages of other kernels take. Then it is left out: code can stop in the middle
/// of a message, which must not stop the other kernels for ever.
const ROOM_WAIT: Duration = Duration::from_secs(60);

/// The weight of a message of this length: its bytes, and once more what is read of them.
pub(super) fn weight(length: usize) -> usize {
    2 * length
}

/// The reading side of a kernel's socket.
pub(super) struct Frames {
    socket: OwnedReadHalf,
    buffer: BytesMut,
    /// Memory for the message that arrives.
    lease: Lease,
    /// Until when it waits for that memory.
    room_deadline: Option<Instant>,
    /// How much is still to arrive of a message that is left out.
    skipped: usize,
}

/// A message, or that there was one.
pub(super) enum Frame {
    Whole(BytesMut, Lease),
    /// Its length. There was no memory for it.
    LeftOut(usize),
}

impl Frames {
    pub(super) fn new(socket: OwnedReadHalf) -> Self {
        let (buffer, lease) = (BytesMut::new(), OUTPUT.lease());
        Self { socket, buffer, lease, room_deadline: None, skipped: 0 }
    }

    /// The next message; `None` at the end of the connection. Cancellation safe.
    ///
    /// # Errors
    /// The kernel announces a message that is too long, or the connection fails.
    pub(super) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            self.skip();
            match self.length()? {
                _ if self.skipped > 0 => self.buffer.reserve(READ_BYTES),
                None => self.buffer.reserve(READ_BYTES),
                Some(length) if self.buffer.len() >= HEAD_BYTES + length => {
                    return Ok(Some(self.take(length)));
                }
                Some(length) if self.wait_for_room(length).await => {
                    self.buffer.reserve(HEAD_BYTES + length - self.buffer.len());
                }
                Some(length) => {
                    self.skipped = HEAD_BYTES + length;
                    return Ok(Some(Frame::LeftOut(length)));
                }
            }
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The messages that have arrived whole when the kernel has ended, `read_rest` after them.
    pub(super) fn rest(&mut self, read_rest: impl FnOnce(&OwnedReadHalf, &mut BytesMut)) -> Vec<Frame> {
        read_rest(&self.socket, &mut self.buffer);
        self.skip();
        let mut rest = Vec::new();
        while let Ok(Some(length)) = self.length()
            && self.skipped == 0
            && self.buffer.len() >= HEAD_BYTES + length
        {
            rest.push(self.take(length));
        }
        rest
    }

    /// The length of the message that arrives, once it is known.
    fn length(&self) -> io::Result<Option<usize>> {
        let Some(head) = self.buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        match usize::try_from(u32::from_le_bytes(*head)) {
            _ if self.skipped > 0 => Ok(None),
            Ok(length) if length <= MESSAGE_BYTES => Ok(Some(length)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long")),
        }
    }

    /// Takes a whole message out of the buffer. The memory of a long one ends with it.
    fn take(&mut self, length: usize) -> Frame {
        self.buffer.advance(HEAD_BYTES);
        let message = self.buffer.split_to(length);
        if length > FREE_BYTES {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        self.room_deadline = None;
        Frame::Whole(message, std::mem::replace(&mut self.lease, OUTPUT.lease()))
    }

    /// Forgets what has arrived of a message that is left out.
    fn skip(&mut self) {
        let skipped = self.skipped.min(self.buffer.len());
        self.buffer.advance(skipped);
        self.skipped -= skipped;
    }

    async fn wait_for_room(&mut self, length: usize) -> bool {
        if length <= FREE_BYTES {
            return true;
        }
        let deadline = *self.room_deadline.get_or_insert_with(|| Instant::now() + ROOM_WAIT);
        let has_room = self.lease.grow_until(weight(length), deadline).await.is_ok();
        if !has_room {
            self.room_deadline = None;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, Frames) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        // Their side closes ours as well if this half is dropped; tests keep to reading.
        let (read, write) = ours.into_split();
        write.forget();
        (theirs, Frames::new(read))
    }

    fn framed(length: usize) -> Vec<u8> {
        let mut framed = u32::try_from(length).unwrap().to_le_bytes().to_vec();
        framed.resize(HEAD_BYTES + length, b'x');
        framed
    }

    async fn whole(frames: &mut Frames) -> (usize, Lease) {
        match frames.next().await.unwrap().unwrap() {
            Frame::Whole(message, lease) => (message.len(), lease),
            Frame::LeftOut(length) => panic!("{length} bytes were left out"),
        }
    }

    #[tokio::test]
    async fn messages_of_all_lengths_arrive_and_leave_no_memory_behind() {
        let (mut theirs, mut frames) = pair();
        let lengths = [0, 5, FREE_BYTES, FREE_BYTES + 1, 3 << 20, 7];
        let all: Vec<u8> = lengths.iter().flat_map(|length| framed(*length)).collect();
        let writing = tokio::spawn(async move {
            theirs.write_all(&all).await.unwrap();
            theirs
        });
        for length in lengths {
            assert_eq!(whole(&mut frames).await.0, length);
        }
        assert!(frames.buffer.capacity() <= 2 * FREE_BYTES, "{}", frames.buffer.capacity());
        drop(writing.await.unwrap());
        assert!(frames.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_an_error() {
        let (mut theirs, mut frames) = pair();
        theirs.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
        assert_eq!(frames.next().await.err().unwrap().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test(start_paused = true)]
    async fn kernels_wait_for_each_other_and_none_for_ever() {
        let (mut theirs, mut frames) = pair();
        let mut others = OUTPUT.lease();
        others.grow_in_time(weight(MESSAGE_BYTES)).await.unwrap();
        let long = MESSAGE_BYTES / 2;
        let sending = tokio::spawn(async move {
            for length in [long, 5, long] {
                theirs.write_all(&framed(length)).await.unwrap();
            }
            theirs
        });
        assert!(matches!(frames.next().await.unwrap(), Some(Frame::LeftOut(length)) if length == long));
        assert_eq!(whole(&mut frames).await.0, 5);
        drop(others);
        assert_eq!(whole(&mut frames).await.0, long);
        drop(sending.await.unwrap());
    }
}
