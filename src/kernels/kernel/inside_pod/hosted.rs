//! The kernels of a pod: started, signalled and watched as the session asks.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::death::DeathManner;
use super::super::endpoints::KernelEndpoints;
use super::super::fork::SilentFork;
use super::super::frames::framed;
use super::super::gateway::LeftoverProcesses;
use super::super::holder::{HolderNews, KernelHolder};
use super::super::launch::{KernelConfiguration, KernelProcess};
use super::forking::{GreetedFork, PassedFork};
use super::modules_directory;
use super::pumps::{KernelPumps, PumpedEndpoints};
use super::warm::WarmTemplate;
use crate::ground::process::memory_of_forks;
use crate::ground::text::describe;
use crate::kernels::pod::{
    PodAbout, PodNotice, PodRequest, StreamHeader, StreamOpener, frames_of, next_message, read_header,
    send_message,
};
use crate::kernels::sandbox::KernelProgram;

/// The longest request, in bytes: it has the variables of a kernel.
const REQUEST_BYTES: usize = 16 * 1024 * 1024;
const PYTHONPATH: &str = "PYTHONPATH";
/// The session's own time for a start is shorter.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// The kernels of a pod.
pub(super) struct HostedKernels {
    surroundings: PodSurroundings,
    warm: WarmTemplate,
    opener: StreamOpener,
    notices: mpsc::UnboundedSender<PodNotice>,
    kernels: Mutex<BTreeMap<u64, mpsc::UnboundedSender<Signal>>>,
}

/// The surroundings of kernels.
pub(super) struct PodSurroundings {
    pub(super) about: PodAbout,
    /// The variables of the container.
    pub(super) environment: BTreeMap<String, String>,
    /// The processes of the container before any kernel's, if it is one.
    pub(super) leftovers: Option<LeftoverProcesses>,
}

/// The process of a kernel, with the variables of the container and those of the session.
pub(super) fn program(
    about: &PodAbout,
    container: &BTreeMap<String, String>,
    wanted: BTreeMap<String, String>,
) -> KernelProgram {
    let mut environment = container.clone();
    environment.extend(wanted);
    let modules = modules_directory(&about.private_directory).display().to_string();
    let users = environment.get(PYTHONPATH).filter(|path| !path.is_empty());
    let path = users.map_or_else(|| modules.clone(), |users| format!("{modules}:{users}"));
    environment.insert(PYTHONPATH.to_owned(), path);
    KernelProgram {
        python: about.python.clone(),
        working_directory: about.workspace.clone(),
        environment,
        private_directory: about.private_directory.clone(),
    }
}

impl HostedKernels {
    /// Obeys the session, which opens a stream for its requests, until it leaves.
    pub(super) async fn serve(
        surroundings: PodSurroundings,
        warm: WarmTemplate,
        opener: StreamOpener,
        mut inbound: mpsc::Receiver<yamux::Stream>,
    ) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (StreamHeader::Control, control) = read_header(inbound.recv().await.ok_or_else(gone)?).await?
        else {
            return Err(io::Error::other("the session does not speak as it should"));
        };
        let (mut sink, mut requests) = frames_of(control, REQUEST_BYTES).split();
        let (notices, mut outgoing) = mpsc::unbounded_channel();
        let about = PodNotice::About(surroundings.about.clone());
        let host = Arc::new(Self { surroundings, warm, opener, notices, kernels: Mutex::default() });
        host.notify(about);
        let saying = async {
            while let Some(notice) = outgoing.recv().await {
                send_message(&mut sink, &notice).await?;
            }
            Ok(())
        };
        let hearing = async {
            while let Some(request) = next_message(&mut requests).await? {
                match request {
                    PodRequest::Leave => return Ok(()),
                    request => host.obey(request),
                }
            }
            Ok(())
        };
        tokio::select! {
            said = saying => said,
            heard = hearing => heard,
        }
    }

    fn notify(&self, notice: PodNotice) {
        // Fails only if the session has left.
        self.notices.send(notice).ok();
    }

    fn obey(self: &Arc<Self>, request: PodRequest) {
        match request {
            PodRequest::Start { kernel, environment, configuration } => {
                self.start(kernel, environment, configuration);
            }
            PodRequest::Signal { kernel, signal } => {
                if let (Some(signals), Some(signal)) =
                    (self.kernels.lock().get(&kernel), Signal::from_named_raw(signal))
                {
                    // The kernel is gone: there is nothing to signal.
                    signals.send(signal).ok();
                }
            }
            PodRequest::Listen { listener } => {
                let host = Arc::clone(self);
                tokio::spawn(async move {
                    if let Err(error) = host.listen(listener).await {
                        tracing::error!(%error, "cannot listen for tool calls");
                    }
                });
            }
            PodRequest::Measure { question, forks, origin } => {
                let host = Arc::clone(self);
                tokio::task::spawn_blocking(move || {
                    let bytes = memory_of_forks(&forks, origin);
                    host.notify(PodNotice::Measured { question, bytes });
                });
            }
            PodRequest::Leave => {}
        }
    }

    fn start(
        self: &Arc<Self>,
        kernel: u64,
        environment: BTreeMap<String, String>,
        configuration: serde_json::Value,
    ) {
        let host = Arc::clone(self);
        let signals = self.add(kernel);
        tokio::spawn(async move {
            let configuration = serde_json::from_value(configuration).map_err(|error| error.to_string());
            let ran = match configuration {
                Ok(configuration) => host.run_new(kernel, environment, configuration, signals).await,
                Err(why) => Err(why),
            };
            if let Err(why) = ran {
                host.kernels.lock().remove(&kernel);
                host.notify(PodNotice::NotStarted { kernel, why });
            }
        });
    }

    /// Counts a kernel, whose signals come from now on.
    fn add(&self, kernel: u64) -> mpsc::UnboundedReceiver<Signal> {
        let (sender, signals) = mpsc::unbounded_channel();
        self.kernels.lock().insert(kernel, sender);
        signals
    }

    async fn run_new(
        self: &Arc<Self>,
        kernel: u64,
        environment: BTreeMap<String, String>,
        configuration: KernelConfiguration,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Result<(), String> {
        let launch = configuration.launch(
            program(&self.surroundings.about, &self.surroundings.environment, environment),
            START_TIMEOUT,
        );
        if let Some(SilentFork { holder, socket, pipe }) = self.warm.fork(&launch, &configuration.mark).await
        {
            self.run(kernel, holder, PumpedEndpoints { socket, pipe }, signals).await;
            return Ok(());
        }
        let failed = |error: &dyn std::error::Error| describe(error).to_string();
        let KernelEndpoints { socket, pipe, their_socket, their_pipe } =
            KernelEndpoints::open().map_err(|error| failed(&error))?;
        let process = KernelProcess::start(&launch.program, &[], their_socket, their_pipe)
            .map_err(|error| failed(&error))?;
        let mut socket = socket;
        let message = framed("configure", "", &json!(configuration)).map_err(|error| failed(&error))?;
        socket.write_all(&message).await.map_err(|error| failed(&error))?;
        let endpoints = PumpedEndpoints { socket, pipe };
        self.run(kernel, KernelHolder::Us(process), endpoints, signals).await;
        Ok(())
    }

    /// Greets a fork and watches it as [`run`](Self::run) does, in whose type it would contain itself.
    fn run_fork(self: Arc<Self>, mut fork: PassedFork) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let kernel = fork.kernel;
            let signals = self.add(kernel);
            let greeted = match fork.greet().await {
                Ok(greeted) => greeted,
                Err(error) => {
                    tracing::debug!(%error, "there is no fork");
                    self.kernels.lock().remove(&kernel);
                    return self.notify(PodNotice::NotForked { kernel });
                }
            };
            let GreetedFork { holder, process, origin } = greeted;
            self.notify(PodNotice::Forked { kernel, process, origin });
            let endpoints = PumpedEndpoints { socket: fork.socket, pipe: fork.pipe };
            self.run(kernel, holder, endpoints, signals).await;
        })
    }

    /// Watches a kernel until it has ended, and all that it has written has been sent.
    async fn run(
        self: &Arc<Self>,
        kernel: u64,
        mut holder: KernelHolder,
        endpoints: PumpedEndpoints,
        mut signals: mpsc::UnboundedReceiver<Signal>,
    ) {
        let ended = CancellationToken::new();
        let (passed, mut forks) = mpsc::unbounded_channel();
        let opener = self.opener.clone();
        let pumps = KernelPumps { kernel, opener, forks: passed, ended: ended.clone() };
        let pumping = tokio::spawn(pumps.carry(endpoints));
        let manner = loop {
            tokio::select! {
                Some(signal) = signals.recv() => {
                    holder.signal(signal);
                    self.notify(PodNotice::Signalled { kernel });
                }
                Some(fork) = forks.recv() => {
                    tokio::spawn(Arc::clone(self).run_fork(fork));
                }
                news = holder.news() => match news {
                    Ok(HolderNews::Ended(manner)) => break manner,
                    Ok(HolderNews::Signalled) => {}
                    Err(error) => {
                        tracing::error!(error = %describe(&error), "could not wait for a kernel");
                        break DeathManner::Unknown;
                    }
                },
            }
        };
        // What it started goes with it.
        holder.signal(Signal::KILL);
        drop(holder);
        ended.cancel();
        if let Err(error) = pumping.await {
            tracing::error!(%error, "the task that sends a kernel's output has failed");
        }
        let is_last = {
            let mut kernels = self.kernels.lock();
            kernels.remove(&kernel);
            kernels.is_empty()
        };
        if is_last {
            self.kill_leftovers().await;
        }
        let wait_status = match manner {
            DeathManner::Process(status) => Some(status.into_raw()),
            DeathManner::Remote(_) | DeathManner::Unknown => None,
        };
        self.notify(PodNotice::Ended { kernel, wait_status });
    }

    /// Kills what kernels have left, where no other processes are.
    async fn kill_leftovers(&self) {
        let Some(leftovers) = &self.surroundings.leftovers else { return };
        if let Err(left) = leftovers.kill(|| self.kernels.lock().is_empty()).await {
            tracing::error!(?left, "a kernel has left processes that cannot be killed");
        }
    }

    /// Takes connections of code that calls tools, and passes each on in a stream.
    async fn listen(self: Arc<Self>, listener: u64) -> io::Result<()> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = socket.local_addr()?.port();
        self.notify(PodNotice::Listening { listener, port });
        loop {
            let (connection, _) = socket.accept().await?;
            let host = Arc::clone(&self);
            tokio::spawn(async move {
                if let Err(error) = host.pass_on(listener, connection).await {
                    tracing::debug!(%error, "a connection to the tool server has ended");
                }
            });
        }
    }

    async fn pass_on(&self, listener: u64, mut connection: TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut stream = self.opener.open(&StreamHeader::Tools { listener }).await?;
        tokio::io::copy_bidirectional(&mut connection, &mut stream).await?;
        Ok(())
    }
}
