//! The questions of calls that run at the same time, in one kernel or several: what waits while the user is asked comes with
//! the next question, whichever call asks it.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::approval::ApprovalRequest;
use crate::faces::mcp_server::ledger::{AwaitedCall, TakenQuestions};
use crate::faces::mcp_server::questions::GATHER;

/// The time that a call waits before it asks after another one, which may have its next question by then.
const GATHER_AFTER_ANOTHER: Duration = Duration::from_millis(100);

/// The turns of calls to ask, one at a time. It has the number of the call that has asked last.
#[derive(Default)]
pub(in crate::faces::mcp_server) struct AskingTurns(Mutex<u64>);

/// A call's turn to ask what waits. What is left when this is dropped can be asked by another call.
pub(super) struct AskingTurn<'a> {
    pub(super) taken: TakenQuestions,
    _turn: MutexGuard<'a, u64>,
}

impl AskingTurns {
    /// Waits until a call has questions, or one for which no request waits, and until nobody else asks. Cancellation safe.
    pub(super) async fn next(&self, call: &AwaitedCall) -> AskingTurn<'_> {
        loop {
            call.questions_come().await;
            let mut turn = self.0.lock().await;
            // What comes at once is asked at once; so is what another call wants next, whose question was answered just now.
            let gather = if call.is_or_follows(*turn) { GATHER } else { GATHER_AFTER_ANOTHER };
            tokio::time::timeout(gather, call.ended()).await.ok();
            // Unless another call has asked them.
            if let Some(taken) = call.take_together() {
                *turn = call.number();
                return AskingTurn { taken, _turn: turn };
            }
        }
    }
}

impl AskingTurn<'_> {
    /// Has the timeouts of what waits begin now.
    pub(super) fn hand_out(&self) {
        self.taken.questions.iter().for_each(ApprovalRequest::hand_out);
    }

    /// Waits, not for long, until an answer to another question has decided about all that wait.
    pub(super) async fn settle(&mut self) {
        let all = async {
            for request in &mut self.taken.questions {
                request.closed().await;
            }
        };
        tokio::time::timeout(GATHER, all).await.ok();
    }
}
