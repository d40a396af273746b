//! The answer to a call of an action: its result, or how it failed. Pure.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use super::definition::{RESULT, is_wrapped};
use crate::faces::detached_actions::ActionRun;
use crate::faces::mcp_server::reply;
use crate::session::CellEnding;
use crate::tools::actions::SavedAction;

/// The number of characters of an error.
const ERROR_CHARS: usize = 5_000;

/// The answer of MCP to what came of a call.
pub(super) fn of(action: &SavedAction, run: ActionRun) -> CallToolResult {
    let ActionRun { outcome, result } = run;
    let printed = outcome.shown.text.excerpt.trim();
    let has_ended_well = matches!(outcome.end, CellEnding::Finished) && outcome.error.is_none();
    let Some(result) = result.filter(|_| has_ended_well) else {
        let error = outcome.error.as_ref().map(|error| error.last_line()).unwrap_or_default();
        let mut parts = outcome.notes.clone();
        parts.extend([outcome.words(), reply::middle_cut(&error, ERROR_CHARS)]);
        if has_ended_well {
            parts.push("The action has ended, and its result cannot be read.".to_owned());
        }
        if !printed.is_empty() {
            parts.push(format!("Printed:\n{printed}"));
        }
        parts.retain(|part| !part.is_empty());
        return reply::failure(parts.join("\n\n"));
    };
    let text = match &result {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_wrapped = is_wrapped(action.output_schema.as_ref(), &result);
    let structured = if is_wrapped { json!({RESULT: result}) } else { result };
    let mut answer = CallToolResult::structured(structured);
    answer.content = vec![reply::block(text)];
    if !printed.is_empty() {
        answer.content.push(ContentBlock::text(format!("Printed:\n{printed}")));
    }
    answer
}
