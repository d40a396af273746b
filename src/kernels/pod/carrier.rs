//! A connection that outlives the WebSockets that carry it: bytes that one of them has lost are sent again by the next.
//!
//! A message is a piece of the bytes, with its position, or the number of bytes that have been received. The bytes that
//! have not been acknowledged are kept.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message, protocol::WebSocketConfig};

use super::streams::{BYTES_IN_FLIGHT_MAX, PIECE_BYTES};
use crate::ground::text::describe;

/// A message's kind and position.
const HEAD_BYTES: usize = 9;
const PIECE: u8 = 0;
const RECEIVED: u8 = 1;

/// The interval of pings, and the time without any message after which the WebSocket counts as broken.
const PING: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(45);

/// A WebSocket over some connection.
pub(crate) type CarriedSocket<S> = WebSocketStream<S>;

/// Settings of WebSockets whose messages are as long as ours.
pub(crate) fn socket_config() -> WebSocketConfig {
    let longest = PIECE_BYTES + HEAD_BYTES;
    WebSocketConfig::default().max_message_size(Some(longest)).max_frame_size(Some(longest))
}

/// The end of a WebSocket.
pub(crate) enum CarryEnd {
    /// Our side has nothing to send any more, for good.
    Finished,
    /// It has broken: why.
    Broken(String),
    /// The other side has broken the rules, or lost what it had received: why. No WebSocket can go on.
    Impossible(String),
}

/// One side of the connection.
pub(crate) struct LinkCarrier {
    reader: ReadHalf<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    kept: Mutex<KeptBytes>,
    /// Bytes that have been received and not passed on.
    arrived: Bytes,
    /// Called when the other side has acknowledged bytes.
    room: Notify,
    /// Called when bytes have been received.
    news: Notify,
}

/// The bytes that the other side has not acknowledged.
#[derive(Default)]
struct KeptBytes {
    pieces: VecDeque<Bytes>,
    /// The position of the first of them.
    acknowledged: u64,
    length: usize,
    /// The number of bytes that have been received from the other side.
    received: u64,
}

impl KeptBytes {
    fn end(&self) -> u64 {
        self.acknowledged + self.length as u64
    }

    /// Forgets what the other side has received. `false` if it cannot have received so much, or had received more before.
    fn acknowledge(&mut self, received: u64) -> bool {
        if received < self.acknowledged || received > self.end() {
            return false;
        }
        while self.acknowledged < received {
            let Some(first) = self.pieces.front_mut() else { return false };
            let length = usize::try_from(received - self.acknowledged).unwrap_or(usize::MAX).min(first.len());
            first.advance(length);
            if first.is_empty() {
                self.pieces.pop_front();
            }
            self.acknowledged += length as u64;
            self.length -= length;
        }
        true
    }

    fn keep(&mut self, piece: Bytes) {
        self.length += piece.len();
        self.pieces.push_back(piece);
    }
}

impl LinkCarrier {
    /// A side, and the stream of bytes that it carries.
    pub(crate) fn new() -> (Self, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(PIECE_BYTES);
        let (reader, writer) = tokio::io::split(ours);
        let carrier = Self {
            reader,
            writer,
            kept: Mutex::default(),
            arrived: Bytes::new(),
            room: Notify::new(),
            news: Notify::new(),
        };
        (carrier, theirs)
    }

    /// The number of bytes that have been received.
    pub(crate) fn received(&self) -> u64 {
        self.kept.lock().received
    }

    /// Carries bytes over `socket` until that breaks; the other side has received so many. Can be dropped at any time, and
    /// begun again with another socket.
    pub(crate) async fn carry<S>(&mut self, socket: CarriedSocket<S>, received_there: u64) -> CarryEnd
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if !self.kept.lock().acknowledge(received_there) {
            return CarryEnd::Impossible("the other side does not have what it had received".to_owned());
        }
        let (sink, stream) = socket.split();
        let heard = Mutex::new(Instant::now());
        let Self { reader, writer, kept, arrived, room, news } = self;
        tokio::select! {
            end = send(reader, sink, kept, room, news, &heard) => end,
            end = receive(stream, writer, kept, arrived, room, news, &heard) => end,
        }
    }
}

async fn send(
    reader: &mut ReadHalf<DuplexStream>,
    mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin,
    kept: &Mutex<KeptBytes>,
    room: &Notify,
    news: &Notify,
    heard: &Mutex<Instant>,
) -> CarryEnd {
    let mut pings = tokio::time::interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut position = kept.lock().acknowledged;
    let again: Vec<Bytes> = kept.lock().pieces.iter().cloned().collect();
    for piece in again {
        let message = framed(PIECE, position, &piece);
        position += piece.len() as u64;
        if let Err(error) = sink.send(message).await {
            return CarryEnd::Broken(describe(&error).to_string());
        }
    }
    loop {
        let has_room = kept.lock().length < BYTES_IN_FLIGHT_MAX;
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        let message = tokio::select! {
            read = reader.read_buf(&mut piece), if has_room => match read {
                Ok(0) | Err(_) => {
                    // The other side may already be gone.
                    sink.close().await.ok();
                    return CarryEnd::Finished;
                }
                Ok(length) => {
                    let piece = piece.freeze();
                    let message = framed(PIECE, position, &piece);
                    kept.lock().keep(piece);
                    position += length as u64;
                    message
                }
            },
            () = room.notified(), if !has_room => continue,
            () = news.notified() => framed(RECEIVED, kept.lock().received, &[]),
            _ = pings.tick() => {
                let silence = heard.lock().elapsed();
                if silence > SILENCE {
                    return CarryEnd::Broken(format!("nothing was heard for {} seconds", silence.as_secs()));
                }
                Message::Ping(Bytes::new())
            }
        };
        if let Err(error) = sink.send(message).await {
            return CarryEnd::Broken(describe(&error).to_string());
        }
    }
}

async fn receive(
    mut stream: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
    writer: &mut WriteHalf<DuplexStream>,
    kept: &Mutex<KeptBytes>,
    arrived: &mut Bytes,
    room: &Notify,
    news: &Notify,
    heard: &Mutex<Instant>,
) -> CarryEnd {
    loop {
        while !arrived.is_empty() {
            // What carries this may be dropped in between: no byte is passed on twice.
            match writer.write(arrived).await {
                Ok(written) => arrived.advance(written),
                Err(_) => return CarryEnd::Finished,
            }
        }
        let message = match stream.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return CarryEnd::Broken(describe(&error).to_string()),
            None => return CarryEnd::Broken("the connection was closed".to_owned()),
        };
        *heard.lock() = Instant::now();
        let Message::Binary(mut message) = message else { continue };
        if message.len() < HEAD_BYTES {
            return CarryEnd::Impossible("a message is too short".to_owned());
        }
        let kind = message.get_u8();
        let position = message.get_u64_le();
        let mut kept = kept.lock();
        match kind {
            PIECE if position == kept.received => {
                kept.received += message.len() as u64;
                *arrived = message;
                news.notify_one();
            }
            RECEIVED if kept.acknowledge(position) => room.notify_one(),
            _ => return CarryEnd::Impossible("bytes are missing".to_owned()),
        }
    }
}

fn framed(kind: u8, position: u64, bytes: &[u8]) -> Message {
    let mut message = Vec::with_capacity(HEAD_BYTES + bytes.len());
    message.push(kind);
    message.extend_from_slice(&position.to_le_bytes());
    message.extend_from_slice(bytes);
    Message::Binary(message.into())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    /// Carries bytes both ways over one WebSocket after the other, each of which breaks after so many bytes: enough for a message.
    async fn carry_over_breaks(mut here: LinkCarrier, mut there: LinkCarrier, bytes_each: usize) {
        loop {
            let (one, other) = tokio::io::duplex(1024);
            let broken = BreakingStream { stream: one, left: bytes_each };
            let one = WebSocketStream::from_raw_socket(broken, Role::Client, Some(socket_config())).await;
            let other = WebSocketStream::from_raw_socket(other, Role::Server, Some(socket_config())).await;
            let received = (here.received(), there.received());
            let end = tokio::select! {
                end = here.carry(one, received.1) => end,
                end = there.carry(other, received.0) => end,
            };
            match end {
                CarryEnd::Broken(_) => {}
                CarryEnd::Finished => return,
                CarryEnd::Impossible(why) => panic!("{why}"),
            }
        }
    }

    /// A connection that breaks after so many written bytes.
    struct BreakingStream {
        stream: DuplexStream,
        left: usize,
    }

    impl AsyncRead for BreakingStream {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.stream).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for BreakingStream {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            if self.left == 0 {
                return std::task::Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()));
            }
            let most = self.left.min(bytes.len());
            let written = std::pin::Pin::new(&mut self.stream).poll_write(context, &bytes[..most]);
            if let std::task::Poll::Ready(Ok(length)) = written {
                self.left -= length;
            }
            written
        }

        fn poll_flush(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.stream).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.stream).poll_shutdown(context)
        }
    }

    #[tokio::test]
    async fn no_byte_is_lost_or_doubled_over_breaks() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        for bytes_each in [70_001, 140_000, 300_000] {
            let (here, mut near) = LinkCarrier::new();
            let (there, far) = LinkCarrier::new();
            let carrying = tokio::spawn(carry_over_breaks(here, there, bytes_each));
            let (mut far_read, mut far_write) = tokio::io::split(far);
            // The other side sends all of it back.
            let echo = tokio::spawn(async move { tokio::io::copy(&mut far_read, &mut far_write).await });
            let (mut read, mut write) = tokio::io::split(&mut near);
            let mut back = vec![0; bytes.len()];
            let (written, got) = tokio::join!(write.write_all(&bytes), read.read_exact(&mut back));
            written.unwrap();
            got.unwrap();
            assert_eq!(back, bytes);
            carrying.abort();
            echo.abort();
        }
    }

    #[test]
    fn positions_that_cannot_be_are_refused() {
        let mut kept = KeptBytes::default();
        kept.keep(Bytes::from_static(b"abcdef"));
        assert!(!kept.acknowledge(7));
        assert!(kept.acknowledge(4));
        assert_eq!(kept.pieces, [Bytes::from_static(b"ef")]);
        assert!(!kept.acknowledge(3));
        assert!(kept.acknowledge(6));
        assert!(kept.pieces.is_empty());
    }
}
