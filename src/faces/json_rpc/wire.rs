//! The messages, and how results and errors of the library are written.

use std::time::Duration;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::words::with_options;
use crate::config;
use crate::faces::library::{CodeExecutionError, CodeExecutionResult};
use crate::ground::text::describe;
use crate::session::{CENTURY, KernelState, StartError};
use crate::tools::registry::{ApigenError, GenerateError};
use crate::tools::tool_server::{self, ApprovalClientError, ToolRunnerError};

/// The codes of JSON-RPC 2.0, section 5.1, and one for everything that the library reports.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const FAILED: i32 = -32000;

/// A line from the other program.
#[derive(Deserialize)]
pub(super) struct RpcLine {
    /// A notification has none, and is not answered.
    pub(super) id: Option<u64>,
    pub(super) method: String,
    #[serde(default)]
    pub(super) params: Value,
}

/// The parameters of the notification `cancel`: the answer to this request is no longer wanted.
#[derive(Deserialize)]
pub(super) struct CancelParams {
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct LevelParams {
    pub(super) level: String,
}

/// Reads a line. The error is the response to one that is no message.
pub(super) fn understand(line: &[u8]) -> Result<RpcLine, String> {
    /// Numbers and texts that cannot be read are passed over, so that a wrong parameter does not hide the id.
    #[derive(Deserialize)]
    struct Identified {
        id: Value,
    }

    serde_json::from_slice(line).map_err(|error| {
        let id = serde_json::from_slice(line).map(|Identified { id }| id).ok();
        let id = id.filter(|id| id.is_number() || id.is_string()).unwrap_or_default();
        response(&id, Err(RpcFailure::unreadable(&error)))
    })
}

/// Reads the parameters of a method.
pub(super) fn read<'de, T: Deserialize<'de>>(params: Value) -> Result<T, RpcFailure> {
    serde_path_to_error::deserialize(params)
        .map_err(|error| RpcFailure { code: INVALID_PARAMS, ..RpcFailure::new("invalid", error.to_string()) })
}

pub(super) fn response(id: &Value, answer: Result<Value, RpcFailure>) -> String {
    match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcFailure { code, message, data }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}})
        }
    }
    .to_string()
}

/// An error for the other program. `kind` in its data says which of the library's errors it is.
#[derive(Debug)]
pub(super) struct RpcFailure {
    code: i32,
    message: String,
    data: Map<String, Value>,
}

impl RpcFailure {
    pub(super) fn new(kind: &str, message: String) -> Self {
        let data = Map::from_iter([("kind".to_owned(), kind.into())]);
        Self { code: FAILED, message, data }
    }

    pub(super) fn too_long() -> Self {
        let message = format!("failed to read a message: it is longer than {} MiB", super::LINE_BYTES >> 20);
        Self { code: PARSE_ERROR, ..Self::new("invalid", message) }
    }

    fn unreadable(error: &serde_json::Error) -> Self {
        let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
        Self { code, ..Self::new("invalid", format!("failed to read a message: {error}")) }
    }

    /// The request has the id of one that is not answered yet.
    pub(super) fn reused(id: u64) -> Self {
        let message = format!("the id {id} is that of a request without an answer yet: give each its own");
        Self { code: INVALID_REQUEST, ..Self::new("invalid", message) }
    }

    pub(super) fn no_method(method: &str) -> Self {
        Self { code: METHOD_NOT_FOUND, ..Self::new("method", format!("there is no method `{method}`")) }
    }

    /// The other program gives a number to two things.
    pub(super) fn taken(what: &str, number: u64) -> Self {
        let message = format!("the number {number} is that of another {what}: give each its own");
        Self { code: INVALID_PARAMS, ..Self::new("invalid", message) }
    }

    /// The other program names something that has ended.
    pub(super) fn closed(what: &str) -> Self {
        Self::new("closed", format!("the {what} has been stopped"))
    }

    pub(super) fn of(kind: &str, error: &dyn std::error::Error) -> Self {
        Self::new(kind, with_options(&describe(error)))
    }

    /// For errors of the library, which say what could not be done.
    pub(super) fn failed(kind: &str, error: &dyn std::error::Error) -> Self {
        Self::new(kind, with_options(&format!("failed to {}", describe(error))))
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }
}

impl From<CodeExecutionError> for RpcFailure {
    fn from(error: CodeExecutionError) -> Self {
        let message = error.to_string();
        let ended = |kind, state, output: &CodeExecutionResult| {
            let is_kept = state == KernelState::Kept;
            Self::new(kind, message.clone()).with("kept", is_kept).with("output", result(output))
        };
        match &error {
            CodeExecutionError::Raised { name, value, output, .. } => Self::new("raised", message)
                .with("name", name.clone())
                .with("value", value.clone())
                .with("output", result(output)),
            CodeExecutionError::TimedOut { kernel, output, .. } => ended("timed_out", *kernel, output),
            CodeExecutionError::Cancelled { kernel, output, .. } => ended("cancelled", *kernel, output),
            CodeExecutionError::Lost { kernel, output, .. } => ended("lost", *kernel, output),
            CodeExecutionError::Unavailable(_) => Self::failed("unavailable", &error),
        }
    }
}

impl From<StartError> for RpcFailure {
    fn from(error: StartError) -> Self {
        use config::Error::{NoGateway, NoHome, Sandbox, StateDir, Workspace};

        let kind = match &error {
            // What is missing on this machine.
            StartError::Config(NoGateway | NoHome | Sandbox(_) | StateDir { .. } | Workspace { .. }) => {
                "start"
            }
            StartError::Config(_) | StartError::Policy(_) => "settings",
            _ => "start",
        };
        Self::failed(kind, &error)
    }
}

impl From<GenerateError> for RpcFailure {
    fn from(error: GenerateError) -> Self {
        let kind = match &error {
            GenerateError::NotAnObject | GenerateError::Unusable(_) => "settings",
            _ => "generate",
        };
        Self::failed(kind, &error)
    }
}

impl From<ApigenError> for RpcFailure {
    fn from(error: ApigenError) -> Self {
        let kind = match &error {
            ApigenError::Name(_) | ApigenError::UnknownTool { .. } => "settings",
            _ => "generate",
        };
        Self::failed(kind, &error)
    }
}

impl From<ToolRunnerError> for RpcFailure {
    fn from(error: ToolRunnerError) -> Self {
        let kind = match &error {
            ToolRunnerError::Rejected(_) => "rejected",
            ToolRunnerError::Timeout(_) => "timeout",
            _ => "tool",
        };
        Self::of(kind, &error)
    }
}

impl From<ApprovalClientError> for RpcFailure {
    fn from(error: ApprovalClientError) -> Self {
        Self::failed("approval_client", &error)
    }
}

impl From<tool_server::Error> for RpcFailure {
    fn from(error: tool_server::Error) -> Self {
        let kind = match &error {
            tool_server::Error::Token { .. } | tool_server::Error::SameTokens => "settings",
            _ => "start",
        };
        Self::failed(kind, &error)
    }
}

/// A result as the other program gets it.
pub(super) fn result(result: &CodeExecutionResult) -> Value {
    #[derive(Serialize)]
    struct WireCut<'a> {
        chars: usize,
        file: Option<&'a std::path::Path>,
    }
    let CodeExecutionResult { cell, text, images, files, truncated, late_text, notes } = result;
    let truncated = truncated.as_ref().map(|cut| WireCut { chars: cut.chars, file: cut.file.as_deref() });
    json!({
        "cell": cell,
        "text": text,
        "images": images,
        "files": files,
        "truncated": truncated,
        "late_text": late_text,
        "notes": notes,
    })
}

/// A time in seconds. `null` is for ever: a century.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireSeconds(pub(super) Duration);

impl<'de> Deserialize<'de> for WireSeconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Some(seconds) = Option::<f64>::deserialize(deserializer)? else { return Ok(Self(CENTURY)) };
        if seconds >= CENTURY.as_secs_f64() {
            return Ok(Self(CENTURY));
        }
        Duration::try_from_secs_f64(seconds).map(Self).map_err(D::Error::custom)
    }
}
