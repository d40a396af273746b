//! An MCP server on stdin and stdout whose tools are the saved actions of a workspace. Each call has a kernel of its own.
//!
//! ```text
//! handler → definition: saved action → tool
//!         → work: ledger ⇄ questions to the client → ActionKernels → answer
//! ```

mod answer;
mod definition;
mod handler;
mod work;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::handler::ActionHandler;
use self::work::ActionServer;
use super::approver_questions::ApproverQuestions;
use super::arrivals::ArrivalTransport;
use super::line_transport::LineTransport;
use super::sessions::policy;
use super::stdio::end_on_signals;
use crate::approval::{APPROVER_QUESTIONS, PolicyError};
use crate::config::{self, Settings, create_workspace, state_directory};
use crate::faces::detached_actions::{ActionKernels, ActionShelf, ActionTeam, KernelActionError};
use crate::session::DEFAULT_TIMEOUT;

/// The options of a server of saved actions.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeActionsOptions {
    /// The settings of the workspace and of the kernels: those of cells that run in no session are not used.
    pub settings: Settings,
    /// The time that a call may take. Waiting for a kernel and for approval does not count. Default: 120 seconds.
    pub timeout: Duration,
    /// The directory of published actions, which are served in place of those of the workspace.
    pub published: Option<PathBuf>,
    /// The server of a team, if the client is a user of it.
    pub front: Option<ActionTeam>,
}

impl ServeActionsOptions {
    /// The defaults, with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings, timeout: DEFAULT_TIMEOUT, published: None, front: None }
    }
}

/// Why saved actions are not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeActionsError {
    /// The workspace or its state directory cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The approval policy cannot be read.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// There can be no sandbox.
    #[error(
        "serve actions: each call needs a kernel in a sandbox\n\
         hint: `--no-sandbox` runs actions with all of your rights"
    )]
    Sandbox(#[source] KernelActionError),
    /// There can be no kernels.
    #[error("serve actions")]
    Kernels(#[source] KernelActionError),
    /// The saved actions cannot be read.
    #[error("read the saved actions")]
    Store(#[source] io::Error),
    /// Signals cannot be handled.
    #[error("handle signals")]
    Signals(#[source] io::Error),
    /// The client has broken the protocol.
    #[error("speak MCP on stdin and stdout: {0}")]
    Protocol(String),
}

/// Serves the saved actions of a workspace on stdin and stdout, until the client closes stdin or a signal comes; then it leaves
/// no process.
///
/// # Errors
/// See [`ServeActionsError`].
pub async fn serve_actions(options: ServeActionsOptions) -> Result<(), ServeActionsError> {
    let ServeActionsOptions { mut settings, timeout, published, front } = options;
    let closed = CancellationToken::new();
    end_on_signals(&closed).map_err(ServeActionsError::Signals)?;
    settings.workspace = create_workspace(&settings.workspace)?;
    if let Some(sandbox) = &mut settings.sandbox {
        // Each kernel has another workspace.
        sandbox.config = sandbox.config.take().map(|file| settings.workspace.join(file));
    }
    let policy = policy(&settings.approval.mode, &settings.workspace)?;
    let state_dir = state_directory(&settings.workspace, settings.state_dir.clone())?;
    let shelf = match published {
        Some(directory) => ActionShelf::of_published(directory, state_dir),
        None => ActionShelf::in_directory(state_dir),
    };
    let refusal = match &settings.sandbox {
        Some(_) => ServeActionsError::Sandbox,
        None => ServeActionsError::Kernels,
    };
    let (line, asked) = mpsc::channel(APPROVER_QUESTIONS);
    let front = front.and_then(|team| team.front(&settings.workspace, line));
    let kernels = ActionKernels::new(settings, policy).with_front(front.clone());
    kernels.prepare().await.map_err(refusal)?;
    let server = Arc::new(ActionServer::new(shelf, kernels, timeout, closed.clone()));
    let serving = async {
        let served = serve(&server, closed).await;
        server.stop().await;
        served
    };
    match front {
        Some(front) => tokio::select! {
            served = serving => served,
            () = ApproverQuestions::new(asked).ask_at(&front.socket) => Ok(()),
        },
        None => serving.await,
    }
}

async fn serve(server: &Arc<ActionServer>, closed: CancellationToken) -> Result<(), ServeActionsError> {
    server.usable().await.map_err(ServeActionsError::Store)?;
    let (input, output) = stdio_pipes();
    let lines = LineTransport::new(input, output, Arc::default());
    let transport = ArrivalTransport::new(lines, closed.clone());
    let handler = ActionHandler { server: Arc::clone(server) };
    let end = CancellationToken::new();
    let ending = async {
        closed.cancelled().await;
        // What rmcp ends gets no answer.
        server.answered().await;
        end.cancel();
    };
    let serving = async {
        let served = match handler.serve_with_ct(transport, end.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(|error| error.to_string()),
            // It is to end, or the client went away, before it said anything: nothing is wrong.
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        closed.cancel();
        served.map_err(ServeActionsError::Protocol)
    };
    let (served, ()) = tokio::join!(serving, ending);
    served
}
