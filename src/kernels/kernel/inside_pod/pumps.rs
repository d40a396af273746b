//! Carries the bytes of a kernel's socket and pipe into their streams.

use std::io;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, pipe};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::endpoints::read_rest;
use super::forking::PassedFork;
use crate::kernels::pod::{PIECE_BYTES, SocketFrame, StreamHeader, StreamOpener, stream_frames};

/// Our ends of a kernel's socket and pipe.
pub(super) struct PumpedEndpoints {
    pub(super) socket: UnixStream,
    pub(super) pipe: pipe::Receiver,
}

/// The tasks that carry the bytes of a kernel.
pub(super) struct KernelPumps {
    pub(super) kernel: u64,
    pub(super) opener: StreamOpener,
    /// The receiver of forks that the kernel has been asked for.
    pub(super) forks: mpsc::UnboundedSender<PassedFork>,
    /// Cancelled when the kernel has ended: what it has left may hold its pipe open.
    pub(super) ended: CancellationToken,
}

impl KernelPumps {
    /// Carries until the kernel has ended and all that it has written is sent, or the session has left.
    pub(super) async fn carry(self, endpoints: PumpedEndpoints) {
        let PumpedEndpoints { socket, pipe } = endpoints;
        let done = tokio::try_join!(self.carry_socket(socket), self.carry_output(pipe));
        if let Err(error) = done {
            tracing::debug!(%error, "a kernel's bytes cannot be sent");
        }
    }

    async fn carry_output(&self, mut pipe: pipe::Receiver) -> io::Result<()> {
        let mut stream = self.opener.open(&StreamHeader::Output { kernel: self.kernel }).await?;
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        loop {
            piece.clear();
            let is_over = tokio::select! {
                read = pipe.read_buf(&mut piece) => read? == 0,
                () = self.ended.cancelled() => {
                    read_rest(&pipe, &mut piece);
                    true
                }
            };
            stream.write_all(&piece).await?;
            stream.flush().await?;
            if is_over {
                return stream.shutdown().await;
            }
        }
    }

    async fn carry_socket(&self, socket: UnixStream) -> io::Result<()> {
        let stream = self.opener.open(&StreamHeader::Socket { kernel: self.kernel }).await?;
        let (mut sink, mut frames) = stream_frames(stream).split();
        let (mut read, mut write) = socket.into_split();
        let incoming = async {
            while let Some(frame) = frames.next().await {
                let frame = frame?;
                match frame.split_first() {
                    Some((&SocketFrame::BYTES, bytes)) => write.write_all(bytes).await?,
                    Some((&SocketFrame::FORK, request)) => {
                        let passed = PassedFork::pass(&mut write, serde_json::from_slice(request)?).await?;
                        // The kernel has ended: the fork has nobody to greet it.
                        self.forks.send(passed).ok();
                    }
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
            // The session has closed it: so do we.
            write.shutdown().await
        };
        let outgoing = async {
            loop {
                let piece = self.next_piece(&mut read).await?;
                if piece.is_empty() {
                    return sink.close().await;
                }
                for part in pieces(piece) {
                    sink.send(part).await?;
                }
            }
        };
        // The kernel's own words end with it; what it is told may end before, or not at all.
        let incoming = async {
            if let Err(error) = incoming.await {
                tracing::debug!(%error, "a kernel's socket cannot be written");
            }
            std::future::pending().await
        };
        tokio::select! {
            done = outgoing => done,
            () = incoming => Ok(()),
        }
    }

    /// The next bytes of a kernel's socket; none at its end.
    async fn next_piece(&self, read: &mut OwnedReadHalf) -> io::Result<Bytes> {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        tokio::select! {
            read = read.read_buf(&mut piece) => {
                read?;
            }
            () = self.ended.cancelled() => {
                read_rest(read.as_ref(), &mut piece);
            }
        }
        Ok(piece.freeze())
    }
}

/// Bytes in pieces that fit into a frame.
fn pieces(mut bytes: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let length = bytes.len().min(PIECE_BYTES);
        (length > 0).then(|| bytes.split_to(length))
    })
}
