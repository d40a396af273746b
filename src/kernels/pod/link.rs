//! The session's side of a pod's connection.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::carrier::{CarriedSocket, CarryEnd, LinkCarrier, socket_config};
use super::control::PodControl;
use super::handshake::{HandshakeError, LinkKey, PodApproach, connect};
use super::protocol::{PodAbout, PodNotice, PodRequest, StreamHeader};
use super::shared::{LinkGone, LinkShared};
use super::streams::{StreamSide, frames_of, next_message, open_streams, read_header, send_message};

/// The longest notice of a pod, in bytes.
const NOTICE_BYTES: usize = 64 * 1024;
/// The time that a broken connection may take to come back, before the pod counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first and the longest pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// The time that a pod may take to read that it is left.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// Opens WebSockets to a pod.
pub(crate) trait PodDialer: Send + Sync + 'static {
    /// The connection that carries them.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Opens one, or says why not.
    fn dial(&self, config: WebSocketConfig) -> BoxFuture<'_, Result<CarriedSocket<Self::Stream>, String>>;

    /// Why the pod will not answer any more, if that is known.
    fn gone(&self) -> BoxFuture<'_, Option<String>>;
}

/// Why there is no connection to a pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodError {
    /// It cannot be reached.
    #[error("{0}\nhint: does `ipybox pod` run there, and are host and port right?")]
    Unreachable(String),
    /// It refuses, or it is not what it should be.
    #[error("{0}")]
    Refused(String),
    /// The connection has ended.
    #[error("it is gone: {0}")]
    Gone(String),
    /// Our ends of a kernel's socket and pipe fail.
    #[error("prepare a kernel in the pod")]
    Files(#[from] io::Error),
}

/// A pod that this session has taken. Dropping it has the pod end.
pub(crate) struct PodLink {
    shared: Arc<LinkShared>,
    about: PodAbout,
    _stop: DropGuard,
}

impl PodLink {
    /// Takes the pod, which may be kept for those who know a secret.
    pub(crate) async fn take<D: PodDialer>(dialer: D, secret: Option<&LinkKey>) -> Result<Self, PodError> {
        let key = LinkKey::new();
        let mut socket = dialer.dial(socket_config()).await.map_err(PodError::Unreachable)?;
        let received =
            connect(&mut socket, &key, PodApproach::Take { secret }).await.map_err(|error| match error {
                HandshakeError::Broken(why) => PodError::Unreachable(why),
                HandshakeError::Refused(why) => PodError::Refused(why),
            })?;
        let (carrier, bytes) = LinkCarrier::new();
        let (ended_sender, ended) = watch::channel(None);
        let stop = CancellationToken::new();
        let carrying = Carrying { dialer, key, carrier, stop: stop.clone() };
        tokio::spawn(async move {
            let why = carrying.run(socket, received).await;
            tracing::debug!(why, "the connection to a pod has ended");
            ended_sender.send_replace(Some(why));
        });
        let stop = stop.drop_guard();
        let (opener, inbound) = open_streams(bytes, StreamSide::Session);
        let control = opener.open(&StreamHeader::Control).await?;
        let (mut sink, mut notices) = frames_of(control, NOTICE_BYTES).split();
        let about = match next_message(&mut notices).await? {
            Some(PodNotice::About(about)) => about,
            _ => return Err(PodError::Refused("it does not say what it is".to_owned())),
        };
        let (requests, mut outgoing) = mpsc::unbounded_channel();
        let shared = Arc::new(LinkShared::new(requests, ended));
        tokio::spawn(async move {
            // It keeps the streams open.
            let _opener = opener;
            while let Some(request) = outgoing.recv().await {
                if let Err(error) = send_message(&mut sink, &request).await {
                    tracing::debug!(%error, "could not send to a pod");
                    return;
                }
            }
        });
        tokio::spawn(listen(Arc::clone(&shared), notices));
        tokio::spawn(accept(Arc::clone(&shared), inbound));
        Ok(Self { shared, about, _stop: stop })
    }

    /// The kernels' surroundings there.
    pub(crate) fn about(&self) -> &PodAbout {
        &self.about
    }

    /// Why it cannot be used any more, if so.
    pub(crate) fn end(&self) -> Option<String> {
        self.shared.end()
    }

    /// Has a kernel started, with these as its socket and its output, and this as its first message.
    pub(crate) fn start_kernel(
        &self,
        environment: BTreeMap<String, String>,
        configuration: serde_json::Value,
        socket: OwnedFd,
        output: OwnedFd,
    ) -> Result<PodControl, PodError> {
        let control = PodControl::of_new_kernel(&self.shared, socket, output)?;
        self.shared.request(PodRequest::Start { kernel: control.kernel, environment, configuration });
        Ok(control)
    }

    /// Has the pod listen for calls to this tool server, and returns the port on its loopback interface.
    pub(crate) async fn listen_for(&self, tool_server: SocketAddr) -> Result<u16, PodError> {
        let port = self.shared.listen_for(tool_server);
        self.shared.answer(port).await.map_err(|LinkGone(why)| PodError::Gone(why))
    }

    /// Has the pod end, and waits until it has heard that.
    pub(crate) async fn leave(self) {
        self.shared.request(PodRequest::Leave);
        if tokio::time::timeout(LEAVE_TIME, self.shared.until_ended()).await.is_err() {
            tracing::debug!("a pod does not say that it ends");
        }
    }
}

async fn listen(
    shared: Arc<LinkShared>,
    mut notices: impl futures::Stream<Item = io::Result<bytes::BytesMut>> + Unpin,
) {
    loop {
        match next_message(&mut notices).await {
            Ok(Some(notice)) => shared.take_notice(notice),
            Ok(None) => return,
            Err(error) => return tracing::warn!(%error, "a pod does not speak as it should"),
        }
    }
}

async fn accept(shared: Arc<LinkShared>, mut inbound: mpsc::Receiver<yamux::Stream>) {
    while let Some(stream) = inbound.recv().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let carried = match read_header(stream).await {
                Ok((header, stream)) => shared.carry(header, stream).await,
                Err(error) => Err(error),
            };
            if let Err(error) = carried {
                tracing::debug!(%error, "a stream of a pod has ended");
            }
        });
    }
}

/// The task that carries the connection over one WebSocket after the other.
struct Carrying<D: PodDialer> {
    dialer: D,
    key: LinkKey,
    carrier: LinkCarrier,
    stop: CancellationToken,
}

impl<D: PodDialer> Carrying<D> {
    /// Carries until the end, and returns its reason.
    async fn run(mut self, mut socket: CarriedSocket<D::Stream>, mut received_there: u64) -> String {
        loop {
            let end = tokio::select! {
                end = self.carrier.carry(socket, received_there) => end,
                () = self.stop.cancelled() => CarryEnd::Finished,
            };
            match end {
                CarryEnd::Finished => return "the pod was left".to_owned(),
                CarryEnd::Impossible(why) => return format!("the connection to the pod is damaged: {why}"),
                CarryEnd::Broken(why) => {
                    tracing::debug!(why, "the connection to a pod is broken");
                    let again = tokio::select! {
                        again = self.reconnect(why) => again,
                        () = self.stop.cancelled() => return "the pod was left".to_owned(),
                    };
                    match again {
                        Ok((new, received)) => (socket, received_there) = (new, received),
                        Err(why) => return why,
                    }
                }
            }
        }
    }

    async fn reconnect(&self, why: String) -> Result<(CarriedSocket<D::Stream>, u64), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        let mut why = why;
        while Instant::now() < deadline {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            match tokio::time::timeout_at(deadline, self.dialer.dial(socket_config())).await {
                Ok(Ok(mut socket)) => {
                    match connect(
                        &mut socket,
                        &self.key,
                        PodApproach::Resume { received: self.carrier.received() },
                    )
                    .await
                    {
                        Ok(received) => return Ok((socket, received)),
                        Err(HandshakeError::Refused(why)) => return Err(why),
                        Err(HandshakeError::Broken(new)) => why = new,
                    }
                }
                Ok(Err(new)) => why = new,
                Err(_) => break,
            }
            // Whoever could say so may be away itself.
            if let Ok(Some(gone)) = tokio::time::timeout(pause, self.dialer.gone()).await {
                return Err(gone);
            }
        }
        Err(format!("the pod could not be reached again for {} seconds: {why}", PATIENCE.as_secs()))
    }
}
