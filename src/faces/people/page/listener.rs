//! The socket of the page: bounded in connections and in time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

/// How many connections there may be: each tab has one for its events, and browsers open some beside.
const CONNECTIONS: usize = 64;

/// How long the head of a request may take, and a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long may be waited for a browser to read. One that sleeps begins anew when it wakes.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest head of a request, in bytes.
const HEAD_BYTES: usize = 16 * 1024;

/// The pause after an error of accept: descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves until `stop` is cancelled; then all connections end.
pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the approval page could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Closed at once if there are too many.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (router, stop) = (router.clone(), stop.clone());
        tokio::spawn(async move {
            let mut stream = TimeoutStream::new(stream);
            stream.set_write_timeout(Some(READ_TIMEOUT));
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES);
            let stream = TokioIo::new(Box::pin(stream));
            let serving = builder.serve_connection(stream, TowerToHyperService::new(router));
            let ended = tokio::select! {
                ended = serving => ended,
                () = stop.cancelled() => Ok(()),
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to the approval page broke");
            }
            drop(place);
        });
    }
}
