//! Fresh kernels for saved actions. Each call has one of its own, in an empty directory; the next one starts while a call runs.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::front::ActionFront;
use super::literal;
use super::shelf::ActionShelf;
use crate::approval::{ApprovalPolicy, Approver, SessionFace};
use crate::config::{self, Config, Settings};
use crate::ground::files::{TemporaryDirectory, inside};
use crate::session::{Cell, CellRequester, Error, Outcome, Session, StartError, ToolOptions};
use crate::tools::actions::{ActionBundle, SavedAction, WorkspaceActions};
use crate::tools::recording::RecordedServer;
use crate::tools::registry::{RecordedServerError, Registry};

/// The Python that calls an action.
const CALL: &str = include_str!("call.py");

/// The most bytes of a result as JSON: the model of a client reads all of it.
const RESULT_BYTES: usize = 1024 * 1024;

/// The number of characters of printed text that are returned.
const OUTPUT_CHARS: usize = 5_000;

/// The directory for results in a workspace. Code cannot write in one whose name begins with a dot and that is there before its
/// sandbox, which may start after the call has come.
const RESULTS: &str = "ipybox-results";

/// Why no kernel runs an action.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelActionError {
    /// Its saved files cannot be read.
    #[error("read the saved action")]
    Saved(#[source] io::Error),
    /// No directory could be made for it, or its files could not be put there.
    #[error("make a workspace for the action")]
    Directory(#[source] io::Error),
    /// The session cannot be configured.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The session cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A server of the action is not registered, or its package cannot be written.
    #[error(transparent)]
    Server(#[from] RecordedServerError),
    /// The registered servers cannot be read.
    #[error("read the registered MCP servers")]
    Registry(#[source] io::Error),
    /// The kernel is lost.
    #[error("run the action")]
    Session(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Makes the kernels, as the settings of a workspace say.
pub(crate) struct ActionKernels {
    settings: Settings,
    /// Decides about the calls of their code.
    policy: ApprovalPolicy,
    front: Option<ActionFront>,
    /// The kernel of the next call.
    next: parking_lot::Mutex<Option<JoinHandle<Result<ActionKernel, KernelActionError>>>>,
}

/// A session in a directory of its own. Close it; dropping it ends the same processes, but does not wait.
pub(crate) struct ActionKernel {
    pub(crate) session: Arc<Session>,
    /// The servers that its code can call.
    registry: Registry,
    /// The servers of the workspace whose action it runs.
    living: Registry,
    workspace: PathBuf,
    of: PathBuf,
    _directory: TemporaryDirectory,
}

/// A cell that runs an action.
pub(crate) struct ActionCell {
    pub(crate) timeout: Duration,
    pub(crate) cancel: CancellationToken,
    pub(crate) chunks: Option<mpsc::Sender<String>>,
    pub(crate) approver: Approver,
}

/// The end of a cell, and its result.
pub(crate) struct ActionRun {
    pub(crate) outcome: Outcome,
    /// The result; `None` if the code has written none.
    pub(crate) result: Option<Value>,
}

impl ActionKernels {
    /// For the actions of the workspace in `settings`.
    pub(crate) fn new(settings: Settings, policy: ApprovalPolicy) -> Self {
        Self { settings, policy, front: None, next: parking_lot::Mutex::default() }
    }

    /// The same, for a user of the server of a team.
    pub(crate) fn with_front(self, front: Option<ActionFront>) -> Self {
        Self { front, ..self }
    }

    /// Opens the first one, whose kernel starts behind.
    ///
    /// # Errors
    /// Its settings cannot be used; without its sandbox for one.
    pub(crate) async fn prepare(&self) -> Result<(), KernelActionError> {
        let first = self.opening().await?;
        *self.next.lock() = Some(tokio::spawn(async { Ok(first) }));
        Ok(())
    }

    /// The next kernel, which has run nothing.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn take(&self) -> Result<ActionKernel, KernelActionError> {
        let after = tokio::spawn(self.opening());
        let next = self.next.lock().replace(after);
        match next {
            Some(next) => next.await.map_err(|error| KernelActionError::Directory(error.into()))?,
            None => self.opening().await,
        }
    }

    /// One kernel alone.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn one(&self) -> Result<ActionKernel, KernelActionError> {
        self.opening().await
    }

    /// Ends the kernel that nobody has taken.
    pub(crate) async fn stop(&self) {
        let next = self.next.lock().take();
        if let Some(next) = next
            && let Ok(Ok(kernel)) = next.await
        {
            kernel.close().await;
        }
    }

    /// Opens a session, as a future that owns all that it needs.
    fn opening(&self) -> impl Future<Output = Result<ActionKernel, KernelActionError>> + Send + 'static {
        // A large future.
        Box::pin(ActionKernel::open(self.settings.clone(), self.policy.clone(), self.front.clone()))
    }
}

impl ActionKernel {
    async fn open(
        settings: Settings,
        policy: ApprovalPolicy,
        front: Option<ActionFront>,
    ) -> Result<Self, KernelActionError> {
        let directory = TemporaryDirectory::new("ipybox-action-").map_err(KernelActionError::Directory)?;
        let workspace = directory.path().to_owned();
        let of = settings.workspace.clone();
        let mut config = Config::new(Settings {
            workspace: workspace.clone(),
            state_of: Some(of.clone()),
            servers_of: Some(of.clone()),
            ..settings
        })?;
        config.front = front.as_ref().map(|front| front.socket.clone());
        let registry = Registry::in_memory(config.connector());
        let living = Registry::in_directory(config.state_dir(), config.connector());
        let tools = ToolOptions {
            registry: Some(registry.clone()),
            policy,
            face: SessionFace::Mcp,
            beside: None,
            replay: None,
        };
        let session = Arc::new(Session::open(&config, Some(tools)).await?);
        if let Some(line) = front.and_then(|front| front.approvers) {
            session.ask_approvers(line);
        }
        Ok(Self { session, registry, living, workspace, of, _directory: directory })
    }

    /// Puts the saved files of an action into the workspace, and the packages of its servers.
    ///
    /// # Errors
    /// A server is not registered any more, or a file cannot be written.
    pub(crate) async fn equip(
        &self,
        shelf: &ActionShelf,
        action: &SavedAction,
    ) -> Result<(), KernelActionError> {
        let shelf = shelf.clone();
        let saved = action.clone();
        let reading = tokio::task::spawn_blocking(move || shelf.bundle(&saved));
        let bundle = reading.await.map_err(io::Error::other).flatten().map_err(KernelActionError::Saved)?;
        for server in self.servers_of(action, &bundle).await? {
            self.registry.restore(&server, Some(&self.living), &self.workspace).await?;
        }
        let copies = WorkspaceActions::of_workspace(&self.workspace);
        let putting = tokio::task::spawn_blocking(move || bundle.put_into(&copies));
        putting.await.map_err(io::Error::other).flatten().map_err(KernelActionError::Directory)?;
        self.session.refresh_imports(None).await;
        Ok(())
    }

    /// The registered servers of an action: those that its test calls, and those that its files, or those of actions that it uses,
    /// name.
    ///
    /// # Errors
    /// The registered servers cannot be read.
    pub(super) async fn servers_of(
        &self,
        action: &SavedAction,
        bundle: &ActionBundle,
    ) -> Result<Vec<RecordedServer>, KernelActionError> {
        let mut servers =
            self.living.recorded_servers(&self.of).await.map_err(KernelActionError::Registry)?;
        servers.retain(|server| action.servers.contains_key(&server.name) || bundle.names_word(&server.name));
        Ok(servers)
    }

    /// Calls an action, with arguments as data.
    ///
    /// # Errors
    /// The kernel does not start, or is lost before the call. An exception of the action is no error.
    pub(crate) async fn call(
        &self,
        action: &SavedAction,
        arguments: Map<String, Value>,
        cell: ActionCell,
    ) -> Result<ActionRun, KernelActionError> {
        let module = literal::text(&action.path());
        let function = literal::text(action.function());
        let arguments = literal::json_text(&Value::Object(arguments));
        let before = if action.is_async { "await " } else { "" };
        self.run("", &format!("{before}checked({module}, {function})(**json.loads({arguments}))"), cell).await
    }

    /// Runs `code`, and then the expression `value`, whose result is returned as JSON.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub(super) async fn run(
        &self,
        code: &str,
        value: &str,
        cell: ActionCell,
    ) -> Result<ActionRun, KernelActionError> {
        let failed = |error: Error| KernelActionError::Session(error.into());
        let name = format!("{RESULTS}/{}.json", uuid::Uuid::new_v4().simple());
        inside::make_directory(&self.workspace, Path::new(RESULTS)).map_err(KernelActionError::Directory)?;
        let file = literal::text(&self.workspace.join(&name).display().to_string());
        let ActionCell { timeout, cancel, chunks, approver } = cell;
        let cell = Cell {
            code: format!("{CALL}\n{code}\nwrite_result({value}, {file}, {RESULT_BYTES})\n"),
            timeout,
            max_output_chars: OUTPUT_CHARS,
            cancel,
            chunks,
            unread: None,
            approver,
            client: None,
            has_views: false,
            author: CellRequester::Agent,
            id: None,
        };
        let outcome = self.session.execute(cell).await.outcome().await.map_err(failed)?;
        let root = self.workspace.clone();
        let reading = tokio::task::spawn_blocking(move || read(&root, Path::new(&name)));
        let result = reading.await.map_err(io::Error::other).flatten();
        let result = result.inspect_err(|error| tracing::debug!(%error, "an action has no result")).ok();
        Ok(ActionRun { outcome, result })
    }

    /// Ends it with all its processes, and removes its directory.
    pub(crate) async fn close(self) {
        self.session.close().await;
        // It may be large.
        let removing = tokio::task::spawn_blocking(move || drop(self));
        if let Err(error) = removing.await {
            tracing::debug!(%error, "the directory of an action was not removed");
        }
    }
}

/// Reads a result. Code may have put anything in its place.
fn read(root: &Path, name: &Path) -> io::Result<Value> {
    let limit = RESULT_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    inside::open(root, name)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > RESULT_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}
