//! Our own HTTP listeners on this machine, to which every program of every user can connect.
//!
//! Connections are limited in number, bytes and time. At the limit, one without an admitted request is closed for a new one:
//! of another user first, then the oldest.

mod busy;
mod connections;
mod peer;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::busy::{BusyRequest, peer_of};
use self::connections::ListenerConnection;
pub(crate) use self::connections::ListenerConnections;
pub(crate) use self::peer::ListenerPeer;

/// The time to wait for a client to read. A cell that is interrupted, or busy, may let us wait, and a browser may sleep.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest head of a request, in bytes, and the most that is read ahead of a body. Browsers send the cookies of all
/// ports of this machine.
const READ_BYTES: usize = 32 * 1024;

/// The pause after an error of accept: descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The number of connections of browsers: each tab has one for its events, and browsers open some ahead of their requests.
pub(crate) const BROWSER_CONNECTIONS: usize = 64;

/// The time that a browser may take for the head of a request, and be idle. It opens another connection when it needs one.
const BROWSER_HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits of a listener. Listeners with clones of these share their connections.
#[derive(Clone)]
pub(crate) struct ListenerLimits {
    /// Its name in log lines and refusals.
    pub(crate) name: &'static str,
    pub(crate) connections: ListenerConnections,
    /// The time that the head of a request may take, and a connection may be idle.
    pub(crate) head_timeout: Duration,
    /// The time that clients may take to read their last answers after the stop.
    pub(crate) stop_grace: Duration,
}

impl ListenerLimits {
    /// For browsers.
    pub(crate) fn of_browsers(name: &'static str, stop_grace: Duration) -> Self {
        let connections = ListenerConnections::at_most(BROWSER_CONNECTIONS);
        Self { name, connections, head_timeout: BROWSER_HEAD_TIMEOUT, stop_grace }
    }
}

/// Serves until `stop` is cancelled and all connections have ended, which takes at most the grace.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ListenerLimits,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    // The system lets 128 wait by default, and resets those of a thousand threads that call at once.
    let waiting = i32::try_from(limits.connections.most()).unwrap_or(i32::MAX);
    if let Err(error) = rustix::net::listen(&listener, waiting) {
        tracing::warn!(%error, listener = limits.name, "few connections can wait to be accepted");
    }
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                if limits.connections.is_full() {
                    // A request that has arrived is read before its connection has to leave.
                    tokio::task::yield_now().await;
                }
                match limits.connections.enter(ListenerPeer::of(&stream)) {
                    Some(connection) => {
                        tasks.spawn(attend(stream, connection, router.clone(), limits.clone(), stop.clone()));
                    }
                    None => turn_away(&stream, &limits),
                }
            }
            Err(error) => {
                tracing::warn!(%error, listener = limits.name, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// A connection whose client has to read: what is written to it does not wait for ever.
fn paced<S: AsyncRead + AsyncWrite>(stream: S) -> Pin<Box<TimeoutWriter<S>>> {
    let mut paced = TimeoutWriter::new(stream);
    paced.set_timeout(Some(READ_TIMEOUT));
    Box::pin(paced)
}

/// Answers the requests of one connection until it ends, has to leave, or the listener stops.
async fn attend(
    stream: TcpStream,
    connection: Arc<ListenerConnection>,
    router: Router,
    limits: ListenerLimits,
    stop: CancellationToken,
) {
    // Small answers must not wait for acknowledgements of earlier ones.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let router = router.layer(Extension(Arc::clone(&connection)));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout).max_buf_size(READ_BYTES);
    let stream = TokioIo::new(paced(stream));
    let serving = builder.serve_connection(stream, TowerToHyperService::new(router)).with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        // A request that has arrived is answered before the connection leaves.
        biased;
        ended = &mut serving => ended,
        () = connection.has_to_leave() => Ok(()),
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(limits.stop_grace, serving).await.unwrap_or_else(|_| {
                tracing::debug!(listener = limits.name, "a client has kept its connection open");
                Ok(())
            })
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, listener = limits.name, "a connection broke");
    }
}

/// Refuses a connection beyond the limit. A client that does not read the refusal sees the connection closed.
fn turn_away(stream: &TcpStream, limits: &ListenerLimits) {
    let name = limits.name;
    let most = limits.connections.most();
    let reason = format!("the {name} is busy with {most} requests, and takes no more at the same time");
    let length = reason.len();
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{reason}"
    );
    if let Err(error) = stream.try_write(response.as_bytes()) {
        tracing::debug!(%error, listener = name, "a connection was turned away");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_util::sync::DropGuard;

    use super::*;

    const MOST: usize = 8;

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

    struct Listening {
        address: std::net::SocketAddr,
        stop: DropGuard,
        serving: tokio::task::JoinHandle<()>,
    }

    async fn listening() -> Listening {
        let router = Router::new().route("/", get(|| async { "here" }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let limits = ListenerLimits {
            name: "test",
            connections: ListenerConnections::at_most(MOST),
            head_timeout: Duration::from_secs(30),
            stop_grace: Duration::from_millis(100),
        };
        let serving = tokio::spawn(serve(listener, router, limits, stop.clone()));
        Listening { address, stop: stop.drop_guard(), serving }
    }

    impl Listening {
        async fn connect(&self, beginning: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(beginning.as_bytes()).await.unwrap();
            stream
        }
    }

    async fn check_answered(mut stream: TcpStream) {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn idle_connections_keep_nobody_out() {
        let listening = listening().await;
        let mut idle = Vec::new();
        for _ in 0..MOST + 10 {
            idle.push(listening.connect("").await);
        }
        check_answered(listening.connect("").await).await;
        assert_eq!(idle[0].read(&mut [0]).await.unwrap(), 0, "the first has left for another");
        check_answered(idle.pop().unwrap()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_come_is_not_waited_for() {
        let listening = listening().await;
        for beginning in ["", "GET / HTTP/1.1\r\nhost: loc"] {
            // A refusal may come before the end.
            listening.connect(beginning).await.read_to_end(&mut Vec::new()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_long_head_is_refused() {
        let listening = listening().await;
        let mut stream = listening.connect("").await;
        let head = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(2 * READ_BYTES));
        // It may be closed before it has all.
        stream.write_all(head.as_bytes()).await.ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{answer:?}");
    }

    #[tokio::test]
    async fn no_connection_outlives_its_listener() {
        let listening = listening().await;
        let mut unfinished = listening.connect("GET / HTTP/1.1\r\nhost: loc").await;
        check_answered(listening.connect("").await).await;
        drop(listening.stop);
        listening.serving.await.unwrap();
        unfinished.read_to_end(&mut Vec::new()).await.ok();
    }
}
