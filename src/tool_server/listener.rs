//! The socket: listens on a loopback address until it is told to stop.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Error;

/// How long clients may take to read their last answers. Those that do not are left alone with a closed port.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// A socket that is listened on.
pub(super) struct Listener {
    address: SocketAddr,
    stop: CancellationToken,
    ended: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    /// Starts to listen on `host`, which must be a loopback address, and on `port`, or a free one if it is 0. `stop`
    /// ends it, and with it all requests.
    pub(super) async fn start(
        host: &str,
        port: u16,
        router: Router,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let listener = bind(host, port).await?;
        let resolve = |source| Error::Resolve { host: host.to_owned(), source };
        Self::serve(listener, router, stop).map_err(resolve)
    }

    /// Serves a socket that listens already. `stop` ends it, and with it all requests.
    pub(super) fn serve(
        listener: TcpListener,
        router: Router,
        stop: CancellationToken,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let router = router.layer(middleware::from_fn_with_state(stop.clone(), until_stopped));
        let ended = CancellationToken::new();
        let task = tokio::spawn({
            let (stop, ended) = (stop.clone(), ended.clone().drop_guard());
            async move {
                serve(listener, router, stop).await;
                drop(ended);
            }
        });
        Ok(Self { address, stop, ended, task: Mutex::new(Some(task)) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until nobody listens any more.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Stops listening. Requests under way are answered with an error.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = futures::future::OptionFuture::from(task).await {
            tracing::error!(%error, "the tool server's task failed");
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    // Small answers must not wait for acknowledgements of earlier ones.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "could not set TCP_NODELAY");
        }
    });
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let grace = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        served = serving.into_future() => {
            if let Err(error) = served {
                tracing::error!(%error, "the tool server failed");
            }
        }
        () = grace => tracing::debug!("some clients have kept their connections open"),
    }
}

/// Connections outlive the listener: what still comes over them, or runs, has no effect any more.
async fn until_stopped(State(stop): State<CancellationToken>, request: Request, next: Next) -> Response {
    tokio::select! {
        biased;
        () = stop.cancelled() => {
            (StatusCode::SERVICE_UNAVAILABLE, "the tool server has been stopped").into_response()
        }
        response = next.run(request) => response,
    }
}

async fn bind(host: &str, port: u16) -> Result<TcpListener, Error> {
    let resolved = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> =
        resolved.map_err(|source| Error::Resolve { host: host.to_owned(), source })?.collect();
    let not_loopback = || Error::NotLoopback { host: host.to_owned() };
    if !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(not_loopback());
    }
    // IPv4 first: `localhost` is both, and IPv6 may be off.
    let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    let address = *address.ok_or_else(not_loopback)?;
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}
