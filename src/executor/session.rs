//! The handle of one session: work is queued here, and a task does it, one thing at a time.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cell::{Cell, Outcome};
use super::confined::Confined;
use super::here::Here;
use super::images::Places;
use super::installations::Installations;
use super::late::Late;
use super::outputs::OutputFile;
use super::packages;
use super::phase::Phase;
use super::remote::{Desk, Remote};
use super::site::Site;
use super::worker::{Command, Worker};
use super::{CodeExecutionError, Error, InstallError};
use crate::audit::Audit;
use crate::config::Config;
use crate::environment::{self, Environment};
use crate::kernel::{Limits, RemoteLaunch};
use crate::mcp::Connection;
use crate::tool_server::{Endpoint, Registered};

/// How many requests may wait for the kernel. Clients send one at a time; a runaway one must not fill memory.
const QUEUE_CAPACITY: usize = 1024;

/// Runs code in an IPython kernel, one cell at a time, in the order of arrival.
///
/// The kernel starts at once, in the background. Stop it with [`stop`](Self::stop); dropping it kills
/// the kernel too, but does not wait.
pub(crate) struct Session {
    commands: mpsc::Sender<Command>,
    phase: watch::Receiver<Phase>,
    packages: PackagesAt,
    workspace: PathBuf,
    tool_server: Option<Arc<Endpoint>>,
    /// Cancelled by a reset: ends the cells that were queued before it.
    generation: Mutex<CancellationToken>,
    /// Cancelled to end the cells that run or wait, and replaced then.
    cells: Mutex<CancellationToken>,
    stop: CancellationToken,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    /// Tells how the first start of the kernel went.
    started: Mutex<Option<oneshot::Receiver<Result<(), Error>>>>,
    /// Removed when the session has stopped, or is dropped.
    directory: Mutex<Option<tempfile::TempDir>>,
}

/// Where packages are installed.
enum PackagesAt {
    /// In an environment of this machine, and from a sandbox if the kernel is in one.
    Here { environment: Arc<environment::Shared>, installations: Option<Box<Installations>> },
    /// Where a Jupyter server runs the kernel.
    Remote,
}

impl Session {
    /// Starts the kernel in the background. Its code has tools if there is a `tool_server`.
    pub(crate) fn start(config: &Config, tool_server: Option<Endpoint>) -> std::io::Result<Self> {
        let session_directory = session_directory()?;
        crate::process::guard_directory(session_directory.path());
        let audit = tool_server.as_ref().map_or_else(Audit::off, |tools| tools.audit().clone());
        let tool_server = tool_server.map(Arc::new);
        let (commands, queue) = mpsc::channel(QUEUE_CAPACITY);
        let (phase_sender, phase) = watch::channel(Phase::Preparing("starting".to_owned()));
        let stop = CancellationToken::new();
        let limits = Limits {
            memory: config.kernel.memory_limit,
            processes: config.kernel.max_processes,
            file_size: config.kernel.max_file_size,
        };
        let (site, packages) = match &config.remote {
            None => {
                let (private_directory, confined) = rooms(config, session_directory.path())?;
                let environment = Arc::new(environment::Shared::new(environment::Settings {
                    python: config.kernel.python.clone(),
                    state_dir: config.state_dir.clone(),
                    workspace: config.workspace.clone(),
                    variables: Arc::clone(&config.variables),
                    is_sandboxed: config.sandbox.is_some(),
                }));
                let installations = confined
                    .as_ref()
                    .map(|confined| Box::new(Installations::new(confined, session_directory.path())));
                let here = Here {
                    environment: Arc::clone(&environment),
                    workspace: config.workspace.clone(),
                    variables: config.kernel_variables(),
                    private_directory,
                    limits,
                    shell_commands: config.shell_commands,
                    init_timeout: config.kernel.init_timeout,
                    confined,
                };
                (Site::Here(Box::new(here)), PackagesAt::Here { environment, installations })
            }
            Some(remote) => {
                let desk = Desk { workspace: config.workspace.clone(), tool_server: tool_server.clone() };
                let launch = RemoteLaunch {
                    server: Arc::clone(&remote.server),
                    kernel_name: remote.kernel_name.clone(),
                    start_variables: config.start_variables(),
                    environment: config.kernel_variables(),
                    limits,
                    shell_commands: config.shell_commands,
                    timeout: config.kernel.init_timeout,
                    runtime: &crate::tool_server::RUNTIME,
                    handler: Arc::new(desk),
                    tasks: TaskTracker::new(),
                };
                (Site::Remote(Box::new(Remote::new(launch))), PackagesAt::Remote)
            }
        };
        let places = Places { workspace: config.workspace.clone(), images: config.images_dir.clone() };
        let worker = Worker {
            kernel: None,
            lost: None,
            queue,
            phase: phase_sender,
            site,
            tool_server: tool_server.clone(),
            late: Late::new(places),
            failed_starts: None,
            audit,
        };
        let (started_sender, started) = oneshot::channel();
        let task = tokio::spawn(worker.run(stop.clone(), started_sender));
        Ok(Self {
            commands,
            phase,
            packages,
            workspace: config.workspace.clone(),
            tool_server,
            generation: Mutex::default(),
            cells: Mutex::default(),
            stop,
            task: tokio::sync::Mutex::new(Some(task)),
            started: Mutex::new(Some(started)),
            directory: Mutex::new(Some(session_directory)),
        })
    }

    /// Waits until the first kernel is ready, or has not started, in which case there is no session.
    pub(super) async fn started(&self) -> Result<(), Error> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(started) = started else { return Ok(()) };
        match started.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.stop().await;
                Err(error)
            }
            Err(_) => Err(Error::Crashed),
        }
    }

    /// What the executor is doing before it can run the first cell.
    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    /// Queues a cell. Its outcome comes from the returned [`Pending`]; the order of calls is the order of execution.
    pub(crate) async fn submit(&self, cell: Cell) -> Pending<Outcome> {
        let generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (reply, outcome) = oneshot::channel();
        // A closed queue drops `reply`, which the waiting side reports as `Stopped`.
        drop(self.commands.send(Command::Execute { cell, generation, reply }).await);
        Pending { outcome, stop: self.stop.clone() }
    }

    /// Queues the replacement of the kernel by a fresh one and the closing of the connections to MCP servers.
    ///
    /// The running cell and those queued before end at once; those queued later run in the fresh kernel.
    pub(crate) async fn submit_reset(&self) -> Pending<()> {
        {
            let mut generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *generation).cancel();
        }
        let (reply, outcome) = oneshot::channel();
        // As above.
        drop(self.commands.send(Command::Reset { reply }).await);
        Pending { outcome, stop: self.stop.clone() }
    }

    /// Replaces the kernel by a fresh one, for an application.
    pub(super) async fn reset(&self) -> Result<(), CodeExecutionError> {
        let reset = self.submit_reset().await.outcome().await;
        reset.map_err(|error| CodeExecutionError::unavailable(&error))
    }

    /// Lets code that runs from now on find what has just been installed or generated. Of the package `mcptools.<changed>`
    /// it imports the new modules where it has imported the old ones before.
    pub(crate) async fn refresh_imports(&self, changed: Option<&str>) {
        let changed = changed.map(str::to_owned);
        // A closed queue has no kernel to refresh.
        drop(self.commands.send(Command::RefreshImports { changed }).await);
    }

    /// The Python environment of the kernel; waits until it is there.
    pub(crate) async fn environment(
        &self,
        progress: environment::Progress<'_>,
    ) -> Result<Arc<Environment>, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        match &self.packages {
            PackagesAt::Here { environment, .. } => {
                environment.get(progress).await.map_err(Error::Environment)
            }
            PackagesAt::Remote => Err(Error::RemotePython),
        }
    }

    /// Looks whether a package can be installed at all, as far as its name tells.
    pub(crate) fn check_package(&self, package: &str) -> Result<(), InstallError> {
        if let PackagesAt::Remote = self.packages {
            packages::check(package).map_err(InstallError::Remote)?;
        }
        environment::check_requirement(package, &self.workspace)?;
        if let PackagesAt::Here { installations: Some(installations), .. } = &self.packages {
            installations.check(package)?;
        }
        Ok(())
    }

    /// Installs a package where the kernel finds it, in a sandbox of its own if the kernel is in one. Returns what the
    /// installer said.
    pub(crate) async fn install(
        &self,
        package: &str,
        progress: environment::Progress<'_>,
    ) -> Result<String, InstallError> {
        self.check_package(package)?;
        let installations = match &self.packages {
            PackagesAt::Here { installations, .. } => installations,
            PackagesAt::Remote => return self.install_remotely(package, progress).await,
        };
        let environment =
            self.environment(progress).await.map_err(|error| InstallError::Python(Box::new(error)))?;
        let elsewhere = installations.as_ref().map(|place| place.in_environment(&environment));
        let elsewhere = elsewhere.as_ref().map(|place| place as &dyn environment::Elsewhere);
        Ok(environment.install(package, progress, elsewhere).await?)
    }

    /// Has the kernel itself install a package, when it is its turn.
    async fn install_remotely(
        &self,
        package: &str,
        progress: environment::Progress<'_>,
    ) -> Result<String, InstallError> {
        progress("installing where the Jupyter server runs the kernel");
        let cancel = self.cell_token();
        // Whoever no longer waits wants no installation.
        let _guard = cancel.clone().drop_guard();
        let outcome = self.submit(packages::cell(package.trim(), cancel)).await.outcome().await;
        let outcome = outcome.map_err(|error| InstallError::Python(Box::new(error)))?;
        packages::told(outcome).map_err(|why| InstallError::Remote(format!("install `{package}`: {why}")))
    }

    /// Keeps a live connection to what `name` stands for now, for the first call of its tools.
    pub(crate) async fn adopt(&self, name: &str, server: Registered, connection: Connection) {
        match &self.tool_server {
            Some(tool_server) => tool_server.adopt(name, server, connection).await,
            None => connection.close().await,
        }
    }

    /// Keeps a text where the long output of cells is kept, and returns its path.
    pub(crate) async fn keep_output(&self, text: &str) -> std::io::Result<PathBuf> {
        let mut file = OutputFile::create(&self.workspace).await?;
        file.append(text).await?;
        file.finish().await.map(|(path, _is_whole)| path)
    }

    /// A token that ends a cell: cancelled by [`cancel`](Self::cancel) too.
    pub(crate) fn cell_token(&self) -> CancellationToken {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).child_token()
    }

    /// Interrupts the cell that runs and gives up those that wait.
    pub(crate) fn cancel(&self) {
        std::mem::take(&mut *self.cells.lock().unwrap_or_else(PoisonError::into_inner)).cancel();
    }

    /// Begins to stop, and does not wait.
    pub(super) fn abandon(&self) {
        self.stop.cancel();
    }

    /// Kills the kernel, closes all connections, and waits until nothing is left.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let kernel_gone = async {
            // Kept until it has ended: whoever waited first may have been dropped.
            let mut task = self.task.lock().await;
            if let Some(running) = task.as_mut() {
                if let Err(error) = running.await {
                    tracing::error!(%error, "the executor's task failed");
                }
                *task = None;
            }
        };
        let tools_gone = async {
            if let Some(tool_server) = &self.tool_server {
                tool_server.stop().await;
            }
        };
        tokio::join!(kernel_gone, tools_gone);
        // Here and not only by dropping: calls under way may hold the session for as long as the program runs.
        let directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = directory.map(tempfile::TempDir::close) {
            tracing::warn!(%error, "could not remove the session's temporary files");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Work that is queued or under way.
pub(crate) struct Pending<T> {
    outcome: oneshot::Receiver<Result<T, Error>>,
    stop: CancellationToken,
}

impl<T> Pending<T> {
    /// Waits for the outcome. To give up on a cell, cancel its token: dropping this does not end it.
    pub(crate) async fn outcome(self) -> Result<T, Error> {
        let is_stopped = || if self.stop.is_cancelled() { Error::Stopped } else { Error::Crashed };
        self.outcome.await.unwrap_or_else(|_| Err(is_stopped()))
    }
}

/// What the session's directory holds: the private directory, which is all of it without a sandbox.
///
/// With a sandbox the kernel writes to another one beside it: code in the sandbox must not put something in the place of
/// what the host writes.
fn rooms(config: &Config, directory: &Path) -> std::io::Result<(PathBuf, Option<Confined>)> {
    let Some(confinement) = &config.sandbox else { return Ok((directory.to_owned(), None)) };
    let directory = directory.canonicalize()?;
    let place = config.sandbox_place(directory.join("p"), directory.join("w"));
    for directory in [&place.private_directory, &place.writable_directory] {
        std::fs::DirBuilder::new().mode(0o700).create(directory)?;
    }
    let port = config.tool_server.port.unwrap_or(0);
    Ok((place.private_directory.clone(), Some(Confined::new(confinement.clone(), place, port))))
}

/// The longest path of a private directory that leaves room for a socket's name in it.
///
/// Socket paths are limited to 104 bytes (macOS) or 108 (Linux).
const SOCKET_DIRECTORY_BYTES: usize = 80;

/// Makes a directory that only this user can enter.
fn session_directory() -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("ipybox-").rand_bytes(8);
    match builder.tempdir() {
        Ok(directory) if directory.path().as_os_str().len() <= SOCKET_DIRECTORY_BYTES => Ok(directory),
        // `TMPDIR` leads too deep or nowhere.
        _ => builder.tempdir_in("/tmp"),
    }
}
