//! A running tool call that may need approval.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use rmcp::model::{CallToolResult, Task};
use rmcp::{ErrorData, Peer, RoleServer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::elicit::{self, Asked};
use super::gathering::{GATHER, complete_batches, gather};
use super::sheet::Sheet;
use super::together::Caller;
use super::{Questions, Waiting};
use crate::approval::ApprovalRequest;
use crate::mcp_server::earlier::text_of;
use crate::mcp_server::progress::{Listener, ProgressClient};
use crate::output::Unread;
use crate::page::Page;

/// A running call. Dropping it cancels the work.
pub(in crate::mcp_server) struct Ongoing {
    task: JoinHandle<Result<CallToolResult, ErrorData>>,
    /// The result, if [`look`](Self::look) found it before [`next`](Self::next) did.
    done: Option<Result<CallToolResult, ErrorData>>,
    questions: Option<Questions>,
    /// The page that the client can open, on which they are decided.
    page: Option<Arc<Page>>,
    /// Approval requests that came and are yet to be asked.
    waiting: VecDeque<ApprovalRequest>,
    /// Ends the work.
    cancel: CancellationToken,
    /// Who gets its progress notifications.
    listener: Listener,
    about: About,
}

/// What is known of a call beside its work.
pub(in crate::mcp_server) struct About {
    /// Its name, for people and models.
    pub(in crate::mcp_server) call: String,
    /// When it arrived.
    pub(in crate::mcp_server) begun: Instant,
    /// Whether it waits in the session's queue for the cells before it.
    pub(in crate::mcp_server) is_queued: bool,
    /// Its number, if it is a cell that can be waited for in pieces, and what it has printed.
    pub(in crate::mcp_server) cell: Option<(u64, Arc<Unread>)>,
    /// What its client knows it by, if it became a task.
    pub(in crate::mcp_server) task: Option<Task>,
}

/// The next event of the work.
pub(super) enum Next {
    /// It is done.
    Done(Result<CallToolResult, ErrorData>),
    /// There are approval requests to ask: [`Ongoing::take_questions`].
    Questions,
}

/// What became of a call while a request waited for it.
pub(in crate::mcp_server) enum Followed<T> {
    /// The request has its answer.
    Answered(Result<T, ErrorData>),
    /// The call goes on without the request.
    Left(Box<Ongoing>),
}

impl<T> Followed<T> {
    /// Changes the answer, if there is one.
    pub(in crate::mcp_server) fn map<U>(self, change: impl FnOnce(T) -> U) -> Followed<U> {
        match self {
            Self::Answered(answer) => Followed::Answered(answer.map(change)),
            Self::Left(ongoing) => Followed::Left(ongoing),
        }
    }
}

impl Ongoing {
    /// Starts `work` in a task of its own. Its approval requests come from `questions`; `cancel` ends it.
    pub(in crate::mcp_server) fn start(
        work: impl Future<Output = Result<CallToolResult, ErrorData>> + Send + 'static,
        questions: Option<Questions>,
        cancel: CancellationToken,
        listener: Listener,
        about: About,
    ) -> Self {
        let (done, waiting) = (None, VecDeque::new());
        let page = questions.as_ref().and_then(|questions| questions.page.clone());
        Self { task: tokio::spawn(work), done, questions, page, waiting, cancel, listener, about }
    }

    /// What is known of the call.
    pub(in crate::mcp_server) fn about(&self) -> &About {
        &self.about
    }

    /// Keeps under what name its client knows it.
    pub(super) fn name_task(&mut self, task: Task) {
        self.about.task = Some(task);
    }

    /// Sends the work's progress to this client from now on, if it gave a token.
    pub(in crate::mcp_server) fn send_progress_to(&self, client: Option<ProgressClient>) {
        self.listener.set(client);
    }

    /// Interrupts the work.
    pub(in crate::mcp_server) fn interrupt(&self) {
        self.cancel.cancel();
    }

    /// Sets whether approval requests may wait for a client that takes them.
    pub(in crate::mcp_server) fn attend(&self, is_attended: bool) {
        if let Some(questions) = &self.questions {
            questions.queue.attend(is_attended);
        }
    }

    /// Whether approval requests wait.
    pub(in crate::mcp_server) fn is_asking(&self) -> bool {
        self.questions.as_ref().is_some_and(|questions| *questions.queue.waiting().borrow() > 0)
    }

    pub(in crate::mcp_server) fn is_done(&self) -> bool {
        self.done.is_some() || self.task.is_finished()
    }

    /// The result of the work, if it is done.
    pub(in crate::mcp_server) fn look(&mut self) -> Option<&Result<CallToolResult, ErrorData>> {
        if self.done.is_none() && self.task.is_finished() {
            self.done = (&mut self.task).now_or_never().map(|done| done.unwrap_or_else(|_| Err(bug())));
        }
        self.done.as_ref()
    }

    /// The text of the result, if the work is done.
    pub(in crate::mcp_server) fn text(&mut self) -> Option<String> {
        Some(match self.look()? {
            Ok(result) => text_of(result),
            Err(error) => error.message.to_string(),
        })
    }

    /// Takes the result of the work, if it is done.
    pub(in crate::mcp_server) fn take_done(&mut self) -> Option<Result<CallToolResult, ErrorData>> {
        self.look();
        self.done.take()
    }

    /// Takes the approval requests that are yet to be asked.
    pub(in crate::mcp_server) fn take_questions(&mut self) -> VecDeque<ApprovalRequest> {
        if let Some(questions) = &mut self.questions {
            gather(&mut questions.receiver, &mut self.waiting);
        }
        // A grant may have answered some meanwhile.
        self.waiting.retain(|request| !request.is_closed());
        std::mem::take(&mut self.waiting)
    }

    /// Gives back approval requests, to be asked again.
    pub(super) fn give_back(&mut self, requests: impl IntoIterator<Item = ApprovalRequest>) {
        for request in requests {
            request.take_back();
            self.waiting.push_back(request);
        }
    }

    /// Waits for the end or for approval requests, and for those that come at once with these. On `cancelled`, the work is
    /// cancelled. Cancellation safe.
    pub(super) async fn next(&mut self, cancelled: &CancellationToken) -> Next {
        let next = self.come(cancelled).await;
        if matches!(next, Next::Questions) {
            tokio::time::sleep(GATHER).await;
            self.complete_batches().await;
        }
        next
    }

    /// The same, for whole batches and without the others that come at once.
    async fn come(&mut self, cancelled: &CancellationToken) -> Next {
        if let Some(done) = self.done.take() {
            return Next::Done(done);
        }
        self.waiting.retain(|request| !request.is_closed());
        loop {
            tokio::select! {
                biased;
                done = &mut self.task => return Next::Done(done.unwrap_or_else(|_| Err(bug()))),
                () = std::future::ready(()), if !self.waiting.is_empty() => {
                    self.complete_batches().await;
                    return Next::Questions;
                }
                question = next_question(&mut self.questions) => match question {
                    Some(question) => self.waiting.push_back(question),
                    None => self.questions = None,
                },
                () = cancelled.cancelled(), if !self.cancel.is_cancelled() => self.cancel.cancel(),
            }
        }
    }

    /// Runs to the end, or until it is time to leave, and sends approval requests by elicitation, one at a time for all calls
    /// together.
    pub(in crate::mcp_server) async fn elicit(
        mut self,
        peer: &Peer<RoleServer>,
        Waiting { cancelled, leave, left, together }: Waiting<'_>,
    ) -> Followed<CallToolResult> {
        let caller = together.caller(left);
        loop {
            let mut turn = tokio::select! {
                biased;
                // First, since the end of a connection cancels its requests too.
                () = leave.come() => return self.left(caller),
                next = self.come(cancelled) => match next {
                    Next::Done(done) => return Followed::Answered(done),
                    Next::Questions => {
                        caller.share(self.take_questions());
                        continue;
                    }
                },
                turn = caller.turn() => turn,
            };
            while let Some(sheet) = Sheet::next(&mut turn.questions) {
                let may_give_grant = sheet.may_give_grant();
                let over = CancellationToken::new();
                let page = self.page.clone();
                let mut ask = std::pin::pin!(elicit::ask(peer, sheet, &over, page.as_deref()));
                let (mut done, mut is_left) = (None, false);
                let asked = loop {
                    tokio::select! {
                        biased;
                        asked = &mut ask => break asked,
                        end = &mut self.task, if done.is_none() => {
                            // Approval requests of threads that outlive the call are dropped.
                            done = Some(end);
                            over.cancel();
                        }
                        () = leave.come(), if !is_left => {
                            is_left = true;
                            over.cancel();
                        }
                        () = cancelled.cancelled(), if !is_left && !self.cancel.is_cancelled() => {
                            self.cancel.cancel();
                        }
                    }
                };
                let is_answered = matches!(asked, Asked::Answered);
                let is_taken_back = match asked {
                    Asked::TakenBack(sheet) => {
                        take_back(&mut turn.questions, sheet);
                        true
                    }
                    Asked::Answered | Asked::Unanswered => false,
                };
                if let Some(done) = done {
                    turn.drop_of(&caller);
                    return Followed::Answered(done.unwrap_or_else(|_| Err(bug())));
                }
                if is_taken_back {
                    drop(turn);
                    return self.left(caller);
                }
                if self.cancel.is_cancelled() {
                    // Requests that will be rejected anyway are not shown.
                    turn.drop_of(&caller);
                }
                // If the user does not answer, the timeouts of the waiting requests begin now, not when each is shown.
                self.attend(is_answered);
                if !is_answered {
                    turn.hand_out();
                }
                if may_give_grant && !turn.questions.is_empty() {
                    // A grant may answer what waits, so that it is not shown.
                    tokio::time::sleep(GATHER).await;
                }
            }
        }
    }

    /// Goes on without the request that has waited.
    fn left(mut self, caller: Caller<'_>) -> Followed<CallToolResult> {
        self.give_back(caller.leave());
        Followed::Left(Box::new(self))
    }

    /// Takes all approval requests that have come, and the others of the batches of which some have.
    async fn complete_batches(&mut self) {
        if let Some(questions) = &mut self.questions
            && !complete_batches(&mut questions.receiver, &mut self.waiting).await
        {
            self.questions = None;
        }
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        // The task ends when the cell has.
        self.cancel.cancel();
    }
}

fn take_back(waiting: &mut VecDeque<ApprovalRequest>, sheet: Sheet) {
    for request in sheet.into_requests().into_iter().rev() {
        request.take_back();
        waiting.push_front(request);
    }
}

/// Never resolves if the client cannot ask its user.
async fn next_question(questions: &mut Option<Questions>) -> Option<ApprovalRequest> {
    match questions {
        Some(questions) => questions.receiver.recv().await,
        None => std::future::pending().await,
    }
}

fn bug() -> ErrorData {
    // The panic hook has logged what happened.
    ErrorData::internal_error("ipybox has a bug: the request made it panic; see its log", None)
}
