//! The tool `reset`.

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use super::sessions::{Chosen, NEW};
use super::{Call, McpServer, Progress, parse, reply, schema};

pub(super) const NAME: &str = "reset";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    session: Option<String>,
}

pub(super) fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {"session": {"type": "string", "description": SESSION}},
        "additionalProperties": false,
    });
    Tool::new(NAME, DESCRIPTION, schema(input)).with_title("Reset the kernel").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false),
    )
}

/// The session whose kernel is replaced.
const SESSION: &str = "The handle of the session to reset, if it is not your own client's";

const DESCRIPTION: &str = "\
Replace the IPython kernel by a fresh one. Variables, imports and definitions are gone, and connections to \
MCP servers are closed (the next call of a tool opens them again). Installed packages, files and \
`mcptools/` stay. A cell that is running is stopped.";

pub(super) async fn call(
    server: &McpServer,
    arguments: JsonObject,
    mut call: Call,
) -> Result<CallToolResult, String> {
    let Arguments { session } = parse(arguments)?;
    if session.as_deref() == Some(NEW) {
        return Err("the argument `session` cannot be used: a new session needs no reset".to_owned());
    }
    let Chosen { open, note } = server.sessions.choose(session.as_deref()).await?;
    let reset = async {
        call.turn.come().await;
        let pending = open.session.reset().await;
        drop(call.turn);
        pending.outcome().await
    };
    let (_silent, phases) = watch::channel(String::new());
    Ok(match Progress::report_while(call.progress, phases, call.approver.waiting(), reset).await {
        Ok(()) => reply::success(match note {
            Some(note) => format!("{note}\nThe kernel was reset."),
            None => "The kernel was reset.".to_owned(),
        }),
        Err(error) => reply::error(&error),
    })
}
