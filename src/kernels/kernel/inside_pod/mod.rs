//! `ipybox pod`: runs kernels for one session on another machine, which takes it by connecting.
//!
//! ```text
//! arrivals: who connects ─ the key ─→ carrier ⇄ streams ⇄ host of kernels ⇄ sockets and pipes ⇄ kernels
//! ```
//!
//! It has no credentials and decides nothing. When the session has left, or has not come back for long, everything ends. As the
//! first process of a container it has a child do all this, and waits for the processes that code leaves behind.

mod arrivals;
mod first_process;
mod forking;
mod hosted;
mod pumps;
mod warm;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{DumpableBehavior, Pid};
use tokio::net::TcpListener;
use tokio::process::Command;

use self::arrivals::SessionArrivals;
use self::hosted::{HostedKernels, PodSurroundings, program};
use self::warm::WarmTemplate;
use super::directory::private_directory;
use super::gateway::LeftoverProcesses;
use super::remote::MODULES_WITHOUT_WORKSPACE;
use crate::ground::text::describe;
use crate::kernels::pod::{LinkCarrier, LinkKey, PodAbout, StreamSide, open_streams};

/// Prints the version of Python, if it has what kernels need.
const PROBE: &str = "import sys, IPython; print(*sys.version_info[:2])";

/// The settings of `ipybox pod`.
#[derive(Clone)]
pub struct PodSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The working directory of kernels, which is made if there is none.
    pub workspace: PathBuf,
    /// The Python that runs kernels, which has IPython.
    pub python: PathBuf,
    /// Files in PEM with the certificates and the private key for TLS. Without them nothing is encrypted.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The token of those who may take the pod. Without one, the first who connects has it.
    pub token: Option<String>,
    /// The time that the session may be away before everything ends.
    pub lease: Duration,
    /// Whether it is the child that the first process of a container has started.
    pub is_child_of_first: bool,
}

/// Without the token.
impl std::fmt::Debug for PodSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PodSettings").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// Why a pod cannot work.
#[derive(Debug, thiserror::Error)]
enum PodHostError {
    #[error("prepare the directories of kernels")]
    Files(#[source] io::Error),
    #[error("listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("use the interpreter `{}`: {why}\nhint: install IPython for it, or name another one by `--python`", python.display())]
    Python { python: PathBuf, why: String },
    #[error("use the certificates in `{}`: {why}", file.display())]
    Certificate { file: PathBuf, why: String },
    #[error("print the address")]
    Announce(#[source] io::Error),
    #[error("serve the session: {0}")]
    Link(String),
}

/// Called with the address when a session can come.
pub(crate) type PodAnnouncement = Box<dyn FnOnce(SocketAddr) -> io::Result<()> + Send>;

/// Runs a pod to its end. `runtime` are the Python modules that generated code imports, by name.
pub(crate) fn run(
    settings: PodSettings,
    runtime: &'static [(&'static str, &'static str)],
    announce: PodAnnouncement,
) -> ExitCode {
    // Code of the same user reads neither our memory nor our variables, with the token.
    if let Err(error) = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "code can look into this process");
    }
    if rustix::process::getpid().is_init() {
        return first_process::run();
    }
    let done = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(PodHostError::Files)
        .and_then(|tokio| tokio.block_on(serve(settings, runtime, announce)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("failed to {}", describe(&error));
            ExitCode::FAILURE
        }
    }
}

async fn serve(
    settings: PodSettings,
    runtime: &'static [(&'static str, &'static str)],
    announce: PodAnnouncement,
) -> Result<(), PodHostError> {
    let directory = private_directory().map_err(PodHostError::Files)?;
    std::fs::create_dir_all(&settings.workspace).map_err(PodHostError::Files)?;
    let workspace = settings.workspace.canonicalize().map_err(PodHostError::Files)?;
    write_modules(directory.path(), runtime).map_err(PodHostError::Files)?;
    let python_version = probe(&settings.python, &workspace).await?;
    let about = PodAbout {
        python: settings.python.clone(),
        python_version,
        workspace,
        private_directory: directory.path().to_owned(),
    };
    let secret = settings.token.as_deref().map(LinkKey::of_secret);
    // A pool counts a pod as ready when it listens.
    let environment = container_environment(settings.token.as_deref());
    let warm = WarmTemplate::make(program(&about, &environment, BTreeMap::new())).await;
    // Anywhere else, other processes are other people's.
    let is_container = settings.is_child_of_first && rustix::process::getppid().is_some_and(Pid::is_init);
    let leftovers = is_container.then(LeftoverProcesses::found);
    let surroundings = PodSurroundings { about, environment, leftovers };
    let address = settings.listen;
    let listener =
        TcpListener::bind(address).await.map_err(|source| PodHostError::Listen { address, source })?;
    let address = listener.local_addr().map_err(|source| PodHostError::Listen { address, source })?;
    let mut arrivals = SessionArrivals::listen(listener, settings.tls, secret)?;
    announce(address).map_err(PodHostError::Announce)?;
    tracing::info!(%address, "waits for a session");
    let (mut carrier, bytes) = LinkCarrier::new();
    let (opener, inbound) = open_streams(bytes, StreamSide::Pod);
    tokio::select! {
        why = arrivals.carry(&mut carrier, settings.lease) => {
            tracing::info!(why, "ends");
            Ok(())
        }
        served = HostedKernels::serve(surroundings, warm, opener, inbound) => match served {
            Ok(()) => {
                tracing::info!("the session has left");
                Ok(())
            }
            Err(error) => Err(PodHostError::Link(error.to_string())),
        },
    }
}

/// The variables of the container, without those that hold the token.
fn container_environment(token: Option<&str>) -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(_, value)| token.is_none_or(|token| !value.contains(token)))
        .collect()
}

/// The directory of the modules that code imports, for `PYTHONPATH`.
fn modules_directory(private_directory: &Path) -> PathBuf {
    private_directory.join("runtime")
}

fn write_modules(
    private_directory: &Path,
    runtime: &'static [(&'static str, &'static str)],
) -> io::Result<()> {
    let directory = modules_directory(private_directory);
    std::fs::create_dir_all(&directory)?;
    for (name, text) in runtime.iter().chain(&MODULES_WITHOUT_WORKSPACE) {
        std::fs::write(directory.join(format!("{name}.py")), text)?;
    }
    Ok(())
}

/// The version of an interpreter that can run kernels.
async fn probe(python: &Path, directory: &Path) -> Result<(u32, u32), PodHostError> {
    let failed = |why: String| PodHostError::Python { python: python.to_owned(), why };
    let mut command = Command::new(python);
    command.args(["-I", "-c", PROBE]).current_dir(directory).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.trim().lines().last().unwrap_or("it ends with an error").to_owned()));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let version = said.trim().split_once(' ');
    version
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| failed(format!("it does not say its version but `{}`", said.trim())))
}
