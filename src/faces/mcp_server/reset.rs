//! The tool `reset`.

use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use super::arguments::schema;
use super::call_context::CallContext;
use super::progress::ProgressNotifier;
use super::reply;
use super::server::McpServer;
use super::sessions::{ChosenSession, NEW};
use crate::session::Exit;

pub(super) const NAME: &str = "reset";

/// The arguments of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetArguments {
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

const DONE: &str = "The kernel was reset.";

/// Follows if the exit of the earlier kernel was cut short.
const CUT_SHORT: &str = "\
The exit of the earlier kernel took too long and was cut short: threads and `atexit` functions that still ran have been \
ended, and what they had not written is lost.";

pub(super) async fn call(
    server: &McpServer,
    arguments: ResetArguments,
    mut call: CallContext,
) -> Result<CallToolResult, String> {
    let ResetArguments { session } = arguments;
    if session.as_deref() == Some(NEW) {
        return Err("the argument `session` cannot be used: a new session needs no reset".to_owned());
    }
    let ChosenSession { open, note } = server.sessions.choose(session.as_deref()).await?;
    let reset = async {
        call.turn.come().await;
        let pending = open.session.reset().await;
        drop(call.turn);
        pending.outcome().await
    };
    let (_silent, phases) = watch::channel(String::new());
    Ok(match ProgressNotifier::report_while(call.progress, phases, call.approver.waiting(), reset).await {
        Ok(exit) => {
            let cut_short = (exit == Exit::CutShort).then(|| CUT_SHORT.to_owned());
            let lines = note.into_iter().chain([DONE.to_owned()]).chain(cut_short);
            reply::success(lines.collect::<Vec<_>>().join("\n"))
        }
        Err(error) => reply::error(&error),
    })
}
