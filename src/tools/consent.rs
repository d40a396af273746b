//! Decisions about what ipybox itself is to do at the wish of its client.

use rmcp::model::CallToolResult;
use serde_json::{Map, Value};

use super::{McpServer, Progress, reply};
use crate::approval::{Action, Approver, OURSELVES, Permit, Target};

/// The permission to do what `tool` is called for with these arguments, or the reply that says why there is none.
pub(super) async fn permit(
    server: &McpServer,
    tool: &str,
    arguments: Map<String, Value>,
    approver: &Approver,
    progress: Option<&mut Progress>,
) -> Result<Permit, CallToolResult> {
    let action = Action {
        server_name: OURSELVES.to_owned(),
        tool_name: tool.to_owned(),
        tool_args: arguments,
        target: Target::Host,
        annotations: None,
    };
    let deciding = server.gate.decide(action, approver);
    let ruling = match progress {
        Some(progress) => progress.tell_questions(approver.waiting(), deciding).await,
        None => deciding.await,
    };
    ruling.outcome.map_err(|denied| reply::failure(format!("Not done: {denied}")))
}
