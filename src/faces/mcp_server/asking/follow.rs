//! Follows a call while its request waits, and asks the user by elicitation.

use std::collections::VecDeque;

use rmcp::model::CallToolResult;
use rmcp::{ErrorData, Peer, RoleServer};
use tokio_util::sync::CancellationToken;

use super::asking_turn::Caller;
use super::elicit;
use super::waiting::{Leave, WaitingRequest};
use crate::approval::ApprovalRequest;
use crate::faces::mcp_server::ongoing_call::{FollowedCall, Next, OngoingCall, bug};
use crate::faces::mcp_server::questions::{AskedRequests, GATHER, Sheet};

impl OngoingCall {
    /// Runs to the end, or until it is time to leave, and sends approval requests by elicitation, one at a time for all calls
    /// together. Those that an earlier client has left are dropped without a `peer` who can ask its user.
    pub(in crate::faces::mcp_server) async fn elicit(
        mut self,
        peer: Option<&Peer<RoleServer>>,
        WaitingRequest { cancelled, leave, left, together }: WaitingRequest<'_>,
    ) -> FollowedCall<CallToolResult> {
        let caller = together.caller(left);
        loop {
            let mut turn = tokio::select! {
                biased;
                // First, since the end of a connection cancels its requests too.
                () = leave.come() => return self.left(caller),
                next = self.come(cancelled) => match next {
                    Next::Done(done) => return FollowedCall::Answered(done),
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
                let asking = async {
                    match peer {
                        Some(peer) => elicit::ask(peer, sheet, &over, page.as_deref()).await,
                        None => AskedRequests::Unanswered,
                    }
                };
                let (asked, done) = self.asked(asking, &over, cancelled, leave).await;
                let is_answered = matches!(asked, AskedRequests::Answered);
                let is_taken_back = matches!(asked, AskedRequests::TakenBack(_));
                if let AskedRequests::TakenBack(sheet) = asked {
                    take_back(&mut turn.questions, sheet);
                }
                if let Some(done) = done {
                    // Approval requests of threads that outlive the call are dropped.
                    turn.drop_of(&caller);
                    return FollowedCall::Answered(done);
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

    /// Waits for the end of `asking`, and has it be `over` when the work is done, whose result is returned too, or when it is
    /// time to leave.
    async fn asked(
        &mut self,
        asking: impl Future<Output = AskedRequests>,
        over: &CancellationToken,
        cancelled: &CancellationToken,
        leave: &Leave,
    ) -> (AskedRequests, Option<Result<CallToolResult, ErrorData>>) {
        let mut asking = std::pin::pin!(asking);
        let (mut done, mut is_left) = (None, false);
        loop {
            tokio::select! {
                biased;
                asked = &mut asking => return (asked, done),
                end = &mut self.task, if done.is_none() => {
                    done = Some(end.unwrap_or_else(|_| Err(bug())));
                    over.cancel();
                }
                () = leave.come(), if !is_left => {
                    is_left = true;
                    over.cancel();
                }
                () = cancelled.cancelled(), if !is_left && !self.cancel.is_cancelled() => self.cancel.cancel(),
            }
        }
    }

    /// Goes on without the request that has waited.
    fn left(mut self, caller: Caller<'_>) -> FollowedCall<CallToolResult> {
        self.give_back(caller.leave());
        FollowedCall::Left(Box::new(self))
    }
}

fn take_back(waiting: &mut VecDeque<ApprovalRequest>, sheet: Sheet) {
    for request in sheet.into_requests().into_iter().rev() {
        request.take_back();
        waiting.push_front(request);
    }
}
