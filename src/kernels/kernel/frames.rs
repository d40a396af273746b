//! Messages of a kernel as they arrive on its socket. All kernels of this process share the memory for long ones.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Error;
use crate::ground::budget::{MESSAGE_BYTES, OUTPUT, TimedLease};

/// The bytes before a message, which give its length.
const HEAD_BYTES: usize = size_of::<u32>();

/// Messages up to this length need no lease: each kernel reads one at a time. Replies are among them.
pub(super) const FREE_BYTES: usize = 256 * 1024;

/// The bytes that are read at a time of messages without a lease.
const READ_BYTES: usize = 64 * 1024;

/// The time that a message may hold memory before it has arrived whole and its position is known. Code can stop in the middle
/// of one, which must not stop the other kernels for ever.
pub(super) const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// A request to a kernel, as it reads it: its length, and JSON.
pub(super) fn framed(kind: &str, id: &str, content: &Value) -> Result<Vec<u8>, Error> {
    let request = json!({ "type": kind, "cell": id, "content": content });
    let request = serde_json::to_vec(&request).map_err(Error::Message)?;
    let length =
        u32::try_from(request.len()).map_err(|_| Error::Connection("a request of more than 4 GiB".into()))?;
    Ok([&length.to_le_bytes()[..], &request].concat())
}

/// The reading side of a kernel's socket.
pub(super) struct FrameReader {
    socket: OwnedReadHalf,
    buffer: BytesMut,
    /// Memory for the long message that arrives.
    room: FrameRoom,
    /// The bytes that are still to arrive of a message that is left out.
    skipped: usize,
}

/// Memory for a long message.
enum FrameRoom {
    Unneeded,
    Awaited(oneshot::Receiver<TimedLease>),
    Given(FrameLease),
}

/// The memory of a long message, and the moment until which it may be held for the kernel.
pub(super) struct FrameLease {
    pub(super) held: TimedLease,
    pub(super) until: Instant,
}

/// A message, or that there was one.
pub(super) enum KernelFrame {
    Whole(BytesMut, Option<FrameLease>),
    /// Its length. It did not arrive in time.
    LeftOut(usize),
}

impl FrameReader {
    pub(super) fn new(socket: OwnedReadHalf) -> Self {
        Self { socket, buffer: BytesMut::new(), room: FrameRoom::Unneeded, skipped: 0 }
    }

    /// The next message; `None` at the end of the connection. Cancellation safe.
    ///
    /// # Errors
    /// The kernel announces a message that is too long, or the connection fails.
    pub(super) async fn next(&mut self) -> io::Result<Option<KernelFrame>> {
        loop {
            self.skip();
            let length = self.length()?;
            match length {
                Some(length) if self.buffer.len() >= HEAD_BYTES + length => {
                    return Ok(Some(self.take(length)));
                }
                Some(length) => {
                    self.make_room(length).await;
                    self.buffer.reserve(HEAD_BYTES + length - self.buffer.len());
                }
                None => self.buffer.reserve(READ_BYTES),
            }
            match self.read().await {
                Some(Ok(0)) => return Ok(None),
                Some(read) => drop(read?),
                None => return Ok(Some(self.leave_out(length.unwrap_or(0)))),
            }
        }
    }

    /// The messages that have arrived whole when the kernel has ended, after `read_rest`.
    pub(super) fn rest(&mut self, read_rest: impl FnOnce(&OwnedReadHalf, &mut BytesMut)) -> Vec<KernelFrame> {
        read_rest(&self.socket, &mut self.buffer);
        self.skip();
        let mut rest = Vec::new();
        while let Ok(Some(length)) = self.length()
            && self.buffer.len() >= HEAD_BYTES + length
        {
            rest.push(self.take(length));
        }
        rest
    }

    /// Reads once. `None` if the message that arrives has taken too long.
    async fn read(&mut self) -> Option<io::Result<usize>> {
        let read = self.socket.read_buf(&mut self.buffer);
        match &self.room {
            FrameRoom::Given(FrameLease { until, .. }) => timeout_at(*until, read).await.ok(),
            FrameRoom::Unneeded | FrameRoom::Awaited(_) => Some(read.await),
        }
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
    fn take(&mut self, length: usize) -> KernelFrame {
        self.buffer.advance(HEAD_BYTES);
        let message = self.buffer.split_to(length);
        let lease = match std::mem::replace(&mut self.room, FrameRoom::Unneeded) {
            FrameRoom::Given(lease) => Some(lease),
            FrameRoom::Unneeded | FrameRoom::Awaited(_) => None,
        };
        if length > FREE_BYTES {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        KernelFrame::Whole(message, lease)
    }

    /// Gives up a message of which a part has arrived.
    fn leave_out(&mut self, length: usize) -> KernelFrame {
        self.skipped = HEAD_BYTES + length;
        self.skip();
        self.buffer = BytesMut::new();
        self.room = FrameRoom::Unneeded;
        KernelFrame::LeftOut(length)
    }

    /// Forgets the bytes that have arrived of a message that is left out.
    fn skip(&mut self) {
        let skipped = self.skipped.min(self.buffer.len());
        self.buffer.advance(skipped);
        self.skipped -= skipped;
    }

    /// Waits for memory, if the message is long: for its bytes, and for what is read of them.
    async fn make_room(&mut self, length: usize) {
        if length <= FREE_BYTES {
            return;
        }
        if let FrameRoom::Unneeded = self.room {
            self.room = FrameRoom::Awaited(OUTPUT.turn(2 * length, ARRIVAL_TIMEOUT));
        }
        if let FrameRoom::Awaited(turn) = &mut self.room
            && let Ok(held) = turn.await
        {
            self.room = FrameRoom::Given(FrameLease { held, until: Instant::now() + ARRIVAL_TIMEOUT });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, FrameReader) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        // Their side closes ours as well if this half is dropped; tests keep to reading.
        let (read, write) = ours.into_split();
        write.forget();
        (theirs, FrameReader::new(read))
    }

    fn framed(length: usize) -> Vec<u8> {
        let mut framed = u32::try_from(length).unwrap().to_le_bytes().to_vec();
        framed.resize(HEAD_BYTES + length, b'x');
        framed
    }

    async fn whole(frames: &mut FrameReader) -> (usize, Option<FrameLease>) {
        match frames.next().await.unwrap().unwrap() {
            KernelFrame::Whole(message, lease) => (message.len(), lease),
            KernelFrame::LeftOut(length) => panic!("{length} bytes were left out"),
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
    async fn kernels_wait_for_each_other_in_turn_and_nothing_is_lost() {
        let mut kernels = Vec::new();
        for _ in 0..9 {
            let (mut theirs, mut frames) = pair();
            kernels.push(tokio::spawn(async move {
                let message = framed(MESSAGE_BYTES / 2);
                let (written, (length, lease)) = tokio::join!(theirs.write_all(&message), whole(&mut frames));
                // The message is processed.
                tokio::time::sleep(ARRIVAL_TIMEOUT).await;
                drop(lease);
                written.unwrap();
                length
            }));
        }
        for kernel in kernels {
            assert_eq!(kernel.await.unwrap(), MESSAGE_BYTES / 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_stops_in_the_middle_is_left_out_and_stops_no_other_kernel() {
        let (mut theirs, mut frames) = pair();
        let long = framed(MESSAGE_BYTES);
        let (begun, end) = long.split_at(READ_BYTES);
        theirs.write_all(begun).await.unwrap();
        let (mut others, mut other_frames) = pair();
        let other = async { tokio::join!(others.write_all(&long), whole(&mut other_frames)).1.0 };
        let (left_out, length) = tokio::join!(frames.next(), other);
        assert!(matches!(left_out, Ok(Some(KernelFrame::LeftOut(MESSAGE_BYTES)))));
        assert_eq!(length, MESSAGE_BYTES);
        let rest = [end, &framed(5)].concat();
        let (written, (length, lease)) = tokio::join!(theirs.write_all(&rest), whole(&mut frames));
        written.unwrap();
        assert_eq!((length, lease.is_none()), (5, true));
    }
}
