//! The tool `wait_for_cell`, and the answer about a cell that still runs.

use std::time::Duration;

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;

use super::arguments::{number, parse, schema};
use super::ledger::CallHandle;
use super::reply;
use crate::ground::text::{cell_id, cell_number};

pub(super) const NAME: &str = "wait_for_cell";

/// The time that a call waits unless the model says. Clients give up on requests, most of them after 60 seconds.
const DEFAULT_WAIT_SECS: f64 = 50.0;

/// The longest wait that is kept to the second.
pub(super) const LONGEST_WAIT_SECS: f64 = 30.0 * 24.0 * 3600.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitArguments {
    cell: String,
    #[serde(default, deserialize_with = "number")]
    timeout: Option<f64>,
    #[serde(default)]
    interrupt: bool,
}

/// A request to wait.
pub(super) struct WaitTool {
    pub(super) cell: u64,
    pub(super) timeout: Duration,
    pub(super) interrupt: bool,
}

pub(super) fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "cell": {"type": "string", "description": "Such as `cell-3`"},
            "timeout": {"type": "number", "default": DEFAULT_WAIT_SECS, "description": "Seconds to wait"},
            "interrupt": {"type": "boolean", "default": false, "description": "Interrupt it"},
        },
        "required": ["cell"],
    });
    Tool::new(NAME, DESCRIPTION, schema(input)).with_title("Wait for a cell").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true),
    )
}

const DESCRIPTION: &str = "\
Wait for a cell that runs on after `wait`, or interrupt it. Returns what it has printed since the last answer, and how it \
ended.";

/// Reads the arguments. The error is a text for the model.
pub(super) fn read(arguments: &JsonObject) -> Result<WaitTool, String> {
    let WaitArguments { cell, timeout, interrupt } = parse(arguments)?;
    let number = cell_number(&cell)
        .ok_or_else(|| format!("the argument `cell` cannot be used: `{cell}` is no id such as `cell-3`"))?;
    let seconds = timeout.unwrap_or(DEFAULT_WAIT_SECS);
    if seconds.is_nan() || seconds < 0.0 {
        return Err(format!("the argument `timeout` cannot be used: {seconds} is no number of seconds"));
    }
    let timeout = Duration::from_secs_f64(seconds.min(LONGEST_WAIT_SECS));
    Ok(WaitTool { cell: number, timeout, interrupt })
}

/// The answer about a cell that goes on.
pub(super) fn still_running(call: &CallHandle) -> CallToolResult {
    let about = &call.about;
    let Some((cell, unread)) = &about.cell else {
        return reply::failure("The call goes on; its answer comes with a later one.");
    };
    let id = cell_id(*cell);
    let seconds = about.begun.elapsed().as_secs();
    let state = match (call.is_asking(), unread.has_begun()) {
        (true, _) => {
            format!("`{id}` waits for approval: the user is asked while `{NAME}` waits for the cell")
        }
        (false, false) => {
            format!("`{id}` has not begun: it waits for the cells before it, or for the kernel")
        }
        (false, true) => format!("`{id}` still runs, {seconds} s after it was sent"),
    };
    let limit = about.limit.as_secs_f64();
    let printed = unread.take_shown();
    let note = format!(
        "[{state}. Its code may run for {limit} s. `{NAME}` returns the rest and how it ends, or interrupts it.]"
    );
    reply::success(if printed.is_empty() { note } else { format!("{printed}\n\n{note}") })
}
