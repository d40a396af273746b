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
        "properties": {"session": {"type": "string", "description": "The handle of a kernel of your own"}},
    });
    Tool::new(NAME, DESCRIPTION, schema(input)).with_title("Reset the kernel").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false),
    )
}

const DESCRIPTION: &str = "\
Replace the kernel by a fresh one, and stop a running cell. Variables and imports are gone; packages, files and `mcptools/` \
stay.";

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
