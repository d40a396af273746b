//! The streams of a pod's connection, by yamux: each has its own window, so that a full one holds up no other.

use std::io;
use std::task::Poll;

use futures::{SinkExt as _, StreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _, TokioAsyncReadCompatExt as _};

use super::protocol::StreamHeader;

/// The most streams at a time, two for each kernel and one for each tool call.
const STREAMS_MAX: usize = 512;
/// The most bytes of a stream that its reader has not read yet: yamux's least.
const WINDOW_BYTES: usize = 256 * 1024;
/// The most bytes that may be on their way in one direction. As many can be kept, so that no side ever waits for the
/// other one to read before it reads itself.
pub(super) const BYTES_IN_FLIGHT_MAX: usize = STREAMS_MAX * (WINDOW_BYTES + 1024);
/// The bytes that are read at a time on the way from one end to the other.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;
/// The longest header, in bytes.
const HEADER_BYTES: u32 = 1024;

/// A stream.
pub(crate) type PodStream = Compat<yamux::Stream>;

/// The side of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamSide {
    Session,
    Pod,
}

/// Opens streams.
#[derive(Clone)]
pub(crate) struct StreamOpener(mpsc::Sender<oneshot::Sender<yamux::Stream>>);

impl StreamOpener {
    /// Opens a stream that begins with this header.
    pub(crate) async fn open(&self, header: &StreamHeader) -> io::Result<PodStream> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (sender, opened) = oneshot::channel();
        self.0.send(sender).await.map_err(|_| gone())?;
        let mut stream = opened.await.map_err(|_| gone())?.compat();
        let header = serde_json::to_vec(header)?;
        stream.write_u32(u32::try_from(header.len()).map_err(io::Error::other)?).await?;
        stream.write_all(&header).await?;
        stream.flush().await?;
        Ok(stream)
    }
}

/// The streams over `bytes`: what opens them, and those that the other side opens. They end with `bytes`.
pub(crate) fn open_streams(
    bytes: DuplexStream,
    side: StreamSide,
) -> (StreamOpener, mpsc::Receiver<yamux::Stream>) {
    let mut config = yamux::Config::default();
    config.set_max_num_streams(STREAMS_MAX);
    config.set_max_connection_receive_window(Some(STREAMS_MAX * WINDOW_BYTES));
    let mode = if side == StreamSide::Session { yamux::Mode::Client } else { yamux::Mode::Server };
    let connection = yamux::Connection::new(bytes.compat(), config, mode);
    let (open, opens) = mpsc::channel(1);
    let (inbound, opened) = mpsc::channel(STREAMS_MAX);
    tokio::spawn(drive(connection, opens, inbound));
    (StreamOpener(open), opened)
}

/// Works for all streams until the connection ends, or nobody opens or expects any.
async fn drive(
    mut connection: yamux::Connection<Compat<DuplexStream>>,
    mut opens: mpsc::Receiver<oneshot::Sender<yamux::Stream>>,
    inbound: mpsc::Sender<yamux::Stream>,
) {
    let mut wanted = None;
    let ended = futures::future::poll_fn(|context| {
        loop {
            if wanted.is_none() {
                match opens.poll_recv(context) {
                    Poll::Ready(Some(sender)) => wanted = Some(sender),
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending => {}
                }
            }
            if wanted.is_some() {
                match connection.poll_new_outbound(context) {
                    Poll::Ready(Ok(stream)) => {
                        // Who wanted it may have given up.
                        wanted.take().map(|sender: oneshot::Sender<_>| sender.send(stream).ok());
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {}
                }
            }
            match connection.poll_next_inbound(context) {
                // As many fit as there can be.
                Poll::Ready(Some(Ok(stream))) => drop(inbound.try_send(stream)),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    match ended.await {
        Ok(()) => drop(futures::future::poll_fn(|context| connection.poll_close(context)).await),
        Err(error) => tracing::debug!(%error, "the streams of a pod have ended"),
    }
}

/// The header of a stream that the other side has opened.
pub(crate) async fn read_header(stream: yamux::Stream) -> io::Result<(StreamHeader, PodStream)> {
    let mut stream = stream.compat();
    let length = stream.read_u32().await?;
    if length > HEADER_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut header = vec![0; length as usize];
    stream.read_exact(&mut header).await?;
    Ok((serde_json::from_slice(&header)?, stream))
}

/// The frames in a stream, none of which is longer than this.
pub(crate) fn frames_of(stream: PodStream, longest: usize) -> Framed<PodStream, LengthDelimitedCodec> {
    LengthDelimitedCodec::builder().max_frame_length(longest).new_framed(stream)
}

/// Sends a message as a frame of JSON.
pub(crate) async fn send_message(
    frames: &mut (impl futures::Sink<bytes::Bytes, Error = io::Error> + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    frames.send(serde_json::to_vec(message)?.into()).await
}

/// The next message; `None` at the end.
pub(crate) async fn next_message<T: DeserializeOwned>(
    frames: &mut (impl futures::Stream<Item = io::Result<bytes::BytesMut>> + Unpin),
) -> io::Result<Option<T>> {
    match frames.next().await {
        None => Ok(None),
        Some(frame) => Ok(Some(serde_json::from_slice(&frame?)?)),
    }
}
