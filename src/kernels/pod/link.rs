//! The session's side of a pod's connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::bridge::{SocketBridge, carry_output};
use super::carrier::{CarriedSocket, CarryEnd, LinkCarrier, socket_config};
use super::control::{ForkedProcess, PodControl, PodKernelEnd, PodKernelState};
use super::handshake::{HandshakeError, LinkKey, connect};
use super::protocol::{PodAbout, PodNotice, PodRequest, StreamHeader};
use super::streams::{
    PodStream, StreamSide, frames_of, next_message, open_streams, read_header, send_message,
};

/// The longest notice of a pod, in bytes.
const NOTICE_BYTES: usize = 64 * 1024;
/// The time that a broken connection may take to come back, before the pod counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first and the longest pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// The time that a pod may take to read that it is left.
const LEAVE_TIME: Duration = Duration::from_secs(1);
/// The streams of a kernel: its socket and its output.
const STREAMS_OF_KERNEL: u32 = 2;

/// Opens WebSockets to a pod.
pub(crate) trait PodDialer: Send + Sync + 'static {
    /// What they are carried by.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Opens one, or says why not.
    fn dial(&self, config: WebSocketConfig) -> BoxFuture<'_, Result<CarriedSocket<Self::Stream>, String>>;
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

/// The part of a connection that its kernels use too.
pub(super) struct LinkShared {
    requests: mpsc::UnboundedSender<PodRequest>,
    next: AtomicU64,
    inside: Mutex<PodInside>,
    /// Why the connection has ended, if it has.
    ended: watch::Receiver<Option<String>>,
}

/// The state of what runs in a pod, by its number.
#[derive(Default)]
struct PodInside {
    kernels: BTreeMap<u64, KernelInPod>,
    /// The tool servers that the pod's listeners stand for.
    listeners: BTreeMap<u64, SocketAddr>,
    listening: BTreeMap<u64, oneshot::Sender<u16>>,
    questions: BTreeMap<u64, oneshot::Sender<Option<u64>>>,
}

struct KernelInPod {
    state: watch::Sender<PodKernelState>,
    /// Until its stream comes.
    socket: Option<SocketBridge>,
    output: Option<OwnedFd>,
    /// Has a permit for each stream that has ended.
    streams: Arc<Semaphore>,
}

impl PodLink {
    /// Takes the pod.
    pub(crate) async fn take<D: PodDialer>(dialer: D) -> Result<Self, PodError> {
        let key = LinkKey::new();
        let mut socket = dialer.dial(socket_config()).await.map_err(PodError::Unreachable)?;
        let received = connect(&mut socket, &key, None).await.map_err(|error| match error {
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
        let shared =
            Arc::new(LinkShared { requests, next: AtomicU64::new(1), inside: Mutex::default(), ended });
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
        let control = self.shared.add_kernel(socket, output)?;
        self.shared.request(PodRequest::Start { kernel: control.kernel, environment, configuration });
        Ok(control)
    }

    /// Has the pod listen for calls to this tool server, and returns the port on its loopback interface.
    pub(crate) async fn listen_for(&self, tool_server: SocketAddr) -> Result<u16, PodError> {
        let listener = self.shared.number();
        let (sender, port) = oneshot::channel();
        {
            let mut inside = self.shared.inside.lock();
            inside.listeners.insert(listener, tool_server);
            inside.listening.insert(listener, sender);
        }
        self.shared.request(PodRequest::Listen { listener });
        self.shared.answer(port).await
    }

    /// Has the pod end, and waits until it has heard that.
    pub(crate) async fn leave(self) {
        self.shared.request(PodRequest::Leave);
        if tokio::time::timeout(LEAVE_TIME, self.shared.until_ended()).await.is_err() {
            tracing::debug!("a pod does not say that it ends");
        }
    }
}

impl LinkShared {
    /// Fails only if the connection has ended, which all who wait for something find out.
    pub(super) fn request(&self, request: PodRequest) {
        self.requests.send(request).ok();
    }

    /// Why the connection has ended, if it has.
    pub(super) fn end(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Waits for the end of the connection, which always comes with its reason.
    pub(super) async fn until_ended(&self) {
        let mut ended = self.ended.clone();
        drop(ended.wait_for(Option::is_some).await);
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for an answer, or the end.
    async fn answer<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, PodError> {
        tokio::select! {
            answer = answer => answer.map_err(|_| PodError::Gone("it does not answer".to_owned())),
            () = self.until_ended() => Err(PodError::Gone(self.end().unwrap_or_default())),
        }
    }

    /// Adds a kernel with its ends of a socket and a pipe, before it exists.
    pub(super) fn add_kernel(self: &Arc<Self>, socket: OwnedFd, output: OwnedFd) -> io::Result<PodControl> {
        let kernel = self.number();
        let (forks, forks_of_bridge) = mpsc::unbounded_channel();
        let (sender, state) = watch::channel(PodKernelState::default());
        let inside = KernelInPod {
            state: sender,
            socket: Some(SocketBridge::new(socket, forks_of_bridge)?),
            output: Some(output),
            streams: Arc::new(Semaphore::new(0)),
        };
        self.inside.lock().kernels.insert(kernel, inside);
        Ok(PodControl { kernel, link: Arc::clone(self), state, heard_signals: 0, forks })
    }

    pub(super) fn forget_kernel(&self, kernel: u64) {
        self.inside.lock().kernels.remove(&kernel);
    }

    pub(super) async fn measure(&self, forks: Vec<u32>, origin: Option<u32>) -> Option<u64> {
        let question = self.number();
        let (sender, answer) = oneshot::channel();
        self.inside.lock().questions.insert(question, sender);
        self.request(PodRequest::Measure { question, forks, origin });
        self.answer(answer).await.ok().flatten()
    }

    fn change(&self, kernel: u64, change: impl FnOnce(&mut PodKernelState)) {
        if let Some(kernel) = self.inside.lock().kernels.get(&kernel) {
            kernel.state.send_modify(change);
        }
    }

    /// Records the end of a kernel when all that it has written has been passed on.
    fn kernel_ended(self: &Arc<Self>, kernel: u64, end: PodKernelEnd) {
        let streams = match self.inside.lock().kernels.get(&kernel) {
            Some(kernel) => Arc::clone(&kernel.streams),
            None => return,
        };
        let link = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                _ = streams.acquire_many(STREAMS_OF_KERNEL) => {}
                () = link.until_ended() => {}
            }
            link.change(kernel, |state| state.ended = Some(end));
        });
    }

    fn take_notice(self: &Arc<Self>, notice: PodNotice) {
        match notice {
            // Once is enough.
            PodNotice::About(_) => {}
            PodNotice::Listening { listener, port } => {
                if let Some(sender) = self.inside.lock().listening.remove(&listener) {
                    // Who waited may have given up.
                    sender.send(port).ok();
                }
            }
            PodNotice::NotStarted { kernel, why } => {
                let why = crate::ground::text::visible::line(&why);
                self.change(kernel, |state| state.ended = Some(PodKernelEnd::NotStarted(why)));
            }
            PodNotice::Forked { kernel, process, origin } => {
                self.change(kernel, |state| state.fork = Some(ForkedProcess { process, origin }));
            }
            PodNotice::NotForked { kernel } => {
                self.change(kernel, |state| state.ended = Some(PodKernelEnd::Unknown));
            }
            PodNotice::Signalled { kernel } => self.change(kernel, |state| state.signals += 1),
            PodNotice::Ended { kernel, wait_status } => {
                self.kernel_ended(kernel, PodKernelEnd::of(wait_status));
            }
            PodNotice::Measured { question, bytes } => {
                if let Some(sender) = self.inside.lock().questions.remove(&question) {
                    // Who waited may have given up.
                    sender.send(bytes).ok();
                }
            }
        }
    }

    /// Carries a stream that the pod has opened, if there is something that it belongs to.
    async fn carry(self: Arc<Self>, header: StreamHeader, stream: PodStream) -> io::Result<()> {
        match header {
            StreamHeader::Socket { kernel } => {
                let taken = self
                    .inside
                    .lock()
                    .kernels
                    .get_mut(&kernel)
                    .and_then(|kernel| Some((kernel.socket.take()?, Arc::clone(&kernel.streams))));
                let Some((bridge, streams)) = taken else { return Ok(()) };
                let done = bridge.carry(stream).await;
                streams.add_permits(1);
                done
            }
            StreamHeader::Output { kernel } => {
                let taken = self
                    .inside
                    .lock()
                    .kernels
                    .get_mut(&kernel)
                    .and_then(|kernel| Some((kernel.output.take()?, Arc::clone(&kernel.streams))));
                let Some((pipe, streams)) = taken else { return Ok(()) };
                let done = carry_output(stream, pipe).await;
                streams.add_permits(1);
                done
            }
            StreamHeader::Tools { listener } => {
                let Some(server) = self.inside.lock().listeners.get(&listener).copied() else {
                    return Ok(());
                };
                let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).await?;
                connection.set_nodelay(true)?;
                let mut stream = stream;
                tokio::io::copy_bidirectional(&mut stream, &mut connection).await?;
                Ok(())
            }
            // Only we open it.
            StreamHeader::Control => Ok(()),
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
                    match connect(&mut socket, &self.key, Some(self.carrier.received())).await {
                        Ok(received) => return Ok((socket, received)),
                        Err(HandshakeError::Refused(why)) => return Err(why),
                        Err(HandshakeError::Broken(new)) => why = new,
                    }
                }
                Ok(Err(new)) => why = new,
                Err(_) => break,
            }
        }
        Err(format!("the pod could not be reached again for {} seconds: {why}", PATIENCE.as_secs()))
    }
}
