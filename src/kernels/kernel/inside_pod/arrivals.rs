//! The connections to a pod: the first one who comes takes it, and the same one may come again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

use super::super::jupyter::DuplexStream;
use super::PodHostError;
use crate::ground::text::describe;
use crate::kernels::pod::{
    CarriedSocket, CarryEnd, LinkCarrier, LinkKey, PodGreeting, accepted, refused, socket_config,
};

/// The time that a connection may take to become a WebSocket.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// The most connections at a time that have not proved themselves.
const STRANGERS_MAX: usize = 32;
/// The pause after a connection could not be taken, for want of descriptors say.
const PAUSE: Duration = Duration::from_millis(100);

/// A WebSocket of the session, and the number of bytes that it has received.
struct ArrivedSocket {
    socket: CarriedSocket<Box<dyn DuplexStream>>,
    received_there: u64,
}

/// The WebSockets of the session.
pub(super) struct SessionArrivals {
    sockets: mpsc::Receiver<ArrivedSocket>,
}

impl SessionArrivals {
    /// Listens, with TLS if there are certificates for it, for those who know the secret if there is one.
    pub(super) fn listen(
        listener: TcpListener,
        tls: Option<(PathBuf, PathBuf)>,
        secret: Option<LinkKey>,
    ) -> Result<Self, PodHostError> {
        let tls = tls.map(|(certificates, key)| acceptor(&certificates, &key)).transpose()?;
        let (sender, sockets) = mpsc::channel(1);
        let door = Arc::new(PodDoor { tls, secret, taken: Mutex::default(), sender });
        tokio::spawn(door.open(listener));
        Ok(Self { sockets })
    }

    /// Carries the connection over the session's WebSockets, each until it breaks or the next one comes. Returns why none will
    /// come any more.
    pub(super) async fn carry(&mut self, carrier: &mut LinkCarrier, lease: Duration) -> String {
        let Some(mut arrived) = self.sockets.recv().await else {
            return "nothing listens any more".to_owned();
        };
        loop {
            let ArrivedSocket { mut socket, received_there } = arrived;
            let end = match accepted(&mut socket, carrier.received()).await {
                Err(error) => CarryEnd::Broken(error.to_string()),
                Ok(()) => tokio::select! {
                    end = carrier.carry(socket, received_there) => end,
                    next = self.sockets.recv() => match next {
                        Some(next) => {
                            arrived = next;
                            continue;
                        }
                        None => CarryEnd::Finished,
                    }
                },
            };
            match end {
                CarryEnd::Finished => return "the session has ended".to_owned(),
                CarryEnd::Impossible(why) => return why,
                CarryEnd::Broken(why) => tracing::info!(why, "the connection is broken"),
            }
            match tokio::time::timeout(lease, self.sockets.recv()).await {
                Ok(Some(next)) => arrived = next,
                Ok(None) => return "nothing listens any more".to_owned(),
                Err(_) => return format!("the session has not come back for {} seconds", lease.as_secs()),
            }
        }
    }
}

/// The place where connections become WebSockets of the session, or are refused.
struct PodDoor {
    tls: Option<TlsAcceptor>,
    /// The secret of those who may take the pod.
    secret: Option<LinkKey>,
    taken: Mutex<Option<LinkKey>>,
    sender: mpsc::Sender<ArrivedSocket>,
}

impl PodDoor {
    async fn open(self: Arc<Self>, listener: TcpListener) {
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        loop {
            let Ok(permit) = Arc::clone(&strangers).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let door = Arc::clone(&self);
                    tokio::spawn(async move {
                        if let Err(why) = door.greet(stream).await {
                            tracing::debug!(why, "a connection is refused");
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "could not take a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn greet(&self, stream: TcpStream) -> Result<(), String> {
        let opening = async {
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let stream: Box<dyn DuplexStream> = match &self.tls {
                None => Box::new(stream),
                Some(tls) => Box::new(tls.accept(stream).await.map_err(|error| error.to_string())?),
            };
            tokio_tungstenite::accept_async_with_config(stream, Some(socket_config()))
                .await
                .map_err(|error| describe(&error).to_string())
        };
        let mut socket = tokio::time::timeout(OPENING_TIMEOUT, opening)
            .await
            .unwrap_or_else(|_| Err("it says nothing".to_owned()))?;
        let taken = self.taken.lock().clone();
        let greeted = PodGreeting::of(&mut socket, taken.as_ref(), self.secret.as_ref())
            .await
            .map_err(|error| error.to_string())?;
        if let Some(key) = greeted.key {
            let is_first = {
                let mut taken = self.taken.lock();
                let is_first = taken.is_none();
                if is_first {
                    *taken = Some(key);
                }
                is_first
            };
            if !is_first {
                refused(&mut socket, "the pod is taken").await;
                return Err("another session was quicker".to_owned());
            }
        }
        let arrived = ArrivedSocket { socket, received_there: greeted.received };
        self.sender.send(arrived).await.map_err(|_| "the pod ends".to_owned())
    }
}

fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, PodHostError> {
    let failed = |file: &Path, why: String| PodHostError::Certificate { file: file.to_owned(), why };
    let chain = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(certificates, error.to_string()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| failed(certificates, error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
