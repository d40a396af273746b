//! The part of a pod's connection that its kernels use too: which kernels, listeners and questions there are, by number.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::bridge::{SocketBridge, carry_output};
use super::kernel_state::{ForkedProcess, PodKernelEnd, PodKernelState};
use super::protocol::{PodForkRequest, PodNotice, PodRequest, StreamHeader};
use super::streams::PodStream;

/// The streams of a kernel: its socket and its output.
const STREAMS_OF_KERNEL: u32 = 2;

/// The connection has ended: why.
pub(super) struct LinkGone(pub(super) String);

/// A kernel that the pod does not know yet.
pub(super) struct AddedKernel {
    pub(super) kernel: u64,
    pub(super) state: watch::Receiver<PodKernelState>,
    pub(super) forks: mpsc::UnboundedSender<PodForkRequest>,
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

impl LinkShared {
    pub(super) fn new(
        requests: mpsc::UnboundedSender<PodRequest>,
        ended: watch::Receiver<Option<String>>,
    ) -> Self {
        Self { requests, next: AtomicU64::new(1), inside: Mutex::default(), ended }
    }

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

    /// Has the pod listen for calls to a tool server. Its port comes from what is returned.
    pub(super) fn listen_for(&self, tool_server: SocketAddr) -> oneshot::Receiver<u16> {
        let listener = self.number();
        let (sender, port) = oneshot::channel();
        {
            let mut inside = self.inside.lock();
            inside.listeners.insert(listener, tool_server);
            inside.listening.insert(listener, sender);
        }
        self.request(PodRequest::Listen { listener });
        port
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for an answer, or the end.
    pub(super) async fn answer<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, LinkGone> {
        tokio::select! {
            answer = answer => answer.map_err(|_| LinkGone("it does not answer".to_owned())),
            () = self.until_ended() => Err(LinkGone(self.end().unwrap_or_default())),
        }
    }

    /// Adds a kernel with its ends of a socket and a pipe, before it exists.
    pub(super) fn add_kernel(&self, socket: OwnedFd, output: OwnedFd) -> io::Result<AddedKernel> {
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
        Ok(AddedKernel { kernel, state, forks })
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

    pub(super) fn take_notice(self: &Arc<Self>, notice: PodNotice) {
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

    /// Takes an end of a kernel that its stream belongs to, once, with the count of its streams that have ended.
    fn take_end<T>(
        &self,
        kernel: u64,
        take: impl FnOnce(&mut KernelInPod) -> Option<T>,
    ) -> Option<(T, Arc<Semaphore>)> {
        let mut inside = self.inside.lock();
        let kernel = inside.kernels.get_mut(&kernel)?;
        Some((take(kernel)?, Arc::clone(&kernel.streams)))
    }

    /// Carries a stream that the pod has opened, if there is something that it belongs to.
    pub(super) async fn carry(self: Arc<Self>, header: StreamHeader, stream: PodStream) -> io::Result<()> {
        match header {
            StreamHeader::Socket { kernel } => {
                let Some((bridge, ended)) = self.take_end(kernel, |ends| ends.socket.take()) else {
                    return Ok(());
                };
                let done = bridge.carry(stream).await;
                ended.add_permits(1);
                done
            }
            StreamHeader::Output { kernel } => {
                let Some((pipe, ended)) = self.take_end(kernel, |ends| ends.output.take()) else {
                    return Ok(());
                };
                let done = carry_output(stream, pipe).await;
                ended.add_permits(1);
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
