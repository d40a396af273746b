//! Accepts connections, within limits of their number and of the time that they take.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::tls;
use crate::config::ServerSettings;

/// The time that the head of a request, and the handshake of TLS, may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// The time that connections get to end.
const CLOSING: Duration = Duration::from_secs(2);
/// The pause after a connection could not be accepted: there may be no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be used.
    #[error("listen on `{address}`")]
    Address {
        /// It.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of TLS cannot be used.
    #[error("serve TLS with `{}`", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A socket that listens.
pub(crate) struct FrontListener {
    socket: TcpListener,
    acceptor: Option<TlsAcceptor>,
    /// The places of clients that may speak no TLS; `None` if all may.
    proxies: Option<Vec<IpNet>>,
    connections: Arc<Semaphore>,
}

impl FrontListener {
    /// Listens as the settings say.
    pub(crate) async fn bind(settings: &ServerSettings) -> Result<Self, ListenError> {
        let acceptor = settings.tls.as_ref().map(tls::acceptor).transpose()?;
        let connections = Arc::new(Semaphore::new(settings.max_connections));
        let is_open = acceptor.is_none() && !settings.listen.ip().is_loopback();
        let proxies = is_open.then(|| settings.trusted_proxies.clone());
        Ok(Self { socket: listen(settings.listen).await?, acceptor, proxies, connections })
    }

    /// Listens for few, without TLS.
    pub(crate) async fn plain(address: SocketAddr) -> Result<Self, ListenError> {
        let connections = Arc::new(Semaphore::new(16));
        Ok(Self { socket: listen(address).await?, acceptor: None, proxies: None, connections })
    }

    /// The address that it has.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError::Address { address, source })
}

/// Serves until `stop` is cancelled and the connections have ended, which takes two seconds at most.
pub(crate) async fn serve(listener: FrontListener, router: Router, stop: CancellationToken) {
    let FrontListener { socket, acceptor, proxies, connections } = listener;
    let tasks = TaskTracker::new();
    loop {
        // Others wait in the system's queue.
        let permit = tokio::select! {
            () = stop.cancelled() => break,
            permit = Arc::clone(&connections).acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((_, peer)) if !is_admitted(peer, proxies.as_deref()) => {
                tracing::warn!(%peer, "refused: neither a proxy of `server.trusted_proxies` nor this machine");
            }
            Ok((stream, _)) => {
                let serving = attend(stream, acceptor.clone(), router.clone(), stop.clone());
                tasks.spawn(async move {
                    let _permit = permit;
                    serving.await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(socket);
    tasks.close();
    tokio::time::timeout(CLOSING, tasks.wait()).await.ok();
}

fn is_admitted(peer: SocketAddr, proxies: Option<&[IpNet]>) -> bool {
    let address = peer.ip().to_canonical();
    address.is_loopback() || proxies.is_none_or(|proxies| proxies.iter().any(|net| net.contains(&address)))
}

async fn attend(stream: TcpStream, acceptor: Option<TlsAcceptor>, router: Router, stop: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    match acceptor {
        None => answer(stream, router, stop).await,
        Some(acceptor) => match tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => answer(stream, router, stop).await,
            Ok(Err(error)) => tracing::debug!(%error, "a client could not be spoken to by TLS"),
            Err(_) => tracing::debug!("a client took too long to speak TLS"),
        },
    }
}

/// Answers the requests of one connection.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    stop: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tls_only_proxies_and_this_machine_are_heard() {
        let proxies = ["10.0.0.0/8".parse().unwrap()];
        let admitted = |peer: &str, proxies| is_admitted(peer.parse().unwrap(), proxies);
        assert!(
            admitted("10.1.2.3:1", Some(&proxies[..])) && admitted("[::ffff:10.1.2.3]:1", Some(&proxies[..]))
        );
        assert!(admitted("127.0.0.1:1", Some(&proxies[..])) && admitted("[::1]:1", Some(&proxies[..])));
        assert!(!admitted("192.168.1.1:1", Some(&proxies[..])) && !admitted("192.168.1.1:1", Some(&[])));
        assert!(admitted("192.168.1.1:1", None));
    }
}
