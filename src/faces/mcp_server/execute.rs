//! The tool `execute_ipython_cell`.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::arguments::{number, parse, schema};
use super::call_context::CallContext;
use super::server::McpServer;
use super::session_names::{self, is_new};
use super::sessions::ChosenSession;
use super::{pictures, reply, views, wait};
use crate::config::Images;
use crate::kernels::output::UnreadText;
use crate::session::{Cell, CellRequester, DEFAULT_TIMEOUT, Outcome};

pub(super) const NAME: &str = "execute_ipython_cell";

const DEFAULT_MAX_OUTPUT_CHARS: usize = 5_000;

/// The most that an answer has, whatever is asked for: it is held in memory, several times over.
const MOST_OUTPUT_CHARS: usize = 100_000_000;

/// The time that a cell may run that its request does not wait for, unless the model says.
const LONG_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The longest timeout that is kept to the second; longer ones are as good as none.
const LONGEST_TIMEOUT_SECS: f64 = 30.0 * 24.0 * 3600.0;

/// The number of chunks of output that may wait to be sent as progress before the kernel has to wait.
const CHUNKS_CAPACITY: usize = 64;

/// The arguments as a request has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecuteArguments {
    code: String,
    #[serde(default, deserialize_with = "number")]
    timeout: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    max_output_chars: Option<f64>,
    session: Option<String>,
    #[serde(default, deserialize_with = "number")]
    wait: Option<f64>,
    if_busy: Option<IfBusy>,
}

/// The arguments of a call, which can be used.
pub(super) struct CellArguments {
    code: String,
    /// The time that the code may run.
    pub(super) timeout: Duration,
    max_output_chars: usize,
    session: Option<String>,
    /// The time that the request waits for the cell, if it says so.
    pub(super) wait: Option<Duration>,
    if_busy: Option<IfBusy>,
}

/// The fate of a cell if another one runs.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum IfBusy {
    Queue,
    Refuse,
}

/// `is_long` adds what cells need that a request does not wait for, and new sessions choose kernels of these pools. Each conversation
/// pays for all of it.
pub(super) fn definition(is_long: bool, pools: &[&str]) -> Tool {
    let with_wait = if is_long { format!("; {} with `wait`", LONG_TIMEOUT.as_secs()) } else { String::new() };
    let mut input = json!({
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "Python code"},
            "timeout": {
                "type": "number",
                "default": DEFAULT_TIMEOUT.as_secs(),
                "description": format!("Seconds until the code is interrupted{with_wait}"),
            },
            "max_output_chars": {
                "type": "integer",
                "default": DEFAULT_MAX_OUTPUT_CHARS,
                "description": "The middle of longer output is only in a file",
            },
            "session": {"type": "string", "description": session_names::description(pools)},
        },
        "required": ["code"],
    });
    let mut description = DESCRIPTION.to_owned();
    if is_long {
        description.push_str(LONG_CELLS);
        input["properties"]["wait"] = json!({
            "type": "number",
            "description": "Seconds to wait; then the cell runs on, and `wait_for_cell` returns the rest",
        });
        input["properties"]["if_busy"] = json!({
            "type": "string",
            "enum": ["queue", "refuse"],
            "description": "While another cell runs",
        });
    } else {
        description.push_str(BACKGROUND);
    }
    Tool::new(NAME, description, schema(input)).with_title("Run Python code").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true),
    )
}

const DESCRIPTION: &str = "\
Run Python code in a stateful IPython kernel: variables, imports and definitions persist. Top-level `await`, \
`!command` and magics work, `input()` does not.

Tools of registered MCP servers:
from mcptools.<server_name> import <tool_name>
result = <tool_name>.run(<tool_name>.Params(...))  # async: await <tool_name>.run_async(...)
`print(<tool_name>)` shows parameters and result; `from mcptools import search; search(\"what to do\")` finds tools. Calls in \
`with mcptools.batch(title):` are asked about once, if the user has to approve them.

Plots are saved in `images/`. `show_file(path)` gives the user a file or a table, `uploaded_file(name)` is the path of one \
from the user.

Returns what was printed, the last value, images, or an exception with its traceback. A cell without code \
repeats the last answers.";

const BACKGROUND: &str = "\n\n\
Run what takes longer than your client waits in a task or thread, and look at its results in later cells.";

const LONG_CELLS: &str = "\n\n\
For code that may take over a minute, pass `wait` (30 is good).";

/// Whether a model requests the last answers again, by a cell without code.
pub(super) fn is_recall(request: &CallToolRequestParams) -> bool {
    let code = request.arguments.as_ref().and_then(|arguments| arguments.get("code")?.as_str());
    request.name == NAME && code.is_some_and(|code| code.trim().is_empty())
}

fn default_timeout(has_wait: bool) -> Duration {
    if has_wait { LONG_TIMEOUT } else { DEFAULT_TIMEOUT }
}

fn timeout_of(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_TIMEOUT_SECS))
}

fn output_chars(asked_for: f64) -> usize {
    (asked_for as usize).min(MOST_OUTPUT_CHARS)
}

impl CellArguments {
    /// Reads the arguments. The error is a text for the model.
    pub(super) fn read(arguments: &JsonObject, has_long_cells: bool) -> Result<Self, String> {
        let arguments: ExecuteArguments = parse(arguments)?;
        let timeout = arguments.timeout()?;
        let max_output_chars = arguments.max_output_chars()?;
        let wait = arguments.wait(has_long_cells)?;
        let ExecuteArguments { code, session, if_busy, .. } = arguments;
        Ok(Self { code, timeout, max_output_chars, session, wait, if_busy })
    }

    /// Keeps what the cell prints, for requests that do not wait until it ends.
    pub(super) fn unread(&self) -> Arc<UnreadText> {
        Arc::new(UnreadText::new(self.max_output_chars))
    }
}

impl ExecuteArguments {
    fn timeout(&self) -> Result<Duration, String> {
        match self.timeout {
            None => Ok(default_timeout(self.wait.is_some())),
            Some(seconds) if seconds > 0.0 => Ok(timeout_of(seconds)),
            Some(seconds) => Err(format!(
                "the argument `timeout` cannot be used: {seconds} is not a positive number of seconds"
            )),
        }
    }

    fn max_output_chars(&self) -> Result<usize, String> {
        match self.max_output_chars {
            None => Ok(DEFAULT_MAX_OUTPUT_CHARS),
            // Some clients send every number with a decimal point.
            Some(chars) if chars >= 0.0 && chars.fract() == 0.0 => Ok(output_chars(chars)),
            Some(chars) => Err(format!(
                "the argument `max_output_chars` cannot be used: {chars} is not a whole number of characters"
            )),
        }
    }

    /// Checks the arguments that only long cells have.
    fn wait(&self, has_long_cells: bool) -> Result<Option<Duration>, String> {
        let name = match (self.wait, self.if_busy) {
            (Some(_), _) => "wait",
            (None, Some(_)) => "if_busy",
            (None, None) => return Ok(None),
        };
        if !has_long_cells {
            return Err(format!(
                "the argument `{name}` cannot be used: ipybox was started without `--long-cells`"
            ));
        }
        if let Some(seconds) = self.wait.filter(|seconds| seconds.is_nan() || *seconds <= 0.0) {
            return Err(format!(
                "the argument `wait` cannot be used: {seconds} is not a positive number of seconds"
            ));
        }
        Ok(self.wait.map(|seconds| Duration::from_secs_f64(seconds.min(wait::LONGEST_WAIT_SECS))))
    }
}

pub(super) async fn call(
    server: &McpServer,
    arguments: CellArguments,
    mut call: CallContext,
) -> Result<CallToolResult, String> {
    let CellArguments { code, timeout, max_output_chars, session, if_busy, .. } = arguments;
    if session.as_deref().is_some_and(is_new) {
        // A copy is made after the cells that came before.
        call.turn.come().await;
    }
    let ChosenSession { open, note } = server.sessions.choose(session.as_deref()).await?;
    let _open = open.begin_cell();
    if if_busy == Some(IfBusy::Refuse) && open.open_cells() > 1 {
        return Err(busy(server));
    }
    let (chunks, progress) = match call.progress {
        Some(progress) => {
            let (sender, receiver) = mpsc::channel(CHUNKS_CAPACITY);
            (
                Some(sender),
                Some(progress.report_cell(
                    open.session.phase(),
                    open.session.progress_of_servers(),
                    call.approver.waiting(),
                    receiver,
                )),
            )
        }
        None => (None, None),
    };
    let cancelled = call.cancelled.clone();
    let cell = Cell {
        code,
        timeout,
        max_output_chars,
        cancel: call.cancelled,
        chunks,
        unread: call.unread.clone(),
        approver: call.approver,
        client: call.permissions,
        has_views: call.has_views,
        author: CellRequester::Agent,
        id: call.cell,
    };
    call.turn.come().await;
    let pending = open.session.execute(cell).await;
    drop(call.turn);
    let (outcome, _) = tokio::join!(pending.outcome(), futures::future::OptionFuture::from(progress));
    Ok(match outcome {
        Ok(mut outcome) => {
            outcome.notes.splice(..0, note);
            if let Some(rest) = call.unread.and_then(|unread| unread.rest()) {
                outcome.shown.text.excerpt = rest;
            }
            // Only the text of a cancelled cell is sent, with the next answer.
            let images = if cancelled.is_cancelled() { Images::Link } else { server.images };
            let resources = server.shelf.add(&outcome);
            let mut shown = pictures_of(&mut outcome, images).await;
            if call.has_links {
                shown.extend(resources.into_iter().map(ContentBlock::resource_link));
            }
            let result = reply::cell(&outcome, max_output_chars, shown);
            if call.has_views { views::add_names(result, &outcome.shown.views) } else { result }
        }
        Err(error) => reply::error(&error),
    })
}

/// The refusal while another cell runs.
fn busy(server: &McpServer) -> String {
    let cells = server.ledger.summary().join("\n");
    format!("Not run: another cell has not ended.\n{cells}").trim_end().to_owned()
}

/// The images of a cell that its reply shows.
async fn pictures_of(outcome: &mut Outcome, images: Images) -> Vec<ContentBlock> {
    let files: Vec<Vec<u8>> =
        outcome.shown.images.iter_mut().filter_map(|image| image.bytes.take()).collect();
    if images == Images::Link || files.is_empty() {
        return Vec::new();
    }
    pictures::shown(files).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_is_left_may_run_longer() {
        for (arguments, seconds) in [
            (json!({"code": ""}), 120.0),
            (json!({"code": "", "wait": 20}), 3_600.0),
            (json!({"code": "", "wait": "20", "timeout": "7.5"}), 7.5),
        ] {
            let cell = CellArguments::read(arguments.as_object().unwrap(), true).unwrap();
            assert_eq!(cell.timeout.as_secs_f64(), seconds, "{arguments}");
        }
    }

    #[test]
    fn an_answer_fits_into_memory_whatever_is_asked_for() {
        assert_eq!([0.0, 5000.0, 1e300].map(output_chars), [0, 5000, MOST_OUTPUT_CHARS]);
    }

    #[test]
    fn only_a_cell_without_code_asks() {
        let asks = |name: &str, arguments: serde_json::Value| {
            is_recall(&serde_json::from_value(json!({"name": name, "arguments": arguments})).unwrap())
        };
        assert!(asks("execute_ipython_cell", json!({"code": " \n"})));
        assert!(!asks("execute_ipython_cell", json!({"code": "1"})));
        assert!(!asks("execute_ipython_cell", json!({})));
        assert!(!asks("reset", json!({})));
    }
}
