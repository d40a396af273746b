//! Carries the bytes of a kernel in a pod between its streams and our ends of a socket and a pipe.

use std::io;
use std::os::fd::OwnedFd;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::protocol::{PodForkRequest, SocketFrame};
use super::streams::{PIECE_BYTES, PodStream, frames_of};

/// The longest frame in the stream of a socket.
const FRAME_BYTES: usize = 1024 * 1024;

/// The session's side of a kernel's socket.
pub(super) struct SocketBridge {
    socket: UnixStream,
    forks: mpsc::UnboundedReceiver<PodForkRequest>,
}

impl SocketBridge {
    /// Has `socket`, the kernel's end, stand for the kernel. The `forks` are sent behind all that was written before.
    pub(super) fn new(socket: OwnedFd, forks: mpsc::UnboundedReceiver<PodForkRequest>) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixStream::from_std(socket)?, forks })
    }

    /// Carries until one side closes.
    pub(super) async fn carry(self, stream: PodStream) -> io::Result<()> {
        let Self { socket, mut forks } = self;
        let (mut read, mut write) = socket.into_split();
        let (mut sink, mut source) = stream_frames(stream).split();
        let outgoing = async {
            loop {
                let mut piece = BytesMut::with_capacity(PIECE_BYTES + 1);
                piece.put_u8(SocketFrame::BYTES);
                tokio::select! {
                    read = read.read_buf(&mut piece) => {
                        if read? == 0 {
                            return sink.close().await;
                        }
                        sink.send(piece.freeze()).await?;
                    }
                    Some(fork) = forks.recv() => {
                        // What was written before is there at once: both ends are ours.
                        while read.try_read_buf(&mut piece).is_ok_and(|length| length > 0) {
                            let earlier = std::mem::replace(&mut piece, BytesMut::with_capacity(PIECE_BYTES + 1));
                            piece.put_u8(SocketFrame::BYTES);
                            sink.send(earlier.freeze()).await?;
                        }
                        let mut frame = vec![SocketFrame::FORK];
                        serde_json::to_writer(&mut frame, &fork)?;
                        sink.send(Bytes::from(frame)).await?;
                    }
                }
            }
        };
        let incoming = async {
            while let Some(piece) = source.next().await {
                write.write_all(&piece?).await?;
            }
            Ok(())
        };
        tokio::select! {
            done = outgoing => done,
            done = incoming => done,
        }
    }
}

/// The frames in the stream of a socket.
pub(crate) fn stream_frames(
    stream: PodStream,
) -> tokio_util::codec::Framed<PodStream, tokio_util::codec::LengthDelimitedCodec> {
    frames_of(stream, FRAME_BYTES)
}

/// Writes a kernel's output into `pipe`, its end of the pipe, until the stream ends.
pub(super) async fn carry_output(mut stream: PodStream, pipe: OwnedFd) -> io::Result<()> {
    let mut pipe = pipe::Sender::from_owned_fd(pipe)?;
    tokio::io::copy(&mut stream, &mut pipe).await?;
    Ok(())
}
