//! The questions of calls that run at the same time, in one kernel or several: what waits while the user is asked comes with
//! the next question, whichever call asks it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{self, Notify};

use crate::approval::{Action, ApprovalRequest};
use crate::faces::mcp_server::left_calls::LeftCalls;
use crate::faces::mcp_server::questions::GATHER;

/// The time that a call waits before it asks after another one, which may have its next question by then.
const GATHER_AFTER_ANOTHER: Duration = Duration::from_millis(100);

/// The questions of all calls, and whose turn it is to ask.
#[derive(Default)]
pub(in crate::faces::mcp_server) struct Together {
    state: Mutex<State>,
    /// Notified when a question comes.
    came: Notify,
    turn: sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The calls whose requests wait, and those that go on without theirs.
    callers: BTreeMap<u64, Presence>,
    /// The number of the last one.
    last: u64,
    /// The call that has asked last.
    asked: u64,
    waiting: Vec<Shared>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Here,
    /// Its questions are for whoever asks those of calls for which no request waits.
    Left,
}

struct Shared {
    caller: u64,
    request: ApprovalRequest,
}

/// A call whose questions may be asked by another one. Dropping it drops those that wait.
pub(super) struct Caller<'a> {
    together: &'a Together,
    left: &'a LeftCalls,
    number: u64,
}

/// A call's turn to ask what waits. What is left when this is dropped can be asked by another call.
pub(super) struct AskingTurn<'a> {
    together: &'a Together,
    left: &'a LeftCalls,
    pub(super) questions: VecDeque<ApprovalRequest>,
    /// The calls that the questions are of; those of none are of calls for which no request waits.
    callers: Vec<(Arc<Action>, u64)>,
    _turn: sync::MutexGuard<'a, ()>,
}

impl Together {
    pub(super) fn caller<'a>(&'a self, left: &'a LeftCalls) -> Caller<'a> {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.callers.insert(number, Presence::Here);
        Caller { together: self, left, number }
    }
}

impl<'a> Caller<'a> {
    /// Has questions of this call asked, by this one or another.
    pub(super) fn share(&self, requests: impl IntoIterator<Item = ApprovalRequest>) {
        let shared = requests.into_iter().map(|request| Shared { caller: self.number, request });
        self.together.state.lock().waiting.extend(shared);
        self.together.came.notify_waiters();
    }

    /// Takes back the questions of this call that wait, which goes on without its request. Those that another call asks just
    /// now can be asked again as those of all such calls.
    pub(super) fn leave(self) -> Vec<ApprovalRequest> {
        self.end(Some(Presence::Left))
    }

    fn end(&self, presence: Option<Presence>) -> Vec<ApprovalRequest> {
        let mut state = self.together.state.lock();
        if state.callers.get(&self.number) == Some(&Presence::Here) {
            match presence {
                Some(presence) => state.callers.insert(self.number, presence),
                None => state.callers.remove(&self.number),
            };
        }
        if state.asked == self.number {
            state.asked = 0;
        }
        let is_own = |shared: &mut Shared| shared.caller == self.number;
        state.waiting.extract_if(.., is_own).map(|shared| shared.request).collect()
    }

    /// Waits until this call has questions, or one for which no request waits, and until nobody else asks. Cancellation
    /// safe.
    pub(super) async fn turn(&self) -> AskingTurn<'a> {
        loop {
            let lent = tokio::select! {
                () = self.has_questions() => None,
                lent = self.left.questions() => Some(lent),
            };
            let turn = self.together.turn.lock().await;
            // What comes at once is asked at once; so is what another call wants next, whose question was answered just now.
            let gather = if self.is_alone() { GATHER } else { GATHER_AFTER_ANOTHER };
            tokio::time::sleep(gather).await;
            if lent.is_none() && !self.is_waiting() {
                // Another call has asked them.
                continue;
            }
            let (mut questions, mut callers) = (VecDeque::new(), Vec::new());
            self.together.state.lock().asked = self.number;
            for Shared { caller, request } in std::mem::take(&mut self.together.state.lock().waiting) {
                callers.push((request.shared_action(), caller));
                questions.push_back(request);
            }
            if let Some(mut lent) = lent {
                questions.append(&mut lent.questions);
            }
            let (together, left) = (self.together, self.left);
            return AskingTurn { together, left, questions, callers, _turn: turn };
        }
    }

    /// Whether no other call has asked last.
    fn is_alone(&self) -> bool {
        [0, self.number].contains(&self.together.state.lock().asked)
    }

    async fn has_questions(&self) {
        loop {
            let mut came = std::pin::pin!(self.together.came.notified());
            came.as_mut().enable();
            if self.is_waiting() {
                return;
            }
            came.await;
        }
    }

    /// Whether a question of this call waits. Those that are over by now are dropped.
    fn is_waiting(&self) -> bool {
        let mut state = self.together.state.lock();
        state.waiting.retain(|shared| !shared.request.is_closed());
        state.waiting.iter().any(|shared| shared.caller == self.number)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        drop(self.end(None));
    }
}

impl AskingTurn<'_> {
    /// Drops the questions of a call.
    pub(super) fn drop_of(&mut self, caller: &Caller<'_>) {
        let callers = &self.callers;
        self.questions.retain(|request| caller_of(callers, request) != Some(caller.number));
    }

    /// Has the timeouts of what waits begin now.
    pub(super) fn hand_out(&self) {
        self.questions.iter().for_each(ApprovalRequest::hand_out);
    }
}

fn caller_of(callers: &[(Arc<Action>, u64)], request: &ApprovalRequest) -> Option<u64> {
    let is_its = |(action, _): &&(Arc<Action>, u64)| std::ptr::eq(&**action, request.action());
    callers.iter().find(is_its).map(|(_, caller)| *caller)
}

impl Drop for AskingTurn<'_> {
    fn drop(&mut self) {
        let (mut of_none, mut ended) = (Vec::new(), Vec::new());
        {
            let mut state = self.together.state.lock();
            for request in self.questions.drain(..) {
                let caller = caller_of(&self.callers, &request);
                match (caller, caller.and_then(|caller| state.callers.get(&caller))) {
                    (Some(caller), Some(Presence::Here)) => state.waiting.push(Shared { caller, request }),
                    (None, _) | (_, Some(Presence::Left)) => of_none.push(request),
                    (Some(_), None) => ended.push(request),
                }
            }
        }
        self.together.came.notify_waiters();
        self.left.give_back(of_none.into_iter());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::approval::Target;

    fn request(tool: &str) -> ApprovalRequest {
        let target = Target::Command("c".to_owned());
        ApprovalRequest::for_tests(Action::new("s".to_owned(), tool.to_owned(), Map::new(), target))
    }

    fn tools(questions: &VecDeque<ApprovalRequest>) -> Vec<&str> {
        questions.iter().map(ApprovalRequest::tool_name).collect()
    }

    #[tokio::test]
    async fn what_is_not_answered_can_be_asked_again_by_whoever_is_there() {
        let (together, left) = (Together::default(), LeftCalls::default());
        let callers = [(); 3].map(|()| together.caller(&left));
        for (caller, tool) in callers.iter().zip(["own", "leaving", "ended"]) {
            caller.share([request(tool)]);
        }
        let [own, leaving, ended] = callers;
        let turn = own.turn().await;
        assert_eq!(tools(&turn.questions), ["own", "leaving", "ended"]);
        // Their questions are being asked just now.
        assert!(leaving.leave().is_empty());
        drop(ended);
        drop(turn);
        assert_eq!(tools(&left.questions_now()), ["leaving"]);
        assert_eq!(tools(&own.turn().await.questions), ["own"]);
        // Of nobody's calls alone none is asked.
        let other = together.caller(&left);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(50), other.turn()).await.is_err());
    }
}
