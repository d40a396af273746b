//! The socket: listens on a loopback address until it is stopped.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::ground::web::listener::{self, ListenerConnections, ListenerLimits};

/// The most connections, each of which has one request at a time. Cells may well start a thousand threads.
const CONNECTIONS_MAX: usize = 1024;

/// One in so many of the process's descriptors is for connections: the rest is for MCP servers and files.
const PART_OF_DESCRIPTORS: u64 = 2;

/// The time that clients may take to read their last answers before the connections are dropped.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// The time that the head of a request may take, and a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A listening socket.
pub(super) struct ToolListener {
    address: SocketAddr,
    stop: CancellationToken,
    ended: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ToolListener {
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
            let stop = stop.clone();
            let ended = ended.clone().drop_guard();
            async move {
                listener::serve(listener, router, limits(), stop).await;
                drop(ended);
            }
        });
        Ok(Self { address, stop, ended, task: Mutex::new(Some(task)) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has stopped listening.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Stops listening. Requests under way are answered with an error.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(Err(error)) = futures::future::OptionFuture::from(task).await {
            tracing::error!(%error, "the tool server's task failed");
        }
    }
}

impl Drop for ToolListener {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The limits of a tool server; the connections by the process's descriptors.
fn limits() -> ListenerLimits {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let part = descriptors.map_or(u64::MAX, |limit| limit / PART_OF_DESCRIPTORS);
    let most = usize::try_from(part).unwrap_or(usize::MAX).clamp(1, CONNECTIONS_MAX);
    let connections = ListenerConnections::at_most(most);
    ListenerLimits { name: "tool server", connections, head_timeout: HEAD_TIMEOUT, stop_grace: STOP_GRACE }
}

/// Connections outlive the listener: after the stop their requests are refused.
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
    // The default needs no resolver, which takes a thread and four files (RFC 6761, section 6.3).
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    let resolved = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> =
        resolved.map_err(|source| Error::Resolve { host: host.to_owned(), source })?.collect();
    let not_loopback = || Error::NotLoopback { host: host.to_owned() };
    if !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(not_loopback());
    }
    // IPv4 first: a name can have both, and IPv6 may be off.
    let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    let address = *address.ok_or_else(not_loopback)?;
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}
