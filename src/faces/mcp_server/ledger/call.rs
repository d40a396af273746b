//! A call in the ledger: its work, its approval requests, and who waits for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::ErrorData;
use rmcp::model::{JsonObject, Task};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::WorkResult;
use super::call_task::CallTask;
use super::unfetched_answers::{UndeliveredReason, UnfetchedAnswer, text_of};
use crate::approval::{ApprovalQueue, ApprovalRequest};
use crate::faces::mcp_server::progress::{ProgressClient, ProgressListener};
use crate::faces::mcp_server::questions::SentSheets;
use crate::faces::mcp_server::queue::SessionQueue;
use crate::faces::people::page::ApprovalPage;
use crate::kernels::output::UnreadText;

/// The description of a call beside its work.
pub(in crate::faces::mcp_server) struct CallSubject {
    /// Its name, for people and models.
    pub(in crate::faces::mcp_server) call: String,
    /// When it arrived.
    pub(in crate::faces::mcp_server) begun: Instant,
    /// The queue in which it waits for the cells before it, if it does.
    pub(in crate::faces::mcp_server) queue: Option<SessionQueue>,
    /// Its number, if it is a cell that can be waited for in pieces, and what it has printed.
    pub(in crate::faces::mcp_server) cell: Option<(u64, Arc<UnreadText>)>,
    /// The time that its code may run, if it is a cell.
    pub(in crate::faces::mcp_server) limit: Duration,
}

/// The approval requests of a call.
pub(in crate::faces::mcp_server) struct CallQuestions {
    pub(in crate::faces::mcp_server) queue: Arc<ApprovalQueue>,
    pub(in crate::faces::mcp_server) receiver: mpsc::Receiver<ApprovalRequest>,
    pub(in crate::faces::mcp_server) pages: ClientPages,
}

/// The pages that the user of a client can be sent to.
#[derive(Default)]
pub(in crate::faces::mcp_server) struct ClientPages {
    /// The client says that it can open pages. Some that do cancel them.
    pub(in crate::faces::mcp_server) opens: bool,
    /// The page on which calls are decided, if the session has one.
    pub(in crate::faces::mcp_server) approval: Option<Arc<ApprovalPage>>,
}

/// The handle of a call, for the ledger and for the request that waits for it.
pub(in crate::faces::mcp_server) struct CallHandle {
    pub(in crate::faces::mcp_server) about: CallSubject,
    /// Ends the work.
    pub(super) cancel: CancellationToken,
    /// The client that gets its progress notifications.
    pub(super) listener: ProgressListener,
    /// The queue of its approval requests, if its client can ask its user.
    pub(super) approvals: Option<Arc<ApprovalQueue>>,
    /// The pages for its user.
    pub(in crate::faces::mcp_server) pages: ClientPages,
}

/// A call. Dropping it cancels the work.
pub(super) struct LedgerCall {
    /// Greater than that of every call that was begun before.
    pub(super) number: u64,
    pub(super) handle: Arc<CallHandle>,
    pub(super) state: CallState,
    /// The answer of the work, once it is done.
    pub(super) answer: Option<WorkResult>,
    /// The approval requests that are yet to be asked.
    pub(super) questions: VecDeque<ApprovalRequest>,
    /// Those that its client was sent, as a parked call or a task.
    pub(super) sent: SentSheets,
    /// Whether its client has its answer: it has fetched it, or got it with another one.
    pub(super) is_delivered: bool,
}

/// The waiter of a call.
pub(super) enum CallState {
    /// A request.
    Awaited {
        /// Has the request stop, if another one may take its place.
        given_up: Option<CancellationToken>,
        /// Whether the questions of the call are asked together with those of others.
        asks_together: bool,
    },
    /// Nobody. The client that knows it as this task may be gone.
    Left(Option<Task>),
    /// A client that was sent questions, and calls again with the answers.
    Parked(ParkedCall),
    /// A client that asks about it now and then.
    Task(CallTask),
}

/// The facts of a parked call by which its client takes it up.
pub(super) struct ParkedCall {
    pub(super) token: String,
    pub(super) tool: String,
    pub(super) arguments: Option<JsonObject>,
    /// The number of rounds that its client has been asked.
    pub(super) rounds: u32,
}

/// The next event of a call that a request waits for.
pub(in crate::faces::mcp_server) enum CallEvent {
    /// It is done.
    Done(WorkResult),
    /// There are approval requests to ask.
    Questions,
}

impl CallHandle {
    /// Sends the work's progress to this client from now on, if it gave a token.
    pub(in crate::faces::mcp_server) fn send_progress_to(&self, client: Option<ProgressClient>) {
        self.listener.set(client);
    }

    /// Interrupts the work.
    pub(in crate::faces::mcp_server) fn interrupt(&self) {
        self.cancel.cancel();
    }

    /// Whether the work was interrupted.
    pub(in crate::faces::mcp_server) fn is_interrupted(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Sets whether approval requests may wait for a client that takes them.
    pub(in crate::faces::mcp_server) fn attend(&self, is_attended: bool) {
        if let Some(approvals) = &self.approvals {
            approvals.attend(is_attended);
        }
    }

    /// Whether approval requests wait.
    pub(in crate::faces::mcp_server) fn is_asking(&self) -> bool {
        self.approvals.as_ref().is_some_and(|approvals| *approvals.waiting().borrow() > 0)
    }
}

impl LedgerCall {
    pub(super) fn about(&self) -> &CallSubject {
        &self.handle.about
    }

    /// The number of a cell that a request can wait for.
    pub(super) fn cell(&self) -> Option<u64> {
        self.about().cell.as_ref().map(|(number, _)| *number)
    }

    pub(super) fn is_done(&self) -> bool {
        self.answer.is_some()
    }

    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.state, CallState::Awaited { .. })
    }

    pub(super) fn is_left(&self) -> bool {
        matches!(self.state, CallState::Left(_))
    }

    /// Whether it is not done, but waits or runs in this queue.
    pub(super) fn is_open_in(&self, queue: &SessionQueue) -> bool {
        self.about().queue.as_ref() == Some(queue) && !self.is_done()
    }

    /// Whether approval requests are to be asked. Those that a grant has answered meanwhile are dropped.
    pub(super) fn has_questions(&mut self) -> bool {
        self.questions.retain(|request| !request.is_closed());
        !self.questions.is_empty()
    }

    /// Takes the approval requests that are yet to be asked.
    pub(super) fn take_questions(&mut self) -> VecDeque<ApprovalRequest> {
        self.has_questions();
        std::mem::take(&mut self.questions)
    }

    /// Nobody waits for it any more. Its questions can be asked by whoever comes, also those that its client was sent.
    pub(super) fn leave(&mut self, task: Option<Task>) {
        self.handle.send_progress_to(None);
        self.handle.attend(true);
        self.questions.iter().for_each(ApprovalRequest::take_back);
        self.questions.extend(self.sent.take_back());
        self.state = CallState::Left(task);
    }

    /// The answer for the next one that is sent, each once: it is done, and no request will fetch it.
    pub(super) fn unfetched(&mut self) -> Option<UnfetchedAnswer> {
        let text = match self.answer.as_ref().filter(|_| !self.is_delivered)? {
            Ok(result) => text_of(result),
            Err(error) => error.message.to_string(),
        };
        let begun = self.about().begun;
        let (why, after) = match &self.state {
            CallState::Left(_) if self.cell().is_none() => (UndeliveredReason::ClientGone, begun.elapsed()),
            CallState::Parked(_) => (UndeliveredReason::NotTakenUp, Duration::ZERO),
            CallState::Task(task) => (task.why_unfetched()?, begun.elapsed()),
            CallState::Left(_) | CallState::Awaited { .. } => return None,
        };
        self.is_delivered = true;
        Some(UnfetchedAnswer { call: self.about().call.clone(), text, why, after })
    }
}

impl Drop for LedgerCall {
    fn drop(&mut self) {
        // The work ends when the cell has.
        self.handle.interrupt();
    }
}

/// The error of a request that panics.
pub(in crate::faces::mcp_server) fn bug() -> ErrorData {
    // The panic hook has logged what happened.
    ErrorData::internal_error("ipybox has a bug: the request made it panic; see its log", None)
}
