//! A running tool call that may need approval.

use std::collections::VecDeque;
use std::time::Duration;

use futures::FutureExt as _;
use rmcp::model::{CallToolResult, ProgressToken};
use rmcp::{ErrorData, Peer, RoleServer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Questions, elicit};
use crate::approval::ApprovalRequest;
use crate::mcp_server::progress::TokenSlot;

/// How long to wait for further questions after one, to ask them together: calls made at once come within milliseconds.
const GATHER: Duration = Duration::from_millis(20);

/// A running call. Dropping it cancels the work.
pub(in crate::mcp_server) struct Ongoing {
    task: JoinHandle<Result<CallToolResult, ErrorData>>,
    /// The result, if [`look`](Self::look) found it before [`next`](Self::next) did.
    done: Option<Result<CallToolResult, ErrorData>>,
    questions: Option<Questions>,
    /// Ends the work.
    cancel: CancellationToken,
    /// The token for its progress notifications.
    progress: TokenSlot,
}

/// The next event of the work.
pub(super) enum Next {
    /// It is done.
    Done(Result<CallToolResult, ErrorData>),
    /// Approval requests to ask together.
    Questions(Vec<ApprovalRequest>),
}

impl Ongoing {
    /// Starts `work` in a task of its own. Its approval requests come from `questions`; `cancel` ends it.
    pub(in crate::mcp_server) fn start(
        work: impl Future<Output = Result<CallToolResult, ErrorData>> + Send + 'static,
        questions: Option<Questions>,
        cancel: CancellationToken,
        progress: TokenSlot,
    ) -> Self {
        Self { task: tokio::spawn(work), done: None, questions, cancel, progress }
    }

    /// Sends the work's progress under this token from now on.
    pub(super) fn send_progress_under(&self, token: Option<ProgressToken>) {
        self.progress.set(token);
    }

    /// Sets whether the client can take approval requests now.
    pub(super) fn attend(&self, is_attended: bool) {
        if let Some(questions) = &self.questions {
            questions.queue.attend(is_attended);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.task.is_finished()
    }

    /// The result of the work, if it is done.
    pub(super) fn look(&mut self) -> Option<&Result<CallToolResult, ErrorData>> {
        if self.done.is_none() && self.task.is_finished() {
            self.done = (&mut self.task).now_or_never().map(|done| done.unwrap_or_else(|_| Err(bug())));
        }
        self.done.as_ref()
    }

    /// Waits for the end or for approval requests. On `cancelled`, the work is cancelled.
    pub(super) async fn next(&mut self, cancelled: &CancellationToken) -> Next {
        if let Some(done) = self.done.take() {
            return Next::Done(done);
        }
        loop {
            tokio::select! {
                biased;
                done = &mut self.task => return Next::Done(done.unwrap_or_else(|_| Err(bug()))),
                question = next_question(&mut self.questions) => match question {
                    Some(question) => return Next::Questions(self.gather(question).await),
                    None => self.questions = None,
                },
                () = cancelled.cancelled(), if !self.cancel.is_cancelled() => self.cancel.cancel(),
            }
        }
    }

    /// Runs to the end and sends approval requests by elicitation, one at a time.
    pub(in crate::mcp_server) async fn elicit(
        mut self,
        peer: &Peer<RoleServer>,
        cancelled: &CancellationToken,
    ) -> Result<CallToolResult, ErrorData> {
        let mut waiting = VecDeque::new();
        loop {
            while let Some(question) = waiting.pop_front() {
                let over = CancellationToken::new();
                let mut ask = std::pin::pin!(elicit::ask(peer, question, &over));
                let mut done = None;
                let is_answered = loop {
                    tokio::select! {
                        is_answered = &mut ask => break is_answered,
                        end = &mut self.task, if done.is_none() => {
                            // Approval requests of threads that outlive the call are dropped.
                            done = Some(end);
                            over.cancel();
                        }
                        () = cancelled.cancelled(), if !self.cancel.is_cancelled() => self.cancel.cancel(),
                    }
                };
                if let Some(done) = done {
                    return done.unwrap_or_else(|_| Err(bug()));
                }
                if self.cancel.is_cancelled() {
                    // Requests that will be rejected anyway are not shown.
                    waiting.clear();
                }
                // If the user does not answer, the timeouts of the waiting requests begin now, not when each
                // is shown.
                self.attend(is_answered);
                waiting.extend(self.take_questions());
            }
            match self.next(cancelled).await {
                Next::Done(done) => return done,
                Next::Questions(questions) => waiting.extend(questions),
            }
        }
    }

    async fn gather(&mut self, first: ApprovalRequest) -> Vec<ApprovalRequest> {
        tokio::time::sleep(GATHER).await;
        let mut questions = vec![first];
        questions.extend(self.take_questions());
        questions
    }

    fn take_questions(&mut self) -> Vec<ApprovalRequest> {
        let receiver = self.questions.as_mut();
        receiver
            .map(|questions| std::iter::from_fn(|| questions.receiver.try_recv().ok()).collect())
            .unwrap_or_default()
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        // The task ends when the cell has.
        self.cancel.cancel();
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
