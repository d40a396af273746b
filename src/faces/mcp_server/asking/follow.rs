//! Follows a call while its request waits, and asks the user by elicitation.

use std::collections::VecDeque;

use rmcp::model::CallToolResult;
use rmcp::{Peer, RoleServer};
use tokio_util::sync::CancellationToken;

use super::elicit;
use super::waiting::{LeaveTime, WaitingRequest};
use crate::approval::ApprovalRequest;
use crate::faces::mcp_server::ledger::{AwaitedCall, FollowedCall, WorkResult};
use crate::faces::mcp_server::questions::{AskedRequests, QuestionSheet};

/// Follows a call to its end, or until it is time to leave, and sends approval requests by elicitation, one at a time for all
/// calls together. Those that an earlier client has left are dropped without a `peer` who can ask its user.
pub(in crate::faces::mcp_server) async fn by_elicitation(
    call: AwaitedCall,
    peer: Option<&Peer<RoleServer>>,
    WaitingRequest { cancelled, leave, turns }: WaitingRequest<'_>,
) -> FollowedCall<CallToolResult> {
    call.ask_together();
    loop {
        let mut turn = tokio::select! {
            biased;
            // First, since the end of a connection cancels its requests too.
            () = leave.come() => return FollowedCall::Left(call),
            answer = call.answer_unless(cancelled) => return FollowedCall::Answered(answer),
            turn = turns.next(&call) => turn,
        };
        while let Some(sheet) = QuestionSheet::next(&mut turn.taken.questions) {
            let may_give_grant = sheet.may_give_grant();
            let over = CancellationToken::new();
            let asking = async {
                match peer {
                    Some(peer) => elicit::ask(peer, sheet, &over, &call.handle.pages).await,
                    None => AskedRequests::Unanswered,
                }
            };
            let (asked, answer) = while_asking(&call, asking, &over, cancelled, leave).await;
            let is_answered = matches!(asked, AskedRequests::Answered);
            let is_taken_back = matches!(asked, AskedRequests::TakenBack(_));
            if let AskedRequests::TakenBack(sheet) = asked {
                take_back(&mut turn.taken.questions, sheet);
            }
            if let Some(answer) = answer {
                // Approval requests of threads that outlive the call are dropped.
                turn.taken.drop_of(&call);
                return FollowedCall::Answered(answer);
            }
            if is_taken_back {
                drop(turn);
                return FollowedCall::Left(call);
            }
            if call.handle.is_interrupted() {
                // Requests that will be rejected anyway are not shown.
                turn.taken.drop_of(&call);
            }
            // If the user does not answer, the timeouts of the waiting requests begin now, not when each is shown.
            call.handle.attend(is_answered);
            if !is_answered {
                turn.hand_out();
            }
            if may_give_grant && !turn.taken.questions.is_empty() {
                // A grant may answer what waits, so that it is not shown.
                turn.settle().await;
            }
        }
    }
}

/// Waits for the end of `asking`, and has it be `over` when the work is done, whose answer is returned too, or when it is time
/// to leave.
async fn while_asking(
    call: &AwaitedCall,
    asking: impl Future<Output = AskedRequests>,
    over: &CancellationToken,
    cancelled: &CancellationToken,
    leave: &LeaveTime,
) -> (AskedRequests, Option<WorkResult>) {
    let mut asking = std::pin::pin!(asking);
    let mut done = None;
    let mut is_left = false;
    loop {
        tokio::select! {
            biased;
            asked = &mut asking => return (asked, done),
            answer = call.answer(), if done.is_none() => {
                done = Some(answer);
                over.cancel();
            }
            () = leave.come(), if !is_left => {
                is_left = true;
                over.cancel();
            }
            () = cancelled.cancelled(), if !is_left && !call.handle.is_interrupted() => call.handle.interrupt(),
        }
    }
}

fn take_back(waiting: &mut VecDeque<ApprovalRequest>, sheet: QuestionSheet) {
    for request in sheet.into_requests().into_iter().rev() {
        request.take_back();
        waiting.push_front(request);
    }
}
