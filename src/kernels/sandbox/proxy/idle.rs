//! A connection that knows how long it has been silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::io::{InspectReader, InspectWriter};

/// A connection from inside of the sandbox.
pub(super) trait ProxyClient: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ProxyClient for T {}

/// The time for which no byte has moved on a connection, in either direction.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSilence {
    start: Instant,
    /// Milliseconds from `start` to the last byte.
    last: Arc<AtomicU64>,
}

/// `client`, whose reads and writes end the silence.
pub(super) fn watched(client: impl ProxyClient) -> (impl ProxyClient, ConnectionSilence) {
    let silence = ConnectionSilence { start: Instant::now(), last: Arc::default() };
    let [read, written] = [silence.clone(), silence.clone()];
    let client = InspectReader::new(client, move |_: &[u8]| read.end());
    (InspectWriter::new(client, move |_: &[u8]| written.end()), silence)
}

impl ConnectionSilence {
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
