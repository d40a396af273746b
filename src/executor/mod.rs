//! One session: a kernel, the tool server that its code calls, and the cells that wait their turn.
//!
//! The handle [`CodeExecutor`] queues work; the task in `session` does it, one thing at a time. What the
//! outcome looks like to a client is not decided here.

mod cell;
mod excerpt;
mod images;
mod late;
mod outputs;
mod record;
mod session;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::cell::{Cell, End, Outcome, State};
pub(crate) use self::images::SavedImage;
use self::late::Late;
pub(crate) use self::record::{Cut, Text};
use self::session::{Command, Session};
use crate::config::Config;
use crate::environment::{self, Environment};
use crate::kernel::{self, Limits};
use crate::mcp::Connection;
use crate::tool_server::{Registered, ToolServer};

/// How many requests may wait for the kernel. Clients send one at a time; a runaway one must not fill memory.
const QUEUE_CAPACITY: usize = 1024;

/// Why a cell could not be run at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no usable Python environment.
    #[error("prepare the Python environment")]
    Environment(#[source] environment::Error),
    /// The kernel does not start.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    /// The directories that a kernel needs cannot be made.
    #[error("make the directories that the kernel needs")]
    Files(#[source] std::io::Error),
    /// The task that owns the kernel has failed.
    #[error("run code: ipybox has a bug and cannot go on; see its log, and restart it")]
    Crashed,
    /// The executor was stopped.
    #[error("run code: the server is shutting down")]
    Stopped,
}

/// What the executor is doing before it can run the first cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Something that takes a while, in words for a user.
    Preparing(String),
    /// Cells run as soon as it is their turn.
    Ready,
}

/// Runs code in an IPython kernel, one cell at a time, in the order of arrival.
///
/// The kernel starts at once, in the background. Stop it with [`stop`](Self::stop); dropping it kills
/// the kernel too, but does not wait.
pub(crate) struct CodeExecutor {
    commands: mpsc::Sender<Command>,
    phase: watch::Receiver<Phase>,
    environment: Arc<environment::Shared>,
    tool_server: Arc<ToolServer>,
    /// Cancelled by a reset: ends the cells that were queued before it.
    generation: Mutex<CancellationToken>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
    /// Removed when the executor is dropped.
    _private_directory: tempfile::TempDir,
}

impl CodeExecutor {
    /// Starts the kernel in the background.
    pub(crate) fn start(config: &Config, tool_server: ToolServer) -> std::io::Result<Self> {
        let private_directory = private_directory()?;
        crate::process::guard_directory(private_directory.path());
        let environment = Arc::new(environment::Shared::new(environment::Settings {
            python: config.python.clone(),
            state_dir: config.state_dir.clone(),
            workspace: config.workspace.clone(),
            variables: Arc::clone(&config.variables),
        }));
        let tool_server = Arc::new(tool_server);
        let (commands, queue) = mpsc::channel(QUEUE_CAPACITY);
        let (phase_sender, phase) = watch::channel(Phase::Preparing("starting".to_owned()));
        let stop = CancellationToken::new();
        let session = Session {
            kernel: None,
            lost: None,
            queue,
            phase: phase_sender,
            environment: Arc::clone(&environment),
            tool_server: Arc::clone(&tool_server),
            late: Late::new(config.workspace.clone()),
            failed_starts: None,
            workspace: config.workspace.clone(),
            variables: config.variables.for_kernel(),
            private_directory: private_directory.path().to_owned(),
            limits: Limits { memory: config.kernel_memory_limit, processes: config.kernel_max_processes },
            shell_commands: config.shell_commands,
        };
        let task = tokio::spawn(session.run(stop.clone()));
        Ok(Self {
            commands,
            phase,
            environment,
            tool_server,
            generation: Mutex::default(),
            stop,
            task: Mutex::new(Some(task)),
            _private_directory: private_directory,
        })
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

    /// Lets code that runs from now on find what has just been installed or generated.
    pub(crate) async fn refresh_imports(&self) {
        // A closed queue has no kernel to refresh.
        drop(self.commands.send(Command::RefreshImports).await);
    }

    /// The Python environment of the kernel; waits until it is there.
    pub(crate) async fn environment(
        &self,
        progress: environment::Progress<'_>,
    ) -> Result<Arc<Environment>, Error> {
        self.environment.get(progress).await.map_err(Error::Environment)
    }

    /// Keeps a live connection to what `name` stands for now, for the first call of its tools.
    pub(crate) async fn adopt(&self, name: &str, server: Registered, connection: Connection) {
        self.tool_server.adopt(name, server, connection).await;
    }

    /// Kills the kernel, closes all connections, and waits until nothing is left.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kernel_gone = async {
            if let Some(Err(error)) = futures::future::OptionFuture::from(task).await {
                tracing::error!(%error, "the executor's task failed");
            }
        };
        tokio::join!(kernel_gone, self.tool_server.stop());
    }
}

impl Drop for CodeExecutor {
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

/// The longest path of a private directory that leaves room for a socket's name in it.
///
/// Socket paths are limited to 104 bytes (macOS) or 108 (Linux).
const SOCKET_DIRECTORY_BYTES: usize = 80;

/// Makes a directory that only this user can enter.
fn private_directory() -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("ipybox-").rand_bytes(8);
    match builder.tempdir() {
        Ok(directory) if directory.path().as_os_str().len() <= SOCKET_DIRECTORY_BYTES => Ok(directory),
        // `TMPDIR` leads too deep or nowhere.
        _ => builder.tempdir_in("/tmp"),
    }
}

/// How long a cell may run unless its caller says otherwise.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
