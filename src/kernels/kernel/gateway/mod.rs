//! The small process that runs *inside* a sandbox: it locks itself in, starts kernels and programs, and connects them
//! with the host.
//!
//! Its stdin is the only connection to the host. It sends the host sockets that listen in the sandbox's own
//! network, and receives sockets and pipes for each process that it starts. It decides nothing: the host
//! decides what may run, and which hosts can be reached. It passes a kernel's socket and pipe on, and reads
//! neither.

mod leftovers;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitCode, Stdio};
use std::rc::Rc;

use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

pub(super) use self::leftovers::LeftoverProcesses;
use super::launch::KernelProcess;
use crate::ground::process::GroupLeader;
use crate::ground::text::describe;
use crate::kernels::sandbox::{
    GatewayChannel, GatewayConfiguration, GatewayNotice, GatewayRequest, Hardening, HostService,
    KernelProgram, SandboxProgram,
};

/// Why the gateway cannot work.
#[derive(Debug, thiserror::Error)]
enum GatewayError {
    #[error("speak to the host")]
    Channel(#[from] io::Error),
    #[error("begin: the host did not say how")]
    NotConfigured,
    #[error(
        "work for ipybox {host}: this is ipybox {}\nhint: the program in the sandbox must be of the same version",
        env!("CARGO_PKG_VERSION")
    )]
    Version { host: String },
    #[error("harden the sandbox: {0}")]
    Hardening(String),
    #[error("listen on port {port} in the sandbox")]
    Listen { port: u16, source: io::Error },
    #[error("clear up after a kernel")]
    Leftovers,
    #[error("obey: an unexpected request")]
    Unexpected,
}

/// Runs the gateway until the host closes the connection.
pub fn run() -> ExitCode {
    let done = inherited().map_err(GatewayError::Channel).and_then(|descriptor| {
        // One thread: restrictions hold for the thread that applies them, and for those that it starts.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(LocalSet::new().run_until(serve(descriptor)))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("failed to {}", describe(&error));
            ExitCode::FAILURE
        }
    }
}

/// Restricts itself like a kernel, and becomes the program.
///
/// Returns why that failed.
pub fn exec(hardening: &str, program: &OsString, arguments: &[OsString]) -> io::Result<Infallible> {
    let hardening: Hardening = serde_json::from_str(hardening)?;
    hardening.apply_to_kernel().map_err(io::Error::other)?;
    Err(std::process::Command::new(program).args(arguments).exec())
}

/// Moves the connection away from stdin, which children would inherit.
fn inherited() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    let descriptor = rustix::io::fcntl_dupfd_cloexec(&stdin, 3)?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(descriptor)
}

async fn serve(descriptor: OwnedFd) -> Result<(), GatewayError> {
    let channel = Rc::new(GatewayChannel::from_inherited(descriptor)?);
    let Some((GatewayRequest::Configure(configuration), None)) = channel.receive().await? else {
        return Err(GatewayError::NotConfigured);
    };
    let gateway = match begin(&channel, configuration).await {
        Ok(gateway) => gateway,
        Err(error) => {
            let why = describe(&error).to_string();
            channel.send(&GatewayNotice::Failed { why }, None).await?;
            return Err(error);
        }
    };
    gateway.obey(channel).await
}

async fn begin(
    channel: &GatewayChannel,
    configuration: GatewayConfiguration,
) -> Result<Gateway, GatewayError> {
    let GatewayConfiguration { version, hardening, is_complete_hardening_required, listeners } =
        configuration;
    if version != env!("CARGO_PKG_VERSION") {
        return Err(GatewayError::Version { host: version });
    }
    // Away from the terminal that the server may have been started from. It fails for the leader of a group only, and
    // then there is no terminal to keep.
    rustix::process::setsid().ok();
    let listeners: Vec<(HostService, TcpListener)> = listeners
        .into_iter()
        .map(|(service, port)| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
            Ok((service, listener.map_err(|source| GatewayError::Listen { port, source })?))
        })
        .collect::<Result<_, GatewayError>>()?;
    let report = hardening.apply_to_gateway().map_err(|error| GatewayError::Hardening(error.to_string()))?;
    if is_complete_hardening_required && !report.is_complete() {
        return Err(GatewayError::Hardening(format!("{report}")));
    }
    let mut proxy_port = None;
    for (service, listener) in &listeners {
        if *service == HostService::Proxy {
            proxy_port = Some(listener.local_addr()?.port());
        }
        channel.send(&GatewayNotice::Listener(*service), Some(listener.as_fd())).await?;
    }
    channel.send(&GatewayNotice::Ready(report), None).await?;
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    environment.extend(proxy_port.map(crate::kernels::sandbox::proxy_environment).into_iter().flatten());
    let wrapper = wrapper(&hardening)?;
    Ok(Gateway {
        environment,
        wrapper,
        wraps_all: hardening.readable.is_some(),
        leftovers: Rc::new(LeftoverProcesses::found()),
        kernel_output: None,
        kernels: BTreeMap::new(),
        living: Rc::default(),
        stop: CancellationToken::new(),
    })
}

/// The wrapper at the beginning of a kernel's command line.
fn wrapper(hardening: &Hardening) -> io::Result<Vec<OsString>> {
    let hardening = serde_json::to_string(hardening)?;
    Ok(vec![std::env::current_exe()?.into(), "sandbox-exec".into(), hardening.into(), "--".into()])
}

/// The number of kernels that run. As long as there is one, nobody can tell which kernel a process has come from.
#[derive(Default)]
struct LivingKernels {
    /// Those that the gateway has started.
    started: Cell<usize>,
    /// Those that kernels have forked.
    branches: Cell<usize>,
}

impl LivingKernels {
    fn are_none(&self) -> bool {
        self.started.get() == 0 && self.branches.get() == 0
    }
}

struct Gateway {
    /// Variables set by the program that made the sandbox, above all proxies.
    environment: BTreeMap<String, String>,
    wrapper: Vec<OsString>,
    /// Whether programs can read less than the gateway, as kernels.
    wraps_all: bool,
    leftovers: Rc<LeftoverProcesses>,
    /// The output pipe of the kernel that is started next.
    kernel_output: Option<OwnedFd>,
    kernels: BTreeMap<u64, mpsc::UnboundedSender<Signal>>,
    /// The kernels that run, branches too.
    living: Rc<LivingKernels>,
    /// Cancelled when the sandbox has to end.
    stop: CancellationToken,
}

impl Gateway {
    /// Handles requests until the host closes the connection. Then all started processes are killed.
    async fn obey(mut self, channel: Rc<GatewayChannel>) -> Result<(), GatewayError> {
        loop {
            let received = tokio::select! {
                received = channel.receive() => received?,
                () = self.stop.cancelled() => return Err(GatewayError::Leftovers),
            };
            let Some((request, descriptor)) = received else { return Ok(()) };
            match (request, descriptor) {
                (GatewayRequest::KernelOutput, Some(pipe)) => self.kernel_output = Some(pipe),
                (GatewayRequest::StartKernel { kernel, program }, Some(stdin)) => {
                    let output = self.kernel_output.take().ok_or(GatewayError::Unexpected)?;
                    self.start_kernel(&channel, kernel, program, stdin, output)?;
                }
                (GatewayRequest::Signal { kernel, signal }, None) => {
                    if let (Some(signals), Some(signal)) =
                        (self.kernels.get(&kernel), Signal::from_named_raw(signal))
                    {
                        // The kernel is gone: there is nothing to signal.
                        signals.send(signal).ok();
                    }
                }
                (GatewayRequest::Branches { living }, None) => {
                    self.living.branches.set(living);
                    self.clear_up();
                }
                (GatewayRequest::Listen, None) => {
                    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
                    let listener = listener.map_err(|source| GatewayError::Listen { port: 0, source })?;
                    let notice = GatewayNotice::Listener(HostService::Tools);
                    channel.send(&notice, Some(listener.as_fd())).await?;
                }
                (GatewayRequest::Run { run, program }, Some(output)) => {
                    let environment = self.environment_for(program.environment.clone());
                    let program = SandboxProgram { environment, ..program };
                    let wrapper = if self.wraps_all { self.wrapper.clone() } else { Vec::new() };
                    let channel = Rc::clone(&channel);
                    tokio::task::spawn_local(async move {
                        let wait_status = run_program(program, wrapper, output).await;
                        notify(&channel, &GatewayNotice::Ended { run, wait_status }).await;
                    });
                }
                _ => return Err(GatewayError::Unexpected),
            }
        }
    }

    fn start_kernel(
        &mut self,
        channel: &Rc<GatewayChannel>,
        kernel: u64,
        mut program: KernelProgram,
        stdin: OwnedFd,
        output: OwnedFd,
    ) -> Result<(), GatewayError> {
        program.environment = self.environment_for(program.environment);
        let wrapper = self.wrapper.clone();
        let (sender, signals) = mpsc::unbounded_channel();
        self.kernels.retain(|_, signals| !signals.is_closed());
        self.kernels.insert(kernel, sender);
        let channel = Rc::clone(channel);
        let leftovers = Rc::clone(&self.leftovers);
        let stop = self.stop.clone();
        let living = Rc::clone(&self.living);
        living.started.update(|started| started + 1);
        tokio::task::spawn_local(async move {
            let wait_status = run_kernel(kernel, &program, &wrapper, stdin, output, signals, &channel).await;
            living.started.update(|started| started - 1);
            if let Err(left) = leftovers.kill(|| living.are_none()).await {
                // Processes that cannot be killed one by one die with the sandbox, which we end.
                stop.cancel();
                return tracing::error!(?left, "a kernel has left processes that cannot be killed");
            }
            notify(&channel, &GatewayNotice::KernelEnded { kernel, wait_status }).await;
        });
        Ok(())
    }

    /// Kills what branches have left, if they were the last kernels.
    fn clear_up(&self) {
        let leftovers = Rc::clone(&self.leftovers);
        let living = Rc::clone(&self.living);
        let stop = self.stop.clone();
        tokio::task::spawn_local(async move {
            if let Err(left) = leftovers.kill(|| living.are_none()).await {
                stop.cancel();
                tracing::error!(?left, "a branch has left processes that cannot be killed");
            }
        });
    }

    /// The host's variables, over those of the sandbox.
    fn environment_for(&self, wanted: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut environment = self.environment.clone();
        environment.extend(wanted);
        // Created inside the sandbox, where symbolic links of code cannot lead out of it.
        if let Some(Err(error)) = environment.get("TMPDIR").map(std::fs::create_dir_all) {
            tracing::warn!(%error, "there is no directory for temporary files");
        }
        environment
    }
}

/// Sends a notice to the host, which may have gone.
async fn notify(channel: &GatewayChannel, notice: &GatewayNotice) {
    if let Err(error) = channel.send(notice, None).await {
        tracing::debug!(%error, ?notice, "could not notify the host");
    }
}

/// Runs a kernel to its end, and returns its wait status.
async fn run_kernel(
    kernel: u64,
    program: &KernelProgram,
    wrapper: &[OsString],
    stdin: OwnedFd,
    output: OwnedFd,
    mut signals: mpsc::UnboundedReceiver<Signal>,
    channel: &GatewayChannel,
) -> i32 {
    let words = output.try_clone();
    let mut process = match KernelProcess::start(program, wrapper, stdin, output) {
        Ok(process) => process,
        Err(error) => {
            let why = format!("failed to start `{}`: {}", program.python.display(), describe(&error));
            tracing::error!("{why}");
            // The host reads this as output of the kernel.
            drop(words.map(|words| rustix::io::write(words, why.as_bytes())));
            return NOT_STARTED;
        }
    };
    drop(words);
    loop {
        tokio::select! {
            Some(signal) = signals.recv() => {
                process.signal(signal);
                notify(channel, &GatewayNotice::Signalled { kernel }).await;
            }
            status = process.wait() => {
                process.signal(Signal::KILL);
                return status.map_or(NOT_STARTED, |status| status.into_raw());
            }
        }
    }
}

/// The wait status by which shells report a program that cannot be started.
const NOT_STARTED: i32 = 127 << 8;

/// Runs a program to its end, and returns its wait status.
async fn run_program(program: SandboxProgram, wrapper: Vec<OsString>, output: OwnedFd) -> i32 {
    let spawned = output.try_clone().and_then(|errors| {
        let mut words = wrapper.into_iter().chain([program.program.clone().into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(&program.arguments).env_clear().envs(&program.environment);
        command.current_dir(&program.working_directory);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        GroupLeader::spawn(&mut command)
    });
    let status = match spawned {
        Ok(mut leader) => leader.wait().await,
        Err(error) => Err(error),
    };
    status.map_or_else(
        |error| {
            tracing::error!(%error, program = %program.program.display(), "could not run a program");
            NOT_STARTED
        },
        |status| status.into_raw(),
    )
}
