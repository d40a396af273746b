//! The requests of a client follow their calls: to the end, to a question, or until they stop waiting.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use tokio_util::sync::CancellationToken;

use super::arrivals::{ArrivalTurn, CallArrival};
use super::asking::{AskVia, LeaveTime, WaitingRequest, follow, has_tasks, rounds, tasks};
use super::call_context::CallContext;
use super::execute::CellArguments;
use super::handler::{ConnectionHandler, answer_panics};
use super::ledger::{
    AwaitedCall, CallId, CallSubject, FollowedCall, OutgoingAnswer, UndeliveredReason, UnderWay,
    UnfetchedAnswer, name_of, text_of,
};
use super::progress::{self, ProgressListener, ProgressNotifier};
use super::queue::SessionQueue;
use super::server::McpServer;
use super::tools::{CallRefusal, RequestedTool};
use super::{client_sandbox, execute, reply, reset, resources, traced_handler, uploads, views, wait};
use crate::ground::telemetry::Operation;
use crate::session::ToldPermissions;

/// The queue in which a call waits; `None` for a tool whose calls do not wait.
fn queue_of(request: &CallToolRequestParams) -> Option<SessionQueue> {
    let handle = request.arguments.as_ref().and_then(|arguments| arguments.get("session")?.as_str());
    let is_queued = [execute::NAME, reset::NAME].contains(&&*request.name);
    SessionQueue::of_session(handle).filter(|_| is_queued)
}

/// The arguments of a call; none if it has none.
fn arguments_of(request: &CallToolRequestParams) -> Cow<'_, JsonObject> {
    request.arguments.as_ref().map_or_else(Cow::default, Cow::Borrowed)
}

impl McpServer {
    /// Adds news, and earlier answers that may not have reached the client, to an answer.
    async fn deliver(
        &self,
        request: &CallToolRequestParams,
        call: &CallId,
        arrived: Instant,
        result: CallToolResult,
    ) -> CallToolResult {
        let queue = queue_of(request);
        if let Some(queue) = &queue {
            self.ledger.settle(call, queue, arrived).await;
        }
        self.ledger.keep_unfetched(self.session()).await;
        self.news.add_all(self.attached.news());
        let news = self.news.take(queue.is_some()).await;
        let name = name_of(&request.name, request.arguments.as_ref());
        let answer = OutgoingAnswer { call: name, result, news, is_recall: execute::is_recall(request) };
        self.ledger.answer(call, answer, self.session()).await
    }

    /// Keeps an answer whose client is gone, for the next one.
    async fn keep(&self, request: &CallToolRequestParams, result: &CallToolResult) {
        let answer = UnfetchedAnswer {
            call: name_of(&request.name, request.arguments.as_ref()),
            text: text_of(result),
            why: UndeliveredReason::ClientGone,
            after: Duration::ZERO,
        };
        self.ledger.keep(answer, self.session()).await;
    }
}

impl ConnectionHandler {
    /// Answers a call of a tool.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = CallId { connection: self.connection.number, id: context.id.clone() };
        let arrived = CallArrival::of(&context.extensions).at;
        self.server.ledger.arrive(&call, UnderWay::new(queue_of(&request), &context));
        self.server.ask_kernel_if_due().await;
        let answer = async {
            match &request.request_state {
                Some(state) => self.resume(state, &request, &context).await,
                None => self.begin(&request, &context).await,
            }
        };
        match answer_panics(answer).await {
            Ok(CallToolResponse::Complete(result))
                if self.connection.outlived_by.is_some() && self.connection.closed.is_cancelled() =>
            {
                self.server.ledger.forget(&call);
                self.server.keep(&request, &result).await;
                Err(ErrorData::internal_error("the client is gone", None))
            }
            Ok(CallToolResponse::Complete(result)) => {
                Ok(self.server.deliver(&request, &call, arrived, result).await.into())
            }
            other => {
                self.server.ledger.forget(&call);
                other
            }
        }
    }

    /// Begins a call, and runs it until it is done, the client must ask its user, or the request does not wait longer.
    async fn begin(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut operation = traced_handler::call(&self.server, request, context);
        if request.name == wait::NAME && self.server.has_long_cells {
            let answer = self.wait_for_cell(request, context, &operation).await;
            traced_handler::answered(&self.server, &mut operation, &answer);
            return answer;
        }
        match self.read(request, context).await {
            Ok((tool, permissions)) => self.start(tool, permissions, request, context, operation).await,
            Err(refusal) => {
                drop(ArrivalTurn::of(&context.extensions));
                let refused = refusal.into();
                traced_handler::done(&self.server, &mut operation, &refused);
                refused.map(Into::into)
            }
        }
    }

    /// Reads the arguments of a call and the client's permissions, and takes the files that come with a cell.
    async fn read(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<(RequestedTool, ToldPermissions), CallRefusal> {
        let permissions = if self.server.obeys_client {
            client_sandbox::of(&context.meta.0.0).map_err(CallRefusal::Arguments)?
        } else {
            None
        };
        if request.name == execute::NAME {
            let put = uploads::put(self.server.session().workspace(), &context.meta.0.0).await;
            put.map_err(CallRefusal::Arguments)?;
        }
        let tool = RequestedTool::read(&request.name, &arguments_of(request), self.server.has_long_cells)?;
        Ok((tool, permissions))
    }

    /// Starts the work of a tool, and follows it.
    async fn start(
        &self,
        tool: RequestedTool,
        permissions: ToldPermissions,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        mut operation: Operation,
    ) -> Result<CallToolResponse, ErrorData> {
        let ask_via = AskVia::of(context);
        let (approver, questions) = ask_via.approver(&self.server.attached);
        let listener = ProgressListener::of(context);
        let cancelled = CancellationToken::new();
        let long_cell = tool.long_cell(self.server.has_long_cells);
        let (limit, wait) = long_cell.map(|cell| (cell.timeout, cell.wait)).unwrap_or_default();
        let cell = long_cell.map(|cell| (self.server.ledger.new_cell(), cell.unread()));
        let about = CallSubject {
            call: name_of(&request.name, request.arguments.as_ref()),
            begun: CallArrival::of(&context.extensions).at,
            queue: queue_of(request),
            cell: cell.clone(),
            limit,
        };
        let may_come_later = cell.is_some() || matches!(ask_via, AskVia::Rounds { .. });
        let call_context = CallContext {
            turn: ArrivalTurn::of(&context.extensions),
            progress: ProgressNotifier::wanted_by(
                listener.clone(),
                may_come_later,
                self.server.attached.page().cloned(),
            ),
            cancelled: cancelled.clone(),
            approver,
            permissions,
            cell: cell.as_ref().map(|(number, _)| *number),
            unread: cell.map(|(_, unread)| unread),
            has_links: resources::are_wanted(self.server.resource_links, context),
            has_views: self.server.has_views && views::are_shown_by(context),
        };
        let server = Arc::clone(&self.server);
        traced_handler::about_cell(&operation, about.cell.as_ref().map(|(number, _)| *number));
        let span = operation.context();
        // The cell may outlive this request, and the span is that of the cell.
        let work = span.around(async move {
            let result = Ok(tool.run(Arc::clone(&server), call_context).await);
            traced_handler::done(&server, &mut operation, &result);
            result
        });
        let call = self.server.ledger.begin(work, questions, cancelled, listener, about);
        let leave = self.leave_after(wait);
        self.follow(call, request, context, self.waiting(&context.ct, &leave)).await
    }

    /// Waits for a cell that was left. Unlike that of a cell, the cancellation of this request ends the waiting alone.
    async fn wait_for_cell(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        operation: &Operation,
    ) -> Result<CallToolResponse, ErrorData> {
        drop(ArrivalTurn::of(&context.extensions));
        let wait = match wait::read(&arguments_of(request)) {
            Ok(wait) => wait,
            Err(refusal) => return Ok(reply::failure(refusal).into()),
        };
        traced_handler::about_cell(operation, Some(wait.cell));
        let given_up = context.ct.child_token();
        let call = match self.server.ledger.take(wait.cell, &given_up).await {
            Ok(call) => call,
            Err(refusal) => {
                let fetched = self.server.ledger.fetched(wait.cell);
                return Ok(fetched.unwrap_or_else(|| reply::failure(refusal)).into());
            }
        };
        if wait.interrupt {
            call.handle.interrupt();
        }
        call.handle.send_progress_to(progress::listener_of(context));
        let leave = LeaveTime { given_up, ..self.leave_after(Some(wait.timeout)) };
        self.follow(call, request, context, self.waiting(&CancellationToken::new(), &leave)).await
    }

    /// Goes on with a call whose client has come back with answers.
    async fn resume(
        &self,
        state: &str,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // Its cell is in the queue already.
        drop(ArrivalTurn::of(&context.extensions));
        let arguments = arguments_of(request);
        let (cancelled, leave) = if request.name == wait::NAME {
            let timeout = wait::read(&arguments).map(|wait| wait.timeout).ok();
            let given_up = context.ct.clone();
            (CancellationToken::new(), LeaveTime { given_up, ..self.leave_after(timeout) })
        } else {
            let cell = CellArguments::read(&arguments, self.server.has_long_cells);
            (context.ct.clone(), self.leave_after(cell.ok().and_then(|cell| cell.wait)))
        };
        let waiting = self.waiting(&cancelled, &leave);
        let mut resumed = self.server.ledger.resume(state, request)?;
        resumed.call.handle.attend(true);
        resumed.call.handle.send_progress_to(progress::listener_of(context));
        resumed.sent.answer(request.input_responses.as_ref());
        self.followed(request, context, rounds::go_on(resumed, request, waiting).await)
    }

    /// Leaves a call, or answers the request: the answer is kept if it is that of a cell which was waited for.
    fn followed(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        followed: FollowedCall<CallToolResponse>,
    ) -> Result<CallToolResponse, ErrorData> {
        let answer = match followed {
            FollowedCall::Answered(answer) => answer,
            FollowedCall::Left(call) => return self.leave(call),
        };
        // What comes after a cancellation goes into the next answer.
        if request.name == wait::NAME
            && !context.ct.is_cancelled()
            && let Ok(CallToolResponse::Complete(result)) = &answer
            && let Ok(wait) = wait::read(&arguments_of(request))
        {
            self.server.ledger.note_fetched(wait.cell, result);
        }
        answer
    }

    /// Follows a call until its end, until its client must ask its user, or until it is time to leave.
    async fn follow(
        &self,
        call: AwaitedCall,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        waiting: WaitingRequest<'_>,
    ) -> Result<CallToolResponse, ErrorData> {
        let may_be_task = has_tasks(context) && request.name != wait::NAME;
        let followed = match AskVia::of(context) {
            _ if may_be_task => tasks::follow(call, self.connection.number, waiting).await,
            AskVia::Rounds { .. } => rounds::follow(call, request, waiting).await,
            AskVia::Elicitation { .. } => {
                follow::by_elicitation(call, Some(&context.peer), waiting).await.map(Into::into)
            }
            AskVia::None => follow::by_elicitation(call, None, waiting).await.map(Into::into),
        };
        self.followed(request, context, followed)
    }

    /// Lets a call go on without a request.
    fn leave(&self, call: AwaitedCall) -> Result<CallToolResponse, ErrorData> {
        if self.connection.closed.is_cancelled() {
            // Dropping it cancels the work.
            let why = match &self.connection.outlived_by {
                Some(session) => {
                    call.leave();
                    if session.is_cancelled() {
                        "the session was ended, and this call with it"
                    } else {
                        "the client has ended its input; the call goes on, and the next client has its answer"
                    }
                }
                None => "the server is shutting down",
            };
            return Err(ErrorData::internal_error(why, None));
        }
        if let Some(done) = call.take_answer() {
            return done.map(Into::into);
        }
        let answer = wait::still_running(&call.handle);
        call.leave();
        Ok(answer.into())
    }

    fn waiting<'a>(&'a self, cancelled: &'a CancellationToken, leave: &'a LeaveTime) -> WaitingRequest<'a> {
        WaitingRequest { cancelled, leave, turns: &self.server.asking_turns }
    }

    fn leave_after(&self, time: Option<Duration>) -> LeaveTime {
        let at = time.map(|time| tokio::time::Instant::now() + time);
        LeaveTime { closed: self.connection.closed.clone(), given_up: CancellationToken::new(), at }
    }
}
