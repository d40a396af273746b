//! The HTTP surface that code which calls tools can reach: `POST /run`, `/read`, `/approve` and `/infer`, and nothing
//! else.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Json, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::{Answer, Form};
use super::pool::{Pool, Request};
use crate::approval::{Action, Gate, OURSELVES, Target, ToolAnnotations};
use crate::audit::{Audit, decide_on_record};
use crate::describe::describe;

/// The name by which the reading of a resource is approved and recorded: MCP's method.
const READ_RESOURCE: &str = "resources/read";

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

/// A resource that code in the kernel wants to read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    server_name: String,
    uri: String,
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

/// The routes, for requests with the caller token.
pub(super) fn router(pool: Arc<Pool>, gate: Arc<Gate>, audit: Audit) -> Router {
    Router::new()
        .route("/run", post(run))
        .route("/read", post(read))
        .route("/approve", post(approve))
        .layer(DefaultBodyLimit::max(BODY_LIMIT_BYTES))
        .route("/infer", post(infer).layer(DefaultBodyLimit::max(OBSERVATION_LIMIT_BYTES)))
        .with_state(Shared { pool, gate, audit })
}

async fn run(State(shared): State<Shared>, form: Form, call: Result<Json<Call>, JsonRejection>) -> Response {
    match call {
        Ok(Json(call)) => answer(&shared, call, Request::Tool).await.into_response(form),
        Err(rejection) => refusal(&rejection),
    }
}

async fn read(
    State(shared): State<Shared>,
    form: Form,
    reading: Result<Json<Reading>, JsonRejection>,
) -> Response {
    let Json(Reading { server_name, uri }) = match reading {
        Ok(reading) => reading,
        Err(rejection) => return refusal(&rejection),
    };
    let tool_args = Map::from_iter([("uri".to_owned(), Value::String(uri))]);
    let call = Call { server_name, tool_name: READ_RESOURCE.to_owned(), tool_args };
    answer(&shared, call, Request::Resource).await.into_response(form)
}

fn refusal(rejection: &JsonRejection) -> Response {
    (rejection.status(), rejection.body_text()).into_response()
}

async fn answer(shared: &Shared, call: Call, request: Request) -> Answer {
    let Call { server_name, tool_name, tool_args } = call;
    let server = match shared.pool.resolve(&server_name).await {
        Ok(server) => server,
        Err(error) => return Answer::failed(describe(&error)),
    };
    if request == Request::Tool && server.for_apps.contains(&tool_name) {
        let reason = "it is for the server's own user interface, and not for models";
        return Answer::failed(format!("`{server_name}.{tool_name}` cannot be called: {reason}"));
    }
    let annotations = match request {
        Request::Tool => server.annotations.get(&tool_name).copied(),
        Request::Resource => Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() }),
    };
    let (target, definition) = (server.target(), Some(server.fingerprint()));
    let action = Action { server_name, tool_name, tool_args, target, definition, annotations };
    let decided = decide_on_record(&shared.audit, &shared.gate, action, &shared.gate.on_duty()).await;
    let (permit, on_record) = match decided {
        Ok(permitted) => permitted,
        Err(refusal) => return Answer::from(refusal),
    };
    match shared.pool.request(&server, permit, request).await {
        Ok(output) => {
            on_record.result(&output.value());
            Answer::Output(output)
        }
        Err(error) => {
            let message = describe(&error);
            on_record.error(&message);
            Answer::failed(message)
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
        Err(rejection) => return refusal(&rejection),
    };
    let servers = shared.pool.servers();
    let inferring =
        tokio::task::spawn_blocking(move || servers.infer_result(&server_name, &module, &results));
    let answer = match inferring.await.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(classes) => Answer::Result(Value::String(classes)),
        Err(message) => Answer::failed(message),
    };
    answer.into_response(Form::Json)
}

async fn approve(State(shared): State<Shared>, question: Result<Json<Question>, JsonRejection>) -> Response {
    match question {
        Ok(Json(question)) => judge(&shared.audit, &shared.gate, question).await.into_response(Form::Json),
        Err(rejection) => refusal(&rejection),
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
        judge(&Audit::off(), gate, serde_json::from_str(question).unwrap()).await.to_json(&mut None)
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
