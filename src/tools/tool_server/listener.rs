//! The socket: listens on a loopback address until it is stopped.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Error;
use super::connections::{Connection, Connections};

/// How long clients may take to read their last answers before the connections are dropped.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// How long the head of a request may take, and a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long may be waited for the other end to read. A cell that is interrupted, or busy, may let us wait.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest head of a request, in bytes, and the most that is read ahead of a body.
const READ_BYTES: usize = 32 * 1024;

/// The pause after an error of accept: descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A listening socket.
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

    /// Waits until it has stopped listening.
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
    let (connections, tasks) = (Connections::new(), TaskTracker::new());
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => match connections.enter() {
                Some(connection) => {
                    tasks.spawn(attend(stream, connection, router.clone(), stop.clone()));
                }
                None => turn_away(&stream, connections.most()),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection to the tool server could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// A connection whose other end has to read: what is written to it does not wait for ever.
fn paced<S: AsyncRead + AsyncWrite>(stream: S) -> Pin<Box<TimeoutWriter<S>>> {
    let mut paced = TimeoutWriter::new(stream);
    paced.set_timeout(Some(READ_TIMEOUT));
    Box::pin(paced)
}

/// Answers the requests of one connection until it ends, has to leave, or the server stops.
async fn attend(stream: TcpStream, connection: Arc<Connection>, router: Router, stop: CancellationToken) {
    // Small answers must not wait for acknowledgements of earlier ones.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let router = router.layer(axum::Extension(Arc::clone(&connection)));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(READ_BYTES);
    let stream = TokioIo::new(paced(stream));
    let serving = builder.serve_connection(stream, TowerToHyperService::new(router)).with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = connection.has_to_leave() => Ok(()),
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(STOP_GRACE, serving).await.unwrap_or_else(|_| {
                tracing::debug!("a client has kept its connection open");
                Ok(())
            })
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the tool server broke");
    }
}

/// Refuses a connection beyond the limit. A client that does not read the refusal sees the connection closed.
fn turn_away(stream: &TcpStream, most: usize) {
    let reason = format!("the tool server is busy with {most} calls, and takes no more at the same time");
    let length = reason.len();
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{reason}"
    );
    if let Err(error) = stream.try_write(response.as_bytes()) {
        tracing::debug!(%error, "a connection to the tool server was turned away");
    }
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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_left() {
        let (here, mut there) = tokio::io::duplex(16);
        let mut paced = paced(here);
        let error = paced.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        let mut read = [0; 16];
        there.read_exact(&mut read).await.unwrap();
        paced.write_all(&[0; 16]).await.unwrap();
    }

    async fn listener() -> Listener {
        let router = Router::new().route("/", get(|| async { "here" }));
        Listener::start("127.0.0.1", 0, router, CancellationToken::new()).await.unwrap()
    }

    async fn connect(listener: &Listener) -> TcpStream {
        TcpStream::connect(listener.address()).await.unwrap()
    }

    async fn check_answered(mut stream: TcpStream) {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn idle_connections_keep_nobody_out() {
        let listener = listener().await;
        let mut idle = Vec::new();
        for _ in 0..Connections::new().most() + 10 {
            idle.push(connect(&listener).await);
        }
        check_answered(connect(&listener).await).await;
        assert_eq!(idle[0].read(&mut [0]).await.unwrap(), 0, "the first has left for another");
        check_answered(idle.pop().unwrap()).await;
        listener.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_come_is_not_waited_for() {
        let listener = listener().await;
        for beginning in ["", "GET / HTTP/1.1\r\nhost: loc"] {
            let mut stream = connect(&listener).await;
            stream.write_all(beginning.as_bytes()).await.unwrap();
            // A refusal may come before the end.
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        }
        listener.stop().await;
    }

    #[tokio::test]
    async fn a_long_head_is_refused() {
        let listener = listener().await;
        let mut stream = connect(&listener).await;
        let head = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(2 * READ_BYTES));
        // It may be closed before it has all.
        stream.write_all(head.as_bytes()).await.ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{answer:?}");
        listener.stop().await;
    }
}
