//! The questions of calls, for whoever asks the user: those of calls for which no request waits, and those of calls whose
//! requests ask together.

use std::collections::VecDeque;
use std::sync::Arc;

use super::awaited::AwaitedCall;
use super::call::CallState;
use super::{CallLedger, LedgerState};
use crate::approval::{Action, ApprovalRequest};

/// Questions that a request asks, of its own call and of others. Dropping this gives back those that are left: to the calls
/// that they are of, or to whoever comes next.
pub(in crate::faces::mcp_server) struct TakenQuestions {
    ledger: Arc<CallLedger>,
    pub(in crate::faces::mcp_server) questions: VecDeque<ApprovalRequest>,
    /// The calls that the questions are of; those of none are of calls for which no request waits.
    owners: Vec<(Arc<Action>, u64)>,
}

impl TakenQuestions {
    /// Drops the questions of a call.
    pub(in crate::faces::mcp_server) fn drop_of(&mut self, call: &AwaitedCall) {
        let owners = &self.owners;
        self.questions.retain(|request| owner_of(owners, request) != Some(call.number));
    }
}

impl Drop for TakenQuestions {
    fn drop(&mut self) {
        let owners = &self.owners;
        let questions = self.questions.drain(..);
        // Those of calls that are gone are dropped after the change.
        let _ended: Vec<ApprovalRequest> = self.ledger.change(|state| {
            questions.filter_map(|request| state.give_back(owner_of(owners, &request), request)).collect()
        });
    }
}

fn owner_of(owners: &[(Arc<Action>, u64)], request: &ApprovalRequest) -> Option<u64> {
    let is_its = |(action, _): &&(Arc<Action>, u64)| std::ptr::eq(&**action, request.action());
    owners.iter().find(is_its).map(|(_, owner)| *owner)
}

impl AwaitedCall {
    /// Waits until there are questions of calls for which no request waits.
    pub(in crate::faces::mcp_server) async fn left_questions_come(&self) {
        self.ledger.until(|state| state.has_left_questions().then_some(())).await;
    }

    /// Takes questions of calls for which no request waits, once there are some. Cancellation safe.
    pub(in crate::faces::mcp_server) async fn left_questions(&self) -> VecDeque<ApprovalRequest> {
        let take = |state: &mut LedgerState| {
            let is_there = state.has_left_questions();
            is_there.then(|| state.take_left_questions())
        };
        self.ledger.until(take).await
    }

    /// Waits until this call has questions, or one for which no request waits.
    pub(in crate::faces::mcp_server) async fn questions_come(&self) {
        self.ledger.until(|state| state.has_questions_for(self.number).then_some(())).await;
    }

    /// Takes all questions that can be asked together, unless neither this call has any nor one for which no request waits.
    pub(in crate::faces::mcp_server) fn take_together(&self) -> Option<TakenQuestions> {
        let mut state = self.ledger.state.lock();
        if !state.has_questions_for(self.number) {
            return None;
        }
        let mut questions = VecDeque::new();
        let mut owners = Vec::new();
        for call in state.calls.iter_mut().filter(|call| asks_together(&call.state)) {
            for request in call.take_questions() {
                owners.push((request.shared_action(), call.number));
                questions.push_back(request);
            }
        }
        questions.append(&mut state.take_left_questions());
        Some(TakenQuestions { ledger: Arc::clone(&self.ledger), questions, owners })
    }

    /// Whether this call is the one with that number, or that one asks no more together with others.
    pub(in crate::faces::mcp_server) fn is_or_follows(&self, number: u64) -> bool {
        let mut state = self.ledger.state.lock();
        number == self.number || state.call(number).is_none_or(|call| !asks_together(&call.state))
    }

    /// The number of the call, greater than those of all before it.
    pub(in crate::faces::mcp_server) fn number(&self) -> u64 {
        self.number
    }
}

impl LedgerState {
    fn has_left_questions(&mut self) -> bool {
        self.questions.retain(|request| !request.is_closed());
        !self.questions.is_empty() || self.calls.iter_mut().any(|call| call.is_left() && call.has_questions())
    }

    fn has_questions_for(&mut self, number: u64) -> bool {
        self.call(number).is_some_and(|call| call.has_questions()) || self.has_left_questions()
    }

    /// Takes the questions of calls for which no request waits.
    pub(super) fn take_left_questions(&mut self) -> VecDeque<ApprovalRequest> {
        let mut questions = std::mem::take(&mut self.questions);
        questions.retain(|request| !request.is_closed());
        for call in self.calls.iter_mut().filter(|call| call.is_left()) {
            questions.append(&mut call.take_questions());
        }
        questions
    }

    /// Gives a question back to the request that waits for its call, or to whoever comes. Returns it if its call is gone.
    fn give_back(&mut self, owner: Option<u64>, request: ApprovalRequest) -> Option<ApprovalRequest> {
        let Some(owner) = owner else {
            request.take_back();
            self.questions.push_back(request);
            return None;
        };
        let Some(call) = self.call(owner) else { return Some(request) };
        if !call.is_awaited() {
            request.take_back();
        }
        call.questions.push_back(request);
        None
    }
}

fn asks_together(state: &CallState) -> bool {
    matches!(state, CallState::Awaited { asks_together: true, .. })
}
