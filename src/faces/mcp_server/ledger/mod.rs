//! The ledger of calls: what runs for clients, and what became of its answers.
//!
//! A call outlives the request that began it: its client is sent a question and calls again with the answer, asks about it as a
//! task, stops waiting for a long cell, or is gone. So each call is in this one table from its beginning until its answer is
//! sent, in one of these states:
//!
//! ```text
//!            ┌─────── a request comes for it ───────┐
//! begin ─→ awaited ─┬─→ left ─────────────────────────┤     its answer: sent, or kept in `deliveries` for the next one
//!                   ├─→ parked, under a token ────────┤
//!                   └─→ task ←→ left, if its client is gone
//! ```
//!
//! Whoever waits for a change of any call waits for the ledger's one notification. There is one limit for all calls for which no
//! request waits.

mod answers;
mod asked;
mod awaited;
mod call;
mod call_task;
mod cells;
mod deliveries;
mod parked;
mod tasks;
mod unfetched_answers;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::CallToolResult;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

pub(super) use self::answers::OutgoingAnswer;
pub(super) use self::asked::TakenQuestions;
pub(super) use self::awaited::{AwaitedCall, FollowedCall};
pub(super) use self::call::{CallEvent, CallHandle, CallQuestions, CallSubject, ClientPages, bug};
use self::call::{CallState, LedgerCall};
use self::cells::CellAnswers;
use self::deliveries::Deliveries;
pub(super) use self::deliveries::{CallId, UnderWay};
pub(super) use self::parked::ResumedCall;
pub(super) use self::unfetched_answers::{UndeliveredReason, UnfetchedAnswer, name_of, text_of};
use super::progress::ProgressListener;
use super::questions::{SentSheets, complete_batches};
use crate::approval::ApprovalRequest;
use crate::ground::text::cell_id;

/// The number of calls for which no request waits. Beyond that one is given up: at first an old one whose client has its answer,
/// then an old one that is done.
const MOST_CALLS: usize = 192;

/// The result of the work of a call.
pub(super) type WorkResult = Result<CallToolResult, ErrorData>;

/// The calls of a session's clients.
#[derive(Default)]
pub(super) struct CallLedger {
    state: Mutex<LedgerState>,
    /// Notified when a call or an answer changes.
    changed: Notify,
}

#[derive(Default)]
struct LedgerState {
    /// The calls, oldest first.
    calls: Vec<LedgerCall>,
    /// The number of the last one.
    last: u64,
    /// Questions of calls for which no request waits, which were shown and not answered.
    questions: VecDeque<ApprovalRequest>,
    /// The cells that requests can wait for in pieces.
    cells: CellAnswers,
    /// The requests under way, and the answers that may not have reached the client.
    deliveries: Deliveries,
}

impl CallLedger {
    /// Begins a call, which a request waits for: starts `work` in a task of its own. `cancel` ends it.
    pub(super) fn begin(
        self: &Arc<Self>,
        work: impl Future<Output = WorkResult> + Send + 'static,
        questions: Option<CallQuestions>,
        cancel: CancellationToken,
        listener: ProgressListener,
        about: CallSubject,
    ) -> AwaitedCall {
        let (approvals, receiver, pages) = match questions {
            Some(CallQuestions { queue, receiver, pages }) => (Some(queue), Some(receiver), pages),
            None => (None, None, ClientPages::default()),
        };
        let over = cancel.clone();
        let handle = Arc::new(CallHandle { about, cancel, listener, approvals, pages });
        let number = self.state.lock().add(Arc::clone(&handle));
        tokio::spawn(Arc::clone(self).run(number, work, receiver, over));
        AwaitedCall::new(self, number, handle)
    }

    /// Runs the work of a call, and enters its approval requests and its answer.
    async fn run(
        self: Arc<Self>,
        number: u64,
        work: impl Future<Output = WorkResult>,
        receiver: Option<mpsc::Receiver<ApprovalRequest>>,
        over: CancellationToken,
    ) {
        let mut asking = std::pin::pin!(async {
            if let Some(receiver) = receiver {
                self.enter_questions(number, receiver).await;
            }
            std::future::pending::<Infallible>().await
        });
        let answer = tokio::select! {
            biased;
            answer = AssertUnwindSafe(work).catch_unwind() => answer.unwrap_or_else(|_| Err(bug())),
            never = &mut asking => match never {},
        };
        self.change(|state| {
            if let Some(call) = state.call(number) {
                call.answer = Some(answer);
                state.look_at_task(number);
            }
        });
        // Threads of a cell may ask after its end, as long as the call is kept.
        tokio::select! {
            () = over.cancelled() => {}
            never = asking => match never {},
        }
    }

    /// Enters the approval requests of a call, those of a batch together, until the call is gone.
    async fn enter_questions(&self, number: u64, mut receiver: mpsc::Receiver<ApprovalRequest>) {
        let mut waiting = VecDeque::new();
        while let Some(first) = receiver.recv().await {
            waiting.push_back(first);
            complete_batches(&mut receiver, &mut waiting).await;
            let is_there = self.change(|state| {
                let call = state.call(number);
                call.map(|call| call.questions.append(&mut waiting)).is_some()
            });
            if !is_there {
                return;
            }
        }
    }

    /// Waits until `find` finds something. Cancellation safe.
    async fn until<T>(&self, mut find: impl FnMut(&mut LedgerState) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = find(&mut self.state.lock()) {
                return found;
            }
            changed.await;
        }
    }

    /// Makes a change, and wakes all who wait for one.
    fn change<T>(&self, change: impl FnOnce(&mut LedgerState) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.changed.notify_waiters();
        changed
    }

    /// Ends a connection: what its client waited for goes on, and can be asked about by others. Unless all `was_read`, what was
    /// sent on it last may be lost.
    pub(super) fn put_aside(&self, connection: u64, was_read: bool) {
        self.change(|state| {
            for call in &mut state.calls {
                match &call.state {
                    CallState::Parked(_) if !call.is_delivered => call.leave(None),
                    CallState::Task(task) if task.is_of(connection) && !call.is_delivered => {
                        let task = task.task.clone();
                        call.leave(Some(task));
                    }
                    _ => {}
                }
            }
            state.deliveries.disconnected(connection, was_read, Instant::now());
        });
    }

    /// Each call for which nobody waits, with what became of it, in words.
    pub(super) fn summary(&self) -> Vec<String> {
        let words = |call: &LedgerCall| {
            let name = match call.cell() {
                Some(cell) => format!("`{}`, {}", cell_id(cell), call.about().call),
                None => call.about().call.clone(),
            };
            let seconds = call.about().begun.elapsed().as_secs();
            match (call.is_done(), call.handle.is_asking(), call.cell()) {
                (true, _, Some(_)) => format!("{name}: ended; `wait_for_cell` returns its answer"),
                (true, _, None) => format!("{name}: ended; its answer follows"),
                (false, true, _) => format!("{name}: waits for approval, {seconds} s after it was sent"),
                (false, false, _) => format!("{name}: has not ended, {seconds} s after it was sent"),
            }
        };
        self.state.lock().calls.iter().filter(|call| call.is_left()).map(words).collect()
    }
}

impl LedgerState {
    fn add(&mut self, handle: Arc<CallHandle>) -> u64 {
        self.last += 1;
        let call = LedgerCall {
            number: self.last,
            state: CallState::Awaited { given_up: None, asks_together: false },
            answer: None,
            questions: VecDeque::new(),
            sent: SentSheets::default(),
            is_delivered: false,
            handle,
        };
        let place = self.calls.partition_point(|other| other.about().begun <= call.about().begun);
        self.calls.insert(place, call);
        self.last
    }

    fn call(&mut self, number: u64) -> Option<&mut LedgerCall> {
        self.calls.iter_mut().find(|call| call.number == number)
    }

    fn remove(&mut self, number: u64) -> Option<LedgerCall> {
        let place = self.calls.iter().position(|call| call.number == number)?;
        Some(self.calls.remove(place))
    }

    /// Gives up a call if there are too many for which no request waits.
    fn give_up_surplus(&mut self) -> Option<LedgerCall> {
        let kept = || self.calls.iter().filter(|call| !call.is_awaited());
        if kept().count() <= MOST_CALLS {
            return None;
        }
        let number = kept().min_by_key(|call| (!call.is_delivered, !call.is_done()))?.number;
        let given_up = self.remove(number)?;
        if !given_up.is_delivered {
            self.cells.give_up(given_up.cell());
            tracing::warn!(call = %given_up.about().call, "no request waits for too many calls; the oldest is given up");
        }
        Some(given_up)
    }
}

#[cfg(test)]
mod tests;
