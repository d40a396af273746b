//! A connection that knows how long it has been silent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A connection from inside of the sandbox. Its reads and writes end a [`Silence`].
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    silence: Silence,
}

/// How long no byte has moved on a connection, in either direction.
#[derive(Debug, Clone)]
pub(super) struct Silence {
    start: Instant,
    /// Milliseconds from `start` to the last byte.
    last: Arc<AtomicU64>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream) -> (Self, Silence) {
        let silence = Silence { start: Instant::now(), last: Arc::default() };
        (Self { stream, silence: silence.clone() }, silence)
    }

    /// What the client says first, without taking it; `None` if it says nothing any more.
    pub(super) async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        Ok((self.stream.peek(&mut byte).await? == 1).then_some(byte[0]))
    }
}

impl Silence {
    /// Waits until the silence has lasted for `limit`.
    pub(super) async fn lasts(&self, limit: Duration) {
        loop {
            let end = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + limit;
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    fn end(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.silence.end();
        Poll::Ready(read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.silence.end();
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
