//! Has a call become a task when it has a question, or takes long.

use std::time::Duration;

use rmcp::model::{CallToolResponse, CallToolResult, CreateTaskResult};
use tokio::time::{Instant, timeout_at};

use super::WaitingRequest;
use crate::faces::mcp_server::ledger::{AwaitedCall, CallEvent, FollowedCall};

/// The time that a call may take before it becomes a task. Shorter ones cost no further requests.
const TASK_AFTER: Duration = Duration::from_secs(5);

/// Follows a call to its end, or until it becomes a task.
pub(in crate::faces::mcp_server) async fn follow(
    mut call: AwaitedCall,
    connection: u64,
    WaitingRequest { cancelled, leave, .. }: WaitingRequest<'_>,
) -> FollowedCall<CallToolResponse> {
    let at = Instant::now() + TASK_AFTER;
    loop {
        let is_wanted = !cancelled.is_cancelled();
        tokio::select! {
            biased;
            // First, since the end of a connection cancels its requests too.
            () = leave.come() => return FollowedCall::Left(call),
            next = call.next(cancelled) => match next {
                CallEvent::Done(done) => return FollowedCall::Answered(done.map(CallToolResult::into)),
                // Nobody would see the questions of a call that is cancelled.
                CallEvent::Questions if cancelled.is_cancelled() => drop(call.take_questions()),
                CallEvent::Questions => {}
            },
            _ = timeout_at(at, call.left_questions_come()), if is_wanted => {}
        }
        if cancelled.is_cancelled() {
            continue;
        }
        call = match call.become_task(connection) {
            Ok(task) => {
                return FollowedCall::Answered(Ok(CallToolResponse::Task(CreateTaskResult::new(task))));
            }
            Err(call) => call,
        };
        // Too many calls are kept. Its questions wait with it.
        tokio::select! {
            biased;
            () = leave.come() => return FollowedCall::Left(call),
            answer = call.answer() => return FollowedCall::Answered(answer.map(CallToolResult::into)),
            () = cancelled.cancelled() => {}
            () = call.room_for_task() => {}
        }
    }
}
