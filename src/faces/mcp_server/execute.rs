//! The tool `execute_ipython_cell`.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::sessions::Chosen;
use super::{Call, McpServer, number, number_in, parse, pictures, reply, schema, views, wait};
use crate::config::Images;
use crate::kernels::output::Unread;
use crate::session::{Author, Cell, DEFAULT_TIMEOUT, Outcome};

pub(super) const NAME: &str = "execute_ipython_cell";

const DEFAULT_MAX_OUTPUT_CHARS: usize = 5_000;

/// The most that an answer has, whatever is asked for: it is held in memory, several times over.
const MOST_OUTPUT_CHARS: usize = 100_000_000;

/// The longest timeout that is kept to the second; longer ones are as good as none.
const LONGEST_TIMEOUT_SECS: f64 = 30.0 * 24.0 * 3600.0;

/// How many chunks of output may wait to be sent as progress before the kernel has to wait.
const CHUNKS_CAPACITY: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
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

/// What becomes of a cell if another one runs.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum IfBusy {
    Queue,
    Refuse,
}

/// `is_long` adds what cells need that a request does not wait for.
pub(super) fn definition(is_long: bool) -> Tool {
    let mut input = json!({
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "Python code to run in the IPython kernel"},
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "default": DEFAULT_TIMEOUT.as_secs(),
                "description": "How long the code may run, in seconds, before it is interrupted; background tasks are not",
            },
            "max_output_chars": {
                "type": "integer",
                "minimum": 0,
                "default": DEFAULT_MAX_OUTPUT_CHARS,
                "description": "How many characters of output to return. Of longer output the beginning and the end \
                    are returned, and the path of a file with all of it",
            },
            "session": {
                "type": "string",
                "description": "`new` for a kernel of your own, whose handle the answer has; pass that handle later. Without \
                    it, the kernel that all agents of this client share",
            },
        },
        "required": ["code"],
        "additionalProperties": false,
    });
    let mut description = DESCRIPTION.to_owned();
    if is_long {
        description.push_str(LONG_CELLS);
        input["properties"]["wait"] = json!({
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "How long to wait for the cell, in seconds; then what it has printed is returned with its id, \
                and it runs on. Without it, this waits until the cell ends",
        });
        input["properties"]["if_busy"] = json!({
            "type": "string",
            "enum": ["queue", "refuse"],
            "default": "queue",
            "description": "Whether the cell waits for those before it, or is refused while one runs",
        });
    }
    Tool::new(NAME, description, schema(input)).with_title("Run Python code").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true),
    )
}

const DESCRIPTION: &str = "\
Run Python code in a stateful IPython kernel. Variables, imports and definitions persist between calls; \
calls run one at a time, in the order in which they arrive.

- Call tools of registered MCP servers with `from mcptools.<server_name> import <tool_name>` and \
`<tool_name>.run(<tool_name>.Params(...))`.
- Many calls that need the user's approval are asked about once in `with mcptools.batch(title) as batch:`; \
they run at its end, and `batch.results` has what they returned.
- `await` works at top level; in async code use `await <tool_name>.run_async(...)`.
- `!command` and IPython magics work. Plots are saved as files in `images/`.
- `show_file(path)` gives the user a copy of a file of the workspace, or of a table. `uploaded_file(name)` is the path of a \
file that the user has put into `uploads/`.
- Nobody can answer `input()` or a debugger: they raise an error.
- What takes longer than your client waits runs in the background, in a task (`task = asyncio.create_task(...)`) or a \
thread: let the cell end, keep results in variables, and look at them in later cells.

Returns what was printed, the value of the last expression, and generated images: links to the files, and \
the first four to look at unless the user does not want that; `[no output]` if there is nothing. Progress bars \
are reduced to their final state. What threads and tasks of earlier cells printed meanwhile is returned too, \
marked. An exception is returned as an error, with what was printed before it and the traceback, in which `%xmode \
Verbose` shows the frames of libraries too. Code that exceeds the timeout is interrupted; the answer says whether \
variables survived.

If a call ended without its answer because the client stopped waiting, the next answer contains it; if it does not, \
a cell without code repeats the last answers.";

const LONG_CELLS: &str = "\n\n\
For code that may take longer than a minute, pass `wait` (30 is a good value) and a large enough `timeout`: if the cell \
has not ended by then, the answer has its id, and `wait_for_cell` returns the rest.";

/// How long a request waits for its cell, if it says so.
pub(super) fn wait_of(arguments: &JsonObject) -> Option<Duration> {
    let seconds = number_in(arguments.get("wait")?)?;
    Duration::try_from_secs_f64(seconds.min(wait::LONGEST_WAIT_SECS)).ok()
}

/// Keeps what the cell prints, for requests that do not wait until it ends.
pub(super) fn unread_for(arguments: &JsonObject) -> Arc<Unread> {
    let limit = arguments.get("max_output_chars").and_then(number_in);
    Arc::new(Unread::new(limit.map_or(DEFAULT_MAX_OUTPUT_CHARS, output_chars)))
}

fn output_chars(asked_for: f64) -> usize {
    (asked_for as usize).min(MOST_OUTPUT_CHARS)
}

impl Arguments {
    fn timeout(&self) -> Result<Duration, String> {
        match self.timeout {
            None => Ok(DEFAULT_TIMEOUT),
            Some(seconds) if seconds > 0.0 => Ok(Duration::from_secs_f64(seconds.min(LONGEST_TIMEOUT_SECS))),
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
}

pub(super) async fn call(
    server: &McpServer,
    arguments: JsonObject,
    mut call: Call,
) -> Result<CallToolResult, String> {
    let arguments: Arguments = parse(arguments)?;
    let (timeout, max_output_chars) = (arguments.timeout()?, arguments.max_output_chars()?);
    check_options(server, arguments.wait, arguments.if_busy)?;
    let Chosen { open, note } = server.sessions.choose(arguments.session.as_deref()).await?;
    let _open = open.cells.token();
    if arguments.if_busy == Some(IfBusy::Refuse) && open.cells.len() > 1 {
        return Err(busy(server));
    }
    let (chunks, progress) = match call.progress {
        Some(progress) => {
            let (sender, receiver) = mpsc::channel(CHUNKS_CAPACITY);
            (
                Some(sender),
                Some(progress.report_cell(
                    (open.session.phase(), open.session.progress_of_servers()),
                    call.approver.waiting(),
                    receiver,
                )),
            )
        }
        None => (None, None),
    };
    let cancelled = call.cancelled.clone();
    let cell = Cell {
        code: arguments.code,
        timeout,
        max_output_chars,
        cancel: call.cancelled,
        chunks,
        unread: call.unread.clone(),
        approver: call.approver,
        has_views: call.has_views,
        author: Author::Agent,
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

/// Checks the arguments that only long cells have.
fn check_options(server: &McpServer, wait: Option<f64>, if_busy: Option<IfBusy>) -> Result<(), String> {
    let name = match (wait, if_busy) {
        (Some(_), _) => "wait",
        (None, Some(_)) => "if_busy",
        (None, None) => return Ok(()),
    };
    if !server.has_long_cells {
        return Err(format!(
            "the argument `{name}` cannot be used: ipybox was started without `--long-cells`"
        ));
    }
    if let Some(seconds) = wait.filter(|seconds| seconds.is_nan() || *seconds <= 0.0) {
        return Err(format!(
            "the argument `wait` cannot be used: {seconds} is not a positive number of seconds"
        ));
    }
    Ok(())
}

/// The refusal while another cell runs.
fn busy(server: &McpServer) -> String {
    let cells = server.left.summary().join("\n");
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
    fn an_answer_fits_into_memory_whatever_is_asked_for() {
        assert_eq!([0.0, 5000.0, 1e300].map(output_chars), [0, 5000, MOST_OUTPUT_CHARS]);
    }
}
