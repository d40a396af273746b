//! The work of calls of actions: each waits for its place, and gets a kernel that has run nothing.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer;
use crate::approval::{ApprovalQueue, Approver};
use crate::faces::detached_actions::{
    ActionCell, ActionKernel, ActionKernels, ActionShelf, KernelActionError, ShelvedAction,
};
use crate::faces::mcp_server::asking::{AskVia, AskingTurns, LeaveTime, WaitingRequest, follow, rounds};
use crate::faces::mcp_server::ledger::{
    AwaitedCall, CallLedger, CallQuestions, CallSubject, ClientPages, FollowedCall, WorkResult, name_of,
};
use crate::faces::mcp_server::progress::{ProgressListener, ProgressNotifier};
use crate::faces::mcp_server::reply;
use crate::tools::actions::SavedAction;

/// The number of calls that run at the same time: each has a kernel, with its memory. Others wait.
const MOST_KERNELS: usize = 4;

/// The number of chunks of output that may wait to be sent as progress.
const CHUNKS_CAPACITY: usize = 64;

/// The refusal if the client cannot ask its user.
const CANNOT_ASK: &str = "the MCP client does not support elicitation\n\
     hint: the user can allow calls beforehand in a policy file (`--approval policy --approval-policy FILE`)";

/// The server's state.
pub(super) struct ActionServer {
    shelf: ActionShelf,
    kernels: ActionKernels,
    timeout: Duration,
    ledger: Arc<CallLedger>,
    turns: AskingTurns,
    places: Semaphore,
    /// Cancelled when the client is gone, or the server is to end.
    closed: CancellationToken,
    /// The requests that have not been answered.
    requests: TaskTracker,
    /// The calls whose kernels have not ended.
    calls: TaskTracker,
    /// The actions that the client has been told of, with their versions.
    told: Mutex<Vec<(String, u32)>>,
}

/// A call that is about to run.
struct ActionCall {
    action: SavedAction,
    arguments: JsonObject,
    approver: Approver,
    progress: Option<ProgressNotifier>,
    cancelled: CancellationToken,
}

impl ActionServer {
    pub(super) fn new(
        shelf: ActionShelf,
        kernels: ActionKernels,
        timeout: Duration,
        closed: CancellationToken,
    ) -> Self {
        Self {
            shelf,
            kernels,
            timeout,
            ledger: Arc::default(),
            turns: AskingTurns::default(),
            places: Semaphore::new(MOST_KERNELS),
            closed,
            requests: TaskTracker::new(),
            calls: TaskTracker::new(),
            told: Mutex::default(),
        }
    }

    /// All actions, and whether those that can be used are others than the client has been told of.
    async fn look(&self) -> io::Result<(Vec<ShelvedAction>, bool)> {
        let shelf = self.shelf.clone();
        let looking = tokio::task::spawn_blocking(move || shelf.all());
        let found = looking.await.map_err(io::Error::other).flatten()?;
        let usable = found.iter().filter(|shelved| shelved.state.is_usable());
        let now: Vec<(String, u32)> =
            usable.map(|shelved| (shelved.action.name.clone(), shelved.action.version)).collect();
        let mut told = self.told.lock();
        let is_news = *told != now;
        *told = now;
        Ok((found, is_news))
    }

    /// The actions that can be used; the client is told of them.
    pub(super) async fn usable(&self) -> io::Result<Vec<ShelvedAction>> {
        let (mut found, _) = self.look().await?;
        found.retain(|shelved| shelved.state.is_usable());
        Ok(found)
    }

    /// Answers a call.
    pub(super) async fn call(
        self: &Arc<Self>,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _request = self.requests.token();
        let leave = LeaveTime { closed: self.closed.clone(), given_up: CancellationToken::new(), at: None };
        let waiting = WaitingRequest { cancelled: &context.ct, leave: &leave, turns: &self.turns };
        let followed = match &request.request_state {
            Some(state) => {
                let mut resumed = self.ledger.resume(state, &request)?;
                resumed.call.handle.attend(true);
                resumed.sent.answer(request.input_responses.as_ref());
                rounds::go_on(resumed, &request, waiting).await
            }
            None => {
                let (found, is_news) = self.look().await.map_err(|error| {
                    ErrorData::internal_error(format!("the saved actions cannot be read: {error}"), None)
                })?;
                if is_news && let Err(error) = context.peer.notify_tool_list_changed().await {
                    tracing::debug!(%error, "could not tell the client that the tools have changed");
                }
                let named = found.into_iter().find(|shelved| shelved.action.name == request.name);
                let Some(ShelvedAction { action, state, .. }) = named else {
                    return Err(ErrorData::invalid_params(
                        format!("there is no tool `{}`", request.name),
                        None,
                    ));
                };
                if let Some(why) = state.why() {
                    let refusal =
                        format!("`{}` cannot be called: it is {}: {why}", action.name, state.word());
                    return Ok(reply::failure(refusal).into());
                }
                let ask_via = AskVia::of(context);
                let call = self.begin(action, &request, context, ask_via);
                match ask_via {
                    AskVia::Rounds { .. } => rounds::follow(call, &request, waiting).await,
                    AskVia::Elicitation { .. } => {
                        follow::by_elicitation(call, Some(&context.peer), waiting).await.map(Into::into)
                    }
                    AskVia::None => follow::by_elicitation(call, None, waiting).await.map(Into::into),
                }
            }
        };
        match followed {
            FollowedCall::Answered(answer) => answer,
            // Dropping the call cancels its work.
            FollowedCall::Left(_) => Err(ErrorData::internal_error("the server is shutting down", None)),
        }
    }

    /// Begins the work of a call.
    fn begin(
        self: &Arc<Self>,
        action: SavedAction,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        ask_via: AskVia,
    ) -> AwaitedCall {
        let (approver, questions) = approver(ask_via);
        let listener = ProgressListener::of(context);
        let cancelled = self.closed.child_token();
        let may_come_later = matches!(ask_via, AskVia::Rounds { .. });
        let call = ActionCall {
            action,
            arguments: request.arguments.clone().unwrap_or_default(),
            approver,
            progress: ProgressNotifier::wanted_by(listener.clone(), may_come_later, None),
            cancelled: cancelled.clone(),
        };
        let about = CallSubject {
            call: name_of(&request.name, request.arguments.as_ref()),
            begun: Instant::now(),
            queue: None,
            cell: None,
            limit: self.timeout,
        };
        let server = Arc::clone(self);
        let open = self.calls.token();
        let work = async move {
            let answer = server.work(call).await;
            drop(open);
            answer
        };
        self.ledger.begin(work, questions, cancelled, listener, about)
    }

    async fn work(&self, call: ActionCall) -> WorkResult {
        let place = call.cancelled.run_until_cancelled(self.places.acquire()).await;
        let Some(Ok(_place)) = place else { return Ok(reply::failure("The call was cancelled.")) };
        let kernel = match self.kernels.take().await {
            Ok(kernel) => kernel,
            Err(error) => return Ok(reply::error(&error)),
        };
        let answer = self.work_in(&kernel, call).await;
        kernel.close().await;
        Ok(answer.unwrap_or_else(|error| reply::error(&error)))
    }

    async fn work_in(
        &self,
        kernel: &ActionKernel,
        call: ActionCall,
    ) -> Result<CallToolResult, KernelActionError> {
        let ActionCall { action, arguments, approver, progress, cancelled } = call;
        kernel.equip(&self.shelf, &action).await?;
        let waiting = approver.waiting();
        let (chunks, reporting) = match progress {
            Some(progress) => {
                let (sender, receiver) = mpsc::channel(CHUNKS_CAPACITY);
                let session = &kernel.session;
                let phase = session.phase();
                let servers = session.progress_of_servers();
                (Some(sender), Some(progress.report_cell(phase, servers, waiting, receiver)))
            }
            None => (None, None),
        };
        let cell = ActionCell { timeout: self.timeout, cancel: cancelled, chunks, approver };
        let calling = kernel.call(&action, arguments, cell);
        let (run, _) = tokio::join!(calling, futures::future::OptionFuture::from(reporting));
        Ok(answer::of(&action, run?))
    }

    /// Waits until all requests are answered, after which none may come.
    pub(super) async fn answered(&self) {
        self.requests.close();
        self.requests.wait().await;
    }

    /// Ends all calls, and the kernels.
    pub(super) async fn stop(&self) {
        self.closed.cancel();
        self.calls.close();
        self.calls.wait().await;
        self.kernels.stop().await;
    }
}

/// The approver of a client that can ask its user so, and the receiver of its requests.
fn approver(ask_via: AskVia) -> (Approver, Option<CallQuestions>) {
    match ask_via {
        AskVia::None => (Approver::Nobody(CANNOT_ASK), None),
        AskVia::Elicitation { opens_pages } | AskVia::Rounds { opens_pages } => {
            // Nobody is attached.
            let (people, _) = ApprovalQueue::of_attached();
            let (queue, receiver) = ApprovalQueue::of_dialogs(people);
            let pages = ClientPages { opens: opens_pages, approval: None };
            (Approver::User(Arc::clone(&queue)), Some(CallQuestions { queue, receiver, pages }))
        }
    }
}
