//! Asks the user by the answers to requests: the client calls again with the user's answers (MCP 2026-07-28, multi round-trip
//! requests).

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, InputRequiredResult};

use super::WaitingRequest;
use crate::faces::mcp_server::ledger::{AwaitedCall, CallEvent, FollowedCall, ResumedCall};
use crate::faces::mcp_server::questions::SentSheets;

/// Follows a call to its end, until approval is needed, or until it is time to leave.
pub(in crate::faces::mcp_server) async fn follow(
    call: AwaitedCall,
    request: &CallToolRequestParams,
    waiting: WaitingRequest<'_>,
) -> FollowedCall<CallToolResponse> {
    go_on(ResumedCall { call, sent: SentSheets::default(), rounds: 0 }, request, waiting).await
}

/// Goes on with a call whose client has come back.
pub(in crate::faces::mcp_server) async fn go_on(
    ResumedCall { call, mut sent, rounds }: ResumedCall,
    request: &CallToolRequestParams,
    waiting: WaitingRequest<'_>,
) -> FollowedCall<CallToolResponse> {
    // Approval requests that the client has left unanswered are sent again with the next ones, or now.
    while sent.are_over() {
        let asked = tokio::select! {
            biased;
            // First, since the end of a connection cancels its requests too.
            () = waiting.leave.come() => return FollowedCall::Left(call),
            next = call.next(waiting.cancelled) => match next {
                CallEvent::Done(done) => return FollowedCall::Answered(done.map(CallToolResult::into)),
                CallEvent::Questions => call.take_questions(),
            },
            left = call.left_questions() => left,
        };
        sent.add(asked, call.handle.pages.opens);
    }
    let rounds = rounds + 1;
    let forms = match sent.forms(Some(rounds)) {
        Ok(forms) => forms,
        Err(error) => return FollowedCall::Answered(Err(ErrorData::internal_error(error, None))),
    };
    let state = call.park(sent, rounds, request);
    FollowedCall::Answered(Ok(InputRequiredResult::new(Some(forms), Some(state)).into()))
}
