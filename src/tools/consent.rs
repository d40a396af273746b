//! Decisions about what ipybox itself is to do at the wish of its client.

use rmcp::model::CallToolResult;
use serde_json::{Map, Value};

use super::{McpServer, Progress, reply};
use crate::approval::{Action, Approver, OURSELVES, Target};
use crate::audit::{OpenCall, decide_on_record};
use crate::describe::describe;

/// Lets it be decided whether to do what `tool` is called for with these arguments: the open record of it, or the reply
/// that says why it is not done.
pub(super) async fn decide(
    server: &McpServer,
    tool: &str,
    arguments: Map<String, Value>,
    approver: &Approver,
    progress: Option<&mut Progress>,
) -> Result<OpenCall, CallToolResult> {
    let action = Action {
        server_name: OURSELVES.to_owned(),
        tool_name: tool.to_owned(),
        tool_args: arguments,
        target: Target::Host,
        definition: None,
        annotations: None,
    };
    let deciding = decide_on_record(&server.audit, &server.gate, action, approver);
    let decided = match progress {
        Some(progress) => progress.tell_questions(approver.waiting(), deciding).await,
        None => deciding.await,
    };
    match decided {
        Ok((_permit, on_record)) => Ok(on_record),
        Err(refusal) => Err(reply::failure(format!("Not done: {}", describe(&refusal)))),
    }
}
