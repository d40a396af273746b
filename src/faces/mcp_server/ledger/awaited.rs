//! A call that a request waits for.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::call::{CallEvent, CallHandle, CallState, bug};
use super::{CallLedger, LedgerState, WorkResult};
use crate::approval::ApprovalRequest;
use crate::faces::mcp_server::questions::GATHER;

/// A call that a request waits for. Dropping it cancels the work, unless the call goes on without the request.
pub(in crate::faces::mcp_server) struct AwaitedCall {
    pub(super) ledger: Arc<CallLedger>,
    pub(super) number: u64,
    pub(in crate::faces::mcp_server) handle: Arc<CallHandle>,
    /// Whether it is this one's request that waits.
    is_waiting: bool,
}

/// The fate of a call while a request waited for it.
pub(in crate::faces::mcp_server) enum FollowedCall<T> {
    /// The request has its answer.
    Answered(Result<T, rmcp::ErrorData>),
    /// The request is to stop waiting.
    Left(AwaitedCall),
}

impl<T> FollowedCall<T> {
    /// Changes the answer, if there is one.
    pub(in crate::faces::mcp_server) fn map<U>(self, change: impl FnOnce(T) -> U) -> FollowedCall<U> {
        match self {
            Self::Answered(answer) => FollowedCall::Answered(answer.map(change)),
            Self::Left(call) => FollowedCall::Left(call),
        }
    }
}

impl AwaitedCall {
    pub(super) fn new(ledger: &Arc<CallLedger>, number: u64, handle: Arc<CallHandle>) -> Self {
        Self { ledger: Arc::clone(ledger), number, handle, is_waiting: true }
    }

    /// Waits for the end or for approval requests. On `cancelled`, the work is cancelled. Cancellation safe.
    pub(in crate::faces::mcp_server) async fn come(&self, cancelled: &CancellationToken) -> CallEvent {
        tokio::select! {
            biased;
            next = self.ledger.until(|state| state.next_of(self.number)) => return next,
            () = cancelled.cancelled() => self.handle.interrupt(),
        }
        self.ledger.until(|state| state.next_of(self.number)).await
    }

    /// The same, and for the approval requests that come at once with others.
    pub(in crate::faces::mcp_server) async fn next(&self, cancelled: &CancellationToken) -> CallEvent {
        let next = self.come(cancelled).await;
        if matches!(next, CallEvent::Questions) {
            tokio::time::timeout(GATHER, self.ended()).await.ok();
        }
        next
    }

    /// Waits until the work is done.
    pub(in crate::faces::mcp_server) async fn ended(&self) {
        let is_done = |state: &mut LedgerState| state.call(self.number).is_none_or(|call| call.is_done());
        self.ledger.until(|state| is_done(state).then_some(())).await;
    }

    /// Takes the answer of the work, if it is done.
    pub(in crate::faces::mcp_server) fn take_answer(&self) -> Option<WorkResult> {
        self.ledger.state.lock().take_answer(self.number)
    }

    /// Waits for the answer of the work, which is cancelled on `cancelled`. Cancellation safe.
    pub(in crate::faces::mcp_server) async fn answer_unless(
        &self,
        cancelled: &CancellationToken,
    ) -> WorkResult {
        tokio::select! {
            biased;
            answer = self.answer() => return answer,
            () = cancelled.cancelled() => self.handle.interrupt(),
        }
        self.answer().await
    }

    /// Waits for the answer of the work. Cancellation safe.
    pub(in crate::faces::mcp_server) async fn answer(&self) -> WorkResult {
        self.ledger.until(|state| state.take_answer(self.number)).await
    }

    /// Takes the approval requests that are yet to be asked.
    pub(in crate::faces::mcp_server) fn take_questions(&self) -> VecDeque<ApprovalRequest> {
        let mut state = self.ledger.state.lock();
        state.call(self.number).map(|call| call.take_questions()).unwrap_or_default()
    }

    /// Has the questions of the call asked together with those of others, see [`take_together`](Self::take_together).
    pub(in crate::faces::mcp_server) fn ask_together(&self) {
        if let Some(call) = self.ledger.state.lock().call(self.number)
            && let CallState::Awaited { asks_together, .. } = &mut call.state
        {
            *asks_together = true;
        }
    }

    /// Lets the call go on without the request.
    pub(in crate::faces::mcp_server) fn leave(mut self) {
        self.is_waiting = false;
        self.ledger.change(|state| {
            if let Some(call) = state.call(self.number) {
                call.leave(None);
            }
            state.give_up_surplus()
        });
    }

    /// The request has its answer, and the call another state.
    pub(super) fn release(&mut self) {
        self.is_waiting = false;
    }
}

impl Drop for AwaitedCall {
    fn drop(&mut self) {
        if self.is_waiting {
            self.ledger.change(|state| state.remove(self.number));
        }
    }
}

impl LedgerState {
    fn next_of(&mut self, number: u64) -> Option<CallEvent> {
        if let Some(answer) = self.take_answer(number) {
            return Some(CallEvent::Done(answer));
        }
        self.call(number)?.has_questions().then_some(CallEvent::Questions)
    }

    /// Takes the answer of a call, which ends with that.
    fn take_answer(&mut self, number: u64) -> Option<WorkResult> {
        match self.call(number) {
            Some(call) => {
                let answer = call.answer.take()?;
                drop(self.remove(number));
                Some(answer)
            }
            None => Some(Err(bug())),
        }
    }
}
