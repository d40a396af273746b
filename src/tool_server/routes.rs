//! The HTTP surface that code which calls tools can reach: `POST /run`, `POST /approve` and `POST /infer`, and nothing else.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Json, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pool::Pool;
use crate::approval::{Action, Denied, Gate, OURSELVES, Target};
use crate::audit::{Audit, Refusal, decide_on_record};
use crate::describe::describe;
use crate::mcp::ToolOutput;

/// The largest request body with results to learn from, which take many times their size while they are looked at.
const OBSERVATION_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// The largest request body: arguments of a tool call, which may hold a file's content.
const BODY_LIMIT_BYTES: usize = 64 * 1024 * 1024;

#[derive(Clone)]
struct Shared {
    pool: Arc<Pool>,
    gate: Arc<Gate>,
    audit: Audit,
}

/// A tool call of code in the kernel.
///
/// There is no place for server parameters in it: the kernel never chooses what runs on the host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    server_name: String,
    tool_name: String,
    #[serde(default)]
    tool_args: Map<String, Value>,
}

/// Results of a tool, from which their type is to be inferred.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Observation {
    server_name: String,
    module: String,
    results: Vec<Value>,
}

/// A shell command that code in the kernel wants to run there. Only the answer comes from here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// May be left out: nobody else asks this way.
    #[serde(default, rename = "server_name")]
    _server_name: Option<Ourselves>,
    tool_name: ShellTool,
    tool_args: ShellCommand,
}

/// [`OURSELVES`], as the only name that is understood.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ourselves {
    Ipybox,
}

/// By what name a command is asked for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShellTool {
    /// A text that a shell gets as its argument.
    Shell,
    /// A cell that a program gets as its input.
    ShellMagic,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShellCommand {
    cmd: String,
}

/// The answer to a call that was understood.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// What the tool returned: structured content, text, or null; `true` for a command that may run.
    Result(Value),
    /// Why there is no result.
    Error { kind: ErrorKind, message: String },
}

/// Which exception the call raises in Python.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ErrorKind {
    Tool,
    Rejected,
    Timeout,
}

/// The routes, for requests with the caller token.
pub(super) fn router(pool: Arc<Pool>, gate: Arc<Gate>, audit: Audit) -> Router {
    Router::new()
        .route("/run", post(run))
        .route("/approve", post(approve))
        .layer(DefaultBodyLimit::max(BODY_LIMIT_BYTES))
        .route("/infer", post(infer).layer(DefaultBodyLimit::max(OBSERVATION_LIMIT_BYTES)))
        .with_state(Shared { pool, gate, audit })
}

async fn run(State(shared): State<Shared>, call: Result<Json<Call>, JsonRejection>) -> Response {
    let Json(call) = match call {
        Ok(call) => call,
        Err(rejection) => return (rejection.status(), rejection.body_text()).into_response(),
    };
    Json(answer(&shared, call).await).into_response()
}

async fn answer(shared: &Shared, call: Call) -> Answer {
    let failed = |error| Answer::Error { kind: ErrorKind::Tool, message: describe(&error) };
    let server = match shared.pool.resolve(&call.server_name).await {
        Ok(server) => server,
        Err(error) => return failed(error),
    };
    let action = Action {
        target: server.target(),
        definition: Some(server.fingerprint()),
        annotations: server.annotations.get(&call.tool_name).copied(),
        server_name: call.server_name,
        tool_name: call.tool_name,
        tool_args: call.tool_args,
    };
    let decided = decide_on_record(&shared.audit, &shared.gate, action, &shared.gate.on_duty()).await;
    let (permit, on_record) = match decided {
        Ok(permitted) => permitted,
        Err(refusal) => return Answer::from(refusal),
    };
    let answer = match shared.pool.call(&server, permit).await {
        Ok(ToolOutput::Structured(value)) => Answer::Result(value),
        Ok(ToolOutput::Text(text)) => Answer::Result(Value::String(text)),
        Ok(ToolOutput::Nothing) => Answer::Result(Value::Null),
        Err(error) => failed(error),
    };
    match &answer {
        Answer::Result(value) => on_record.result(value),
        Answer::Error { message, .. } => on_record.error(message),
    }
    answer
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Denied(denied) => denied.into(),
            refusal => Self::Error { kind: ErrorKind::Rejected, message: describe(&refusal) },
        }
    }
}

/// Needs no approval: no tool is called, and what is written is in the workspace, where code writes too.
async fn infer(
    State(shared): State<Shared>,
    observation: Result<Json<Observation>, JsonRejection>,
) -> Response {
    let Json(Observation { server_name, module, results }) = match observation {
        Ok(observation) => observation,
        Err(rejection) => return (rejection.status(), rejection.body_text()).into_response(),
    };
    let servers = shared.pool.servers();
    let inferring =
        tokio::task::spawn_blocking(move || servers.infer_result(&server_name, &module, &results));
    let answer = match inferring.await.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(classes) => Answer::Result(Value::String(classes)),
        Err(message) => Answer::Error { kind: ErrorKind::Tool, message },
    };
    Json(answer).into_response()
}

async fn approve(State(shared): State<Shared>, question: Result<Json<Question>, JsonRejection>) -> Response {
    match question {
        Ok(Json(question)) => Json(judge(&shared.audit, &shared.gate, question).await).into_response(),
        Err(rejection) => (rejection.status(), rejection.body_text()).into_response(),
    }
}

async fn judge(audit: &Audit, gate: &Gate, Question { tool_name, tool_args, .. }: Question) -> Answer {
    let tool_name = match tool_name {
        ShellTool::Shell => "shell",
        ShellTool::ShellMagic => "shell_magic",
    };
    let action = Action {
        server_name: OURSELVES.to_owned(),
        tool_name: tool_name.to_owned(),
        tool_args: Map::from_iter([("cmd".to_owned(), Value::String(tool_args.cmd))]),
        target: Target::Kernel,
        definition: None,
        annotations: None,
    };
    let decided = decide_on_record(audit, gate, action, &gate.on_duty()).await;
    tracing::debug!(tool_name, is_allowed = decided.is_ok(), "a shell command asked for approval");
    match decided {
        Ok((_permit, on_record)) => {
            on_record.leave_to_the_kernel();
            Answer::Result(Value::Bool(true))
        }
        Err(refusal) => Answer::from(refusal),
    }
}

impl From<Denied> for Answer {
    fn from(denied: Denied) -> Self {
        let kind = match denied {
            Denied::Expired { .. } => ErrorKind::Timeout,
            _ => ErrorKind::Rejected,
        };
        Self::Error { kind, message: denied.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::approval::{Approver, Desk, Effect, Policy, Standing};

    const QUESTION: &str = r#"{"tool_name": "shell_magic", "tool_args": {"cmd": "ls\nrm x"}}"#;

    fn gate(default: Effect) -> Gate {
        Gate::new(Policy::always(default), Standing::default(), Duration::from_secs(60))
    }

    async fn judged(gate: &Gate, question: &str) -> Value {
        serde_json::to_value(judge(&Audit::off(), gate, serde_json::from_str(question).unwrap()).await)
            .unwrap()
    }

    #[tokio::test]
    async fn a_command_runs_only_if_the_gate_permits_it() {
        assert_eq!(judged(&gate(Effect::Allow), QUESTION).await, json!({"result": true}));
        let message = "`ipybox.shell_magic` is denied by the approval policy";
        let denied = json!({"error": {"kind": "rejected", "message": message}});
        assert_eq!(judged(&gate(Effect::Deny), QUESTION).await, denied);
        // No cell is running that somebody could answer for.
        let unasked = judged(&gate(Effect::Ask), QUESTION).await;
        assert_eq!(unasked["error"]["kind"], "rejected", "{unasked}");
    }

    #[tokio::test]
    async fn whoever_answers_sees_the_command() {
        let (desk, mut questions) = Desk::new();
        let gate = gate(Effect::Ask);
        gate.put_on_duty(Approver::Desk(desk));
        let answer = async {
            let request = questions.recv().await.unwrap();
            assert_eq!((request.server_name(), request.tool_name()), ("ipybox", "shell_magic"));
            assert_eq!(*request.target(), Target::Kernel);
            assert_eq!(request.tool_args()["cmd"], "ls\nrm x");
            assert!(request.reject());
        };
        let (judged, ()) = tokio::join!(judged(&gate, QUESTION), answer);
        let message = "the call of `ipybox.shell_magic` was rejected";
        assert_eq!(judged, json!({"error": {"kind": "rejected", "message": message}}));
    }

    #[test]
    fn only_commands_are_asked_for_this_way() {
        let check = |question: Value, words: &str| {
            let read = serde_json::from_value::<Question>(question.clone()).map(drop);
            let read = read.map_err(|error| error.to_string()).err().unwrap_or_default();
            assert!(read.contains(words) && words.is_empty() == read.is_empty(), "{question}: {read}");
        };
        let cmd = json!({"cmd": "ls"});
        check(json!({"tool_name": "shell", "tool_args": cmd}), "");
        check(json!({"server_name": OURSELVES, "tool_name": "shell", "tool_args": cmd}), "");
        check(json!({"tool_name": "reset", "tool_args": cmd}), "expected `shell` or `shell_magic`");
        check(json!({"server_name": "git", "tool_name": "shell", "tool_args": cmd}), "`ipybox`");
        check(json!({"tool_name": "shell", "tool_args": {"cmd": "ls", "x": 1}}), "unknown field `x`");
        check(json!({"tool_name": "shell", "tool_args": {"cmd": 5}}), "a string");
        check(json!({"tool_name": "shell", "tool_args": cmd, "approved": true}), "unknown field `approved`");
        check(json!({"tool_name": "shell"}), "tool_args");
    }
}
