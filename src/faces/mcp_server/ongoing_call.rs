//! A running tool call that may need approval.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, Task};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::progress::{ProgressClient, ProgressListener};
use super::questions::{GATHER, complete_batches, gather};
use super::queue::SessionQueue;
use super::unfetched_answers::text_of;
use crate::approval::{ApprovalQueue, ApprovalRequest};
use crate::faces::people::page::Page;
use crate::kernels::output::Unread;

/// The approval requests of a call.
pub(super) struct CallQuestions {
    pub(super) queue: Arc<ApprovalQueue>,
    /// Closed when the work is done.
    pub(super) receiver: mpsc::Receiver<ApprovalRequest>,
    /// The page that the client can open.
    pub(super) page: Option<Arc<Page>>,
}

/// A running call. Dropping it cancels the work.
pub(super) struct OngoingCall {
    pub(super) task: JoinHandle<Result<CallToolResult, ErrorData>>,
    /// The result, if [`look`](Self::look) found it before [`next`](Self::next) did.
    done: Option<Result<CallToolResult, ErrorData>>,
    questions: Option<CallQuestions>,
    /// The page that the client can open, on which they are decided.
    pub(super) page: Option<Arc<Page>>,
    /// Approval requests that came and are yet to be asked.
    waiting: VecDeque<ApprovalRequest>,
    /// Ends the work.
    pub(super) cancel: CancellationToken,
    /// The client that gets its progress notifications.
    listener: ProgressListener,
    about: CallSubject,
}

/// The description of a call beside its work.
pub(super) struct CallSubject {
    /// Its name, for people and models.
    pub(super) call: String,
    /// When it arrived.
    pub(super) begun: Instant,
    /// The queue in which it waits for the cells before it, if it does.
    pub(super) queue: Option<SessionQueue>,
    /// Its number, if it is a cell that can be waited for in pieces, and what it has printed.
    pub(super) cell: Option<(u64, Arc<Unread>)>,
    /// The time that its code may run, if it is a cell.
    pub(super) limit: Duration,
    /// The task as which its client knows it, if it became one.
    pub(super) task: Option<Task>,
}

/// The next event of the work.
pub(super) enum Next {
    /// It is done.
    Done(Result<CallToolResult, ErrorData>),
    /// There are approval requests to ask: [`OngoingCall::take_questions`].
    Questions,
}

/// The fate of a call while a request waited for it.
pub(super) enum FollowedCall<T> {
    /// The request has its answer.
    Answered(Result<T, ErrorData>),
    /// The call goes on without the request.
    Left(Box<OngoingCall>),
}

impl<T> FollowedCall<T> {
    /// Changes the answer, if there is one.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> FollowedCall<U> {
        match self {
            Self::Answered(answer) => FollowedCall::Answered(answer.map(change)),
            Self::Left(ongoing) => FollowedCall::Left(ongoing),
        }
    }
}

impl OngoingCall {
    /// Starts `work` in a task of its own. Its approval requests come from `questions`; `cancel` ends it.
    pub(super) fn start(
        work: impl Future<Output = Result<CallToolResult, ErrorData>> + Send + 'static,
        questions: Option<CallQuestions>,
        cancel: CancellationToken,
        listener: ProgressListener,
        about: CallSubject,
    ) -> Self {
        let (done, waiting) = (None, VecDeque::new());
        let page = questions.as_ref().and_then(|questions| questions.page.clone());
        Self { task: tokio::spawn(work), done, questions, page, waiting, cancel, listener, about }
    }

    /// The description of the call.
    pub(super) fn about(&self) -> &CallSubject {
        &self.about
    }

    /// Keeps under what name its client knows it.
    pub(super) fn name_task(&mut self, task: Task) {
        self.about.task = Some(task);
    }

    /// Sends the work's progress to this client from now on, if it gave a token.
    pub(super) fn send_progress_to(&self, client: Option<ProgressClient>) {
        self.listener.set(client);
    }

    /// Interrupts the work.
    pub(super) fn interrupt(&self) {
        self.cancel.cancel();
    }

    /// Sets whether approval requests may wait for a client that takes them.
    pub(super) fn attend(&self, is_attended: bool) {
        if let Some(questions) = &self.questions {
            questions.queue.attend(is_attended);
        }
    }

    /// Whether approval requests wait.
    pub(super) fn is_asking(&self) -> bool {
        self.questions.as_ref().is_some_and(|questions| *questions.queue.waiting().borrow() > 0)
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.is_some() || self.task.is_finished()
    }

    /// Whether it is not done, but waits or runs in this queue.
    pub(super) fn is_open_in(&self, queue: &SessionQueue) -> bool {
        self.about.queue.as_ref() == Some(queue) && !self.is_done()
    }

    /// The result of the work, if it is done.
    pub(super) fn look(&mut self) -> Option<&Result<CallToolResult, ErrorData>> {
        if self.done.is_none() && self.task.is_finished() {
            self.done = (&mut self.task).now_or_never().map(|done| done.unwrap_or_else(|_| Err(bug())));
        }
        self.done.as_ref()
    }

    /// The text of the result, if the work is done.
    pub(super) fn text(&mut self) -> Option<String> {
        Some(match self.look()? {
            Ok(result) => text_of(result),
            Err(error) => error.message.to_string(),
        })
    }

    /// Takes the result of the work, if it is done.
    pub(super) fn take_done(&mut self) -> Option<Result<CallToolResult, ErrorData>> {
        self.look();
        self.done.take()
    }

    /// Takes the approval requests that are yet to be asked.
    pub(super) fn take_questions(&mut self) -> VecDeque<ApprovalRequest> {
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
    pub(super) async fn come(&mut self, cancelled: &CancellationToken) -> Next {
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

    /// Takes all approval requests that have come, and the others of the batches of which some have.
    async fn complete_batches(&mut self) {
        if let Some(questions) = &mut self.questions
            && !complete_batches(&mut questions.receiver, &mut self.waiting).await
        {
            self.questions = None;
        }
    }
}

impl Drop for OngoingCall {
    fn drop(&mut self) {
        // The task ends when the cell has.
        self.cancel.cancel();
    }
}

/// Never resolves if the client cannot ask its user.
async fn next_question(questions: &mut Option<CallQuestions>) -> Option<ApprovalRequest> {
    match questions {
        Some(questions) => questions.receiver.recv().await,
        None => std::future::pending().await,
    }
}

pub(super) fn bug() -> ErrorData {
    // The panic hook has logged what happened.
    ErrorData::internal_error("ipybox has a bug: the request made it panic; see its log", None)
}
