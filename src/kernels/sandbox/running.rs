//! A sandbox that runs: its process on this side, and what the gateway inside does for us.

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::bwrap::{ExpectedMounts, ProcView};
use super::channel::GatewayChannel;
use super::error::{Error, SandboxEnd};
use super::hardening::HardeningReport;
use super::kernel_control::{BranchInside, GatewayRequests, KernelControl, ReportedKernelState};
use super::mount_points::MountPoints;
use super::mount_table::MountTable;
use super::protocol::{
    GatewayConfiguration, GatewayNotice, GatewayRequest, HostService, KernelProgram, SandboxProgram,
};
use super::proxy::Proxy;
use crate::ground::process::{GroupLeader, OutputTail, family};

/// The time that the inside is given to end after it has been asked to, before each stronger means.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The time that the last words of a sandbox are awaited: processes that it left may hold the pipe.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A running sandbox. Dropping it ends it, in the background.
pub(crate) struct Sandbox {
    requests: GatewayRequests,
    inside: Arc<Mutex<RunningInside>>,
    /// The name of what is started next.
    next: AtomicU64,
    listeners: BTreeMap<HostService, TcpListener>,
    report: HardeningReport,
    stop: CancellationToken,
    ended: watch::Receiver<Option<SandboxEnd>>,
    /// The number of branches inside.
    branches: Arc<Mutex<usize>>,
    /// The way out of its network.
    proxy: Option<Proxy>,
    /// The files that its mounts are on.
    mount_points: Option<MountPoints>,
    proc: ProcView,
}

/// Compares the mounts of all processes that `made_by` has put into other mount namespaces with those that were planned.
fn compare_mounts(made_by: u32, expected: &ExpectedMounts) -> Result<(), Error> {
    let failed = |what: &str| Error::Mounts(format!("its mounts cannot be compared with the plan: {what}"));
    let read = |process: &str| {
        let table = std::fs::read(format!("/proc/{process}/mountinfo")).ok();
        table.and_then(|table| MountTable::parse(&table)).ok_or_else(|| failed("they cannot be read"))
    };
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    let own = namespace("self").map_err(|error| failed(&error.to_string()))?;
    let mut is_compared = false;
    for process in family(made_by) {
        let process = process.to_string();
        // It may have ended meanwhile.
        let Ok(namespace) = namespace(&process) else { continue };
        if namespace != own {
            let inside = read(&process)?;
            let host = read("self")?.with_root_of(&inside);
            if let Some(difference) = expected.difference(&inside, &host) {
                return Err(Error::Mounts(difference));
            }
            is_compared = true;
        }
    }
    if is_compared { Ok(()) } else { Err(failed("there is no process in the sandbox")) }
}

/// The programs in the sandbox, by name.
#[derive(Default)]
struct RunningInside {
    runs: BTreeMap<u64, oneshot::Sender<ExitStatus>>,
    kernels: BTreeMap<u64, watch::Sender<ReportedKernelState>>,
    /// Those that wait for a listener, in the order of their requests.
    listens: VecDeque<oneshot::Sender<Result<TcpListener, Error>>>,
}

impl Sandbox {
    /// Starts `command`, which makes the sandbox and runs the gateway inside with our end of a socket as its stdin, and
    /// waits until the gateway is ready. No code runs inside then, and its mounts are as `expected`.
    pub(crate) async fn start(
        mut command: Command,
        configuration: GatewayConfiguration,
        expected: Option<&ExpectedMounts>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let program = command.as_std().get_program().display().to_string();
        let (channel, inside) = GatewayChannel::pair().map_err(Error::Channel)?;
        command.stdin(Stdio::from(inside)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut leader =
            GroupLeader::spawn(&mut command).map_err(|source| Error::Spawn { program, source })?;
        // It holds the inside's end, which must close with the inside.
        drop(command);
        let (stderr, reader) = match leader.take_stderr() {
            Some(pipe) => {
                let (tail, reader) = OutputTail::follow(pipe, "sandbox".to_owned());
                (tail, Some(reader))
            }
            None => (OutputTail::default(), None),
        };
        let wanted = configuration.listeners.clone();
        let made_by = leader.id().unsigned_abs();
        let greeting = async {
            channel.send(&GatewayRequest::Configure(configuration), None).await.map_err(Error::Channel)?;
            let greeted = greet(&channel, wanted).await?;
            if let Some(expected) = expected {
                compare_mounts(made_by, expected)?;
            }
            Ok(greeted)
        };
        let greeted = tokio::select! {
            greeted = greeting => match greeted {
                // The end of the conversation is the end of the process; its status says more.
                Err(Error::Gone | Error::Channel(_)) => Err(None),
                greeted => greeted.map_err(Some),
            },
            () = tokio::time::sleep(timeout) => Err(Some(Error::Timeout { after: timeout, stderr: stderr.text() })),
            _ = leader.wait() => Err(None),
        };
        let (listeners, report) = match greeted {
            Ok(greeted) => greeted,
            Err(error) => {
                let status = end(leader, &channel).await;
                let stderr = last_words(&stderr, reader).await;
                return Err(error.unwrap_or(Error::Ended { status, stderr }));
            }
        };
        let (requests, outgoing) = mpsc::unbounded_channel();
        let inside = Arc::<Mutex<RunningInside>>::default();
        let stop = CancellationToken::new();
        let (ended_sender, ended) = watch::channel(None);
        let supervisor =
            Supervisor { channel: Arc::new(channel), inside: Arc::clone(&inside), stop: stop.clone() };
        tokio::spawn(async move {
            let status = supervisor.run(leader, outgoing).await;
            let stderr = last_words(&stderr, reader).await;
            ended_sender.send_replace(Some(SandboxEnd { status, stderr }));
        });
        let next = AtomicU64::new(0);
        let proxy = None;
        let mount_points = None;
        let branches = Arc::default();
        Ok(Self {
            requests: GatewayRequests(requests),
            inside,
            next,
            listeners,
            report,
            stop,
            ended,
            branches,
            proxy,
            mount_points,
            proc: ProcView::Own,
        })
    }

    /// The socket in the sandbox on which `service` is to be served; once.
    pub(crate) fn take_listener(&mut self, service: HostService) -> Option<TcpListener> {
        self.listeners.remove(&service)
    }

    /// Keeps what it needs on this side for as long as it runs.
    pub(super) fn keep(&mut self, proxy: Option<Proxy>, mount_points: Option<MountPoints>, proc: ProcView) {
        self.proxy = proxy;
        self.mount_points = mount_points;
        self.proc = proc;
    }

    /// The text for the user about a `/proc` that is not its own.
    pub(crate) fn note(&self) -> Option<String> {
        self.proc.note().map(str::to_owned)
    }

    /// The report of what has been locked from inside.
    pub(crate) fn report(&self) -> &HardeningReport {
        &self.report
    }

    /// A protected file that a program of the host has removed or replaced since the start, so that code can reach the new
    /// one.
    pub(crate) fn replaced(&self) -> Option<&Path> {
        self.mount_points.as_ref()?.replaced()
    }

    /// Whether it runs, and protects what a new one would protect.
    pub(crate) fn is_usable(&self) -> bool {
        let runs = self.ended.borrow().is_none() && !self.stop.is_cancelled();
        runs && self.mount_points.as_ref().is_none_or(MountPoints::are_current)
    }

    /// Has a kernel started inside, with these as its stdin and its output.
    pub(crate) fn start_kernel(
        &self,
        program: KernelProgram,
        stdin: OwnedFd,
        output: OwnedFd,
    ) -> Result<KernelControl, Error> {
        let kernel = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, state) = watch::channel(ReportedKernelState::default());
        self.inside.lock().kernels.insert(kernel, sender);
        self.requests.send(GatewayRequest::KernelOutput, Some(output))?;
        self.requests.send(GatewayRequest::StartKernel { kernel, program }, Some(stdin))?;
        Ok(KernelControl {
            kernel,
            requests: self.requests.clone(),
            state,
            heard_signals: 0,
            sandbox: self.ended.clone(),
        })
    }

    /// Counts a branch of a kernel inside.
    pub(crate) fn add_branch(&self) -> BranchInside {
        BranchInside::new(self.requests.clone(), Arc::clone(&self.branches))
    }

    /// A further socket in the sandbox, for a tool server.
    pub(crate) async fn listen(&self) -> Result<TcpListener, Error> {
        let (sender, listener) = oneshot::channel();
        {
            // The lock is held, so that the requests come in this order.
            let mut inside = self.inside.lock();
            inside.listens.push_back(sender);
            self.requests.send(GatewayRequest::Listen, None)?;
        }
        let mut ended = self.ended.clone();
        tokio::select! {
            listener = listener => listener.map_err(|_| Error::Gone)?,
            _ = ended.wait_for(Option::is_some) => Err(Error::Gone),
        }
    }

    /// Ends everything inside, whoever else uses it, and does not wait.
    pub(crate) fn abandon(&self) {
        self.stop.cancel();
    }

    /// Runs a program inside to its end; it writes into `output`. Cancelled, it goes on inside: stop the sandbox then.
    pub(crate) async fn run(&self, program: SandboxProgram, output: OwnedFd) -> Result<ExitStatus, Error> {
        let run = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, status) = oneshot::channel();
        self.inside.lock().runs.insert(run, sender);
        self.requests.send(GatewayRequest::Run { run, program }, Some(output))?;
        let mut ended = self.ended.clone();
        tokio::select! {
            status = status => status.map_err(|_| Error::Gone),
            _ = ended.wait_for(Option::is_some) => Err(Error::Gone),
        }
    }

    /// Ends everything inside, and waits until nothing is left.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        // The supervisor does not end without saying so.
        self.ended.wait_for(Option::is_some).await.ok();
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
        // Only now: what its mounts were on is removed.
        self.mount_points = None;
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The task that owns the process and the connection.
struct Supervisor {
    channel: Arc<GatewayChannel>,
    inside: Arc<Mutex<RunningInside>>,
    stop: CancellationToken,
}

impl Supervisor {
    async fn run(
        self,
        mut leader: GroupLeader,
        mut requests: mpsc::UnboundedReceiver<(GatewayRequest, Option<OwnedFd>)>,
    ) -> ExitStatus {
        let sending = {
            let channel = Arc::clone(&self.channel);
            async move {
                while let Some((request, descriptor)) = requests.recv().await {
                    if let Err(error) = channel.send(&request, descriptor.as_ref().map(|fd| fd.as_fd())).await
                    {
                        tracing::debug!(%error, "could not send to the sandbox");
                        return;
                    }
                }
                std::future::pending().await
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = sending => {}
            why = self.listen() => tracing::warn!(%why, "ending the sandbox"),
            status = leader.wait() => tracing::debug!(?status, "the sandbox has ended"),
        }
        self.stop.cancel();
        end(leader, &self.channel).await
    }

    /// Returns why the sandbox must end.
    async fn listen(&self) -> Error {
        loop {
            match self.channel.receive().await {
                Ok(Some((GatewayNotice::Ended { run, wait_status }, None))) => {
                    if let Some(sender) = self.inside.lock().runs.remove(&run) {
                        // Whoever waited has given up.
                        sender.send(ExitStatus::from_raw(wait_status)).ok();
                    }
                }
                Ok(Some((GatewayNotice::Signalled { kernel }, None))) => {
                    if let Some(state) = self.inside.lock().kernels.get(&kernel) {
                        state.send_modify(|state| state.signals += 1);
                    }
                }
                Ok(Some((GatewayNotice::KernelEnded { kernel, wait_status }, None))) => {
                    if let Some(state) = self.inside.lock().kernels.remove(&kernel) {
                        state.send_modify(|state| state.status = Some(ExitStatus::from_raw(wait_status)));
                    }
                }
                Ok(Some((GatewayNotice::Listener(HostService::Tools), Some(descriptor)))) => {
                    let Some(waiting) = self.inside.lock().listens.pop_front() else {
                        return Error::Violation("a listener that nobody has asked for".to_owned());
                    };
                    // Whoever waited may have given up.
                    waiting.send(listener(descriptor)).ok();
                }
                Ok(Some((GatewayNotice::Failed { why }, None))) => return Error::Failed(why),
                Ok(Some((notice, _))) => return Error::Violation(format!("an unexpected {notice:?}")),
                Ok(None) => return Error::Gone,
                Err(error) => return Error::Channel(error),
            }
        }
    }
}

/// Takes the listeners and the report that the gateway begins with.
async fn greet(
    channel: &GatewayChannel,
    mut wanted: BTreeMap<HostService, u16>,
) -> Result<(BTreeMap<HostService, TcpListener>, HardeningReport), Error> {
    let mut listeners = BTreeMap::new();
    loop {
        match channel.receive().await.map_err(Error::Channel)? {
            Some((GatewayNotice::Listener(service), Some(descriptor)))
                if wanted.remove(&service).is_some() =>
            {
                listeners.insert(service, listener(descriptor)?);
            }
            Some((GatewayNotice::Ready(report), None)) if wanted.is_empty() => {
                return Ok((listeners, report));
            }
            Some((GatewayNotice::Failed { why }, None)) => return Err(Error::Failed(why)),
            Some((notice, _)) => return Err(Error::Violation(format!("an unexpected {notice:?}"))),
            None => return Err(Error::Gone),
        }
    }
}

/// The descriptor as what it has to be: a TCP socket that listens.
fn listener(descriptor: OwnedFd) -> Result<TcpListener, Error> {
    if !is_listener(&descriptor).unwrap_or(false) {
        return Err(Error::Violation("a descriptor that is no listening TCP socket".to_owned()));
    }
    let listener = TcpListener::from(descriptor);
    listener.set_nonblocking(true).map_err(Error::Channel)?;
    Ok(listener)
}

#[cfg(target_os = "linux")]
fn is_listener(descriptor: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(sockopt::socket_domain(descriptor)? == AddressFamily::INET
        && sockopt::socket_type(descriptor)? == SocketType::STREAM
        && sockopt::socket_protocol(descriptor)? == Some(rustix::net::ipproto::TCP)
        && sockopt::socket_acceptconn(descriptor)?)
}

/// The system says less about a socket: that it does not listen shows when something is to be accepted.
#[cfg(not(target_os = "linux"))]
fn is_listener(descriptor: &OwnedFd) -> rustix::io::Result<bool> {
    let is_inet = rustix::net::getsockname(descriptor)?.address_family() == AddressFamily::INET;
    Ok(is_inet && sockopt::socket_type(descriptor)? == SocketType::STREAM)
}

/// Ends a sandbox from inside first: its own program cleans up only when what it runs has ended.
async fn end(mut leader: GroupLeader, channel: &GatewayChannel) -> ExitStatus {
    channel.close();
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        if let Some(signal) = signal {
            leader.signal(signal);
        }
        match tokio::time::timeout(STOP_GRACE, leader.wait()).await {
            Ok(Ok(status)) => return status,
            Ok(Err(error)) => tracing::warn!(%error, "could not wait for the sandbox"),
            Err(_) => tracing::warn!(?signal, "the sandbox does not end"),
        }
    }
    // It could not be reaped; the kernel reaps it with us.
    ExitStatus::from_raw(Signal::KILL.as_raw())
}

/// The end of what was written to stderr.
async fn last_words(stderr: &OutputTail, reader: Option<tokio::task::JoinHandle<()>>) -> String {
    if let Some(mut reader) = reader {
        // Past that, whoever holds the pipe has nothing to do with the end.
        tokio::time::timeout(LAST_WORDS, &mut reader).await.ok();
        reader.abort();
    }
    stderr.text()
}
