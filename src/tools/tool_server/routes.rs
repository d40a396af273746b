//! The only HTTP routes that code can reach: `POST /run`, `/batch`, `/read`, `/list`, `/prompt`, `/plan`, `/approve`,
//! `/infer`, `/search` and `/save`.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::answer::{AnswerForm, CallAnswer};
use super::batch;
use super::body::{BodyText, RefusedBody};
use super::call::{GET_PROMPT, READ_RESOURCE, SharedRoutes, ToolCall, answer, check_name, resolve};
use super::{plan, save};
use crate::approval::{Action, Gate, Target};
use crate::connections::mcp_client::ListKind;
use crate::tools::servers::{PoolRequest, SearchQuery};

/// The largest request body with a server to list something of.
const LISTING_LIMIT_BYTES: usize = 16 * 1024;

/// The largest request body with results for an inference, which take many times their size while they are
/// parsed.
const OBSERVATION_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// The largest request body with a query for tools.
const QUERY_LIMIT_BYTES: usize = 16 * 1024;

/// A resource that code in the kernel wants to read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadResource {
    server_name: String,
    uri: String,
}

/// The list that code in the kernel wants to see.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListItems {
    server_name: String,
    kind: ListKind,
}

/// A prompt that code in the kernel wants. Its arguments are texts, as MCP has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GetPrompt {
    server_name: String,
    prompt_name: String,
    #[serde(default)]
    prompt_args: BTreeMap<String, String>,
}

/// Results of a tool, from which their type is to be inferred.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InferResult {
    server_name: String,
    module: String,
    results: Vec<Value>,
}

/// A shell command that code wants to run in the kernel. The host only decides.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShellQuestion {
    /// May be left out: it is the only name possible.
    #[serde(default, rename = "server_name")]
    _server_name: Option<IpyboxName>,
    tool_name: ShellTool,
    tool_args: ShellCommand,
}

/// The server name of ipybox itself, the only one that is accepted.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum IpyboxName {
    Ipybox,
}

/// The tool name of a command.
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
pub(super) fn router(shared: SharedRoutes) -> Router {
    Router::new()
        .route("/run", post(run))
        .route("/batch", post(batch::run))
        .route("/read", post(read))
        .route("/list", post(list))
        .route("/prompt", post(prompt))
        .route("/plan", post(plan::run))
        .route("/approve", post(approve))
        .route("/infer", post(infer))
        .route("/search", post(search))
        .route("/save", post(save::run))
        .with_state(shared)
}

async fn run(
    State(shared): State<SharedRoutes>,
    form: AnswerForm,
    text: BodyText,
) -> Result<Response, RefusedBody> {
    // The arguments are parsed only after the names are checked.
    let (ToolCall { server_name, tool_name, .. }, text) = text.parse::<ToolCall<IgnoredAny>>().await?;
    check_name("name of the server", &server_name)?;
    check_name("name of the tool", &tool_name)?;
    let server = match resolve(&shared, &server_name, &tool_name, PoolRequest::Tool).await {
        Ok(server) => server,
        Err(answer) => return Ok(answer.into_response(form).await),
    };
    let (call, BodyText { lease, .. }) = text.parse::<ToolCall>().await?;
    let answer = answer(&shared, server, call, PoolRequest::Tool).await;
    drop(lease);
    Ok(answer.into_response(form).await)
}

async fn read(
    State(shared): State<SharedRoutes>,
    form: AnswerForm,
    text: BodyText,
) -> Result<Response, RefusedBody> {
    let (ReadResource { server_name, uri }, text) = text.parse().await?;
    check_name("name of the server", &server_name)?;
    let tool_args = Map::from_iter([("uri".to_owned(), Value::String(uri))]);
    let call = ToolCall::new(server_name, READ_RESOURCE.to_owned(), tool_args);
    Ok(resolved(&shared, call, PoolRequest::Resource, text, form).await)
}

async fn list(
    State(shared): State<SharedRoutes>,
    form: AnswerForm,
    text: BodyText,
) -> Result<Response, RefusedBody> {
    let text = text.within("body with a kind of list", LISTING_LIMIT_BYTES)?;
    let (ListItems { server_name, kind }, text) = text.parse().await?;
    check_name("name of the server", &server_name)?;
    let call = ToolCall::new(server_name, kind.method().to_owned(), Map::new());
    Ok(resolved(&shared, call, PoolRequest::List(kind), text, form).await)
}

async fn prompt(
    State(shared): State<SharedRoutes>,
    form: AnswerForm,
    text: BodyText,
) -> Result<Response, RefusedBody> {
    let (GetPrompt { server_name, prompt_name, prompt_args }, text) = text.parse().await?;
    check_name("name of the server", &server_name)?;
    check_name("name of the prompt", &prompt_name)?;
    let given = prompt_args.into_iter().map(|(name, value)| (name, Value::String(value)));
    let given = Value::Object(given.collect());
    let tool_args =
        Map::from_iter([("name".to_owned(), Value::String(prompt_name)), ("arguments".to_owned(), given)]);
    let call = ToolCall::new(server_name, GET_PROMPT.to_owned(), tool_args);
    Ok(resolved(&shared, call, PoolRequest::Prompt, text, form).await)
}

/// Resolves the name of the server, decides, and calls; the body is weighed until then.
async fn resolved(
    shared: &SharedRoutes,
    call: ToolCall,
    request: PoolRequest,
    text: BodyText,
    form: AnswerForm,
) -> Response {
    let answer = match resolve(shared, &call.server_name, &call.tool_name, request).await {
        Ok(server) => answer(shared, server, call, request).await,
        Err(answer) => answer,
    };
    drop(text);
    answer.into_response(form).await
}

/// Needs no approval: no tool is called, and the module is in the workspace, where code writes too.
async fn infer(State(shared): State<SharedRoutes>, text: BodyText) -> Result<Response, RefusedBody> {
    let text = text.within("body with results", OBSERVATION_LIMIT_BYTES)?;
    let (InferResult { server_name, module, results }, mut text) = text.parse().await?;
    check_name("name of the server", &server_name)?;
    // Texts are parsed as JSON, and their description takes memory once more.
    text.add(results.iter().filter_map(Value::as_str))?;
    let servers = shared.pool.servers();
    Ok(looked_up(text, move || servers.infer_result(&server_name, &module, &results)).await)
}

/// Needs no approval: the answer has what the modules in the workspace have, and no server is asked.
async fn search(State(shared): State<SharedRoutes>, text: BodyText) -> Result<Response, RefusedBody> {
    let text = text.within("body with a query", QUERY_LIMIT_BYTES)?;
    let (query, text) = text.parse::<SearchQuery>().await?;
    let servers = shared.pool.servers();
    Ok(looked_up(text, move || servers.search(&query)).await)
}

/// The answer that `look_up` finds on the disk; the body is weighed until then.
async fn looked_up(
    text: BodyText,
    look_up: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> Response {
    let found = tokio::task::spawn_blocking(look_up).await.unwrap_or_else(|error| Err(error.to_string()));
    drop(text);
    let answer = found.map_or_else(CallAnswer::failed, |found| CallAnswer::Result(Value::String(found)));
    answer.into_response(AnswerForm::Json).await
}

async fn approve(State(shared): State<SharedRoutes>, text: BodyText) -> Result<Response, RefusedBody> {
    let (question, text) = text.parse().await?;
    let answer = judge(&shared.gate, question).await;
    drop(text);
    Ok(answer.into_response(AnswerForm::Json).await)
}

async fn judge(gate: &Gate, ShellQuestion { tool_name, tool_args, .. }: ShellQuestion) -> CallAnswer {
    let tool_name = match tool_name {
        ShellTool::Shell => "shell",
        ShellTool::ShellMagic => "shell_magic",
    };
    let action = Action::ours(tool_name, [("cmd", Value::String(tool_args.cmd))], Target::Kernel);
    let decided = gate.decide_at_once_for_code(action).await;
    tracing::debug!(tool_name, is_allowed = decided.is_ok(), "a shell command asked for approval");
    match decided {
        Ok(on_record) => {
            on_record.leave_to_the_kernel();
            CallAnswer::Result(Value::Bool(true))
        }
        Err(denied) => CallAnswer::from(denied),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use tower::ServiceExt as _;

    use super::super::announced::AnnouncedServers;
    use super::*;
    use crate::approval::{
        ApprovalEffect, ApprovalPolicy, ApprovalQueue, ApprovalRequest, Approver, Audit, OURSELVES,
        StandingAnswers,
    };
    use crate::connections::mcp_client::{Connector, StartGuard};
    use crate::ground::env::Variables;
    use crate::tools::recording::CallTape;
    use crate::tools::servers::ConnectionPool;

    const QUESTION: &str = r#"{"tool_name": "shell_magic", "tool_args": {"cmd": "ls\nrm x"}}"#;

    fn gate(default: ApprovalEffect) -> Gate {
        Gate::new(
            ApprovalPolicy::always(default),
            StandingAnswers::default(),
            Duration::from_secs(60),
            Audit::off(),
        )
    }

    fn json(answer: &CallAnswer) -> Value {
        serde_json::from_slice(&answer.to_bytes(AnswerForm::Json).bytes).unwrap()
    }

    async fn judged(gate: &Gate, question: &str) -> Value {
        json(&judge(gate, serde_json::from_str(question).unwrap()).await)
    }

    #[tokio::test]
    async fn a_command_runs_only_if_the_gate_permits_it() {
        assert_eq!(judged(&gate(ApprovalEffect::Allow), QUESTION).await, json!({"result": true}));
        let message = "`ipybox.shell_magic` is denied by the approval policy";
        let denied = json!({"error": {"kind": "rejected", "message": message}});
        assert_eq!(judged(&gate(ApprovalEffect::Deny), QUESTION).await, denied);
        // No cell is running, so there is no approver.
        let unasked = judged(&gate(ApprovalEffect::Ask), QUESTION).await;
        assert_eq!(unasked["error"]["kind"], "rejected", "{unasked}");
    }

    #[tokio::test]
    async fn whoever_answers_sees_the_command() {
        let (queue, mut questions) = ApprovalQueue::new();
        let gate = gate(ApprovalEffect::Ask);
        gate.set_approver(Approver::User(queue));
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

    /// The routes with a server `a`, and what their user is asked.
    fn asking() -> (Router, tokio::sync::mpsc::Receiver<ApprovalRequest>) {
        let servers = Arc::new(AnnouncedServers::default());
        let parameters = Map::from_iter([("command".to_owned(), json!("no-such-program"))]);
        servers.put("a", crate::tools::servers::read("a", &parameters, &|_| true).unwrap().0);
        let variables = Arc::new(Variables::from_pairs::<&str, &str>([]));
        let pool = Arc::new(ConnectionPool::new(
            servers,
            Connector::new(variables, "/".into(), StartGuard::without_directory()),
        ));
        let (queue, questions) = ApprovalQueue::new();
        let gate = Arc::new(gate(ApprovalEffect::Ask));
        gate.set_approver(Approver::User(queue));
        (router(SharedRoutes { pool, gate, tape: CallTape::Off, actions: None }), questions)
    }

    async fn posted(router: &Router, path: &str, body: Value) -> Response {
        let request = axum::http::Request::post(path).header("content-type", "application/json");
        router.clone().oneshot(request.body(axum::body::Body::from(body.to_string())).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn no_call_of_code_is_taken_for_another_request() {
        let (router, mut questions) = asking();
        for tool_name in [
            "elicitation/create",
            "resources/read",
            "resources/list",
            "resources/templates/list",
            "prompts/list",
            "prompts/get",
        ] {
            let arguments = json!({"message": "Log in again", "url": "https://example.com/?data"});
            let call = json!({"server_name": "a", "tool_name": tool_name, "tool_args": arguments});
            let batch = json!({"title": "t", "calls": [call]});
            for (path, body) in [("/run", call), ("/batch", batch)] {
                let answer = posted(&router, path, body).await.into_body();
                let answer = axum::body::to_bytes(answer, 10_000).await.unwrap();
                let answer = String::from_utf8_lossy(&answer);
                assert!(answer.contains("cannot be called"), "{path} {tool_name}: {answer}");
            }
        }
        assert!(questions.try_recv().is_err());
    }

    #[tokio::test]
    async fn calls_that_wait_take_no_more_memory_than_there_is() {
        let (router, mut questions) = asking();
        let call = |server: &str, bytes: usize| {
            let (router, text) = (router.clone(), "x".repeat(bytes));
            let body = json!({"server_name": server, "tool_name": "t", "tool_args": {"text": text}});
            async move { posted(&router, "/run", body).await }
        };
        let large = 15 << 20;
        let waiting: Vec<_> = [(); 2].map(|()| tokio::spawn(call("a", large))).into();
        let asked = [questions.recv().await.unwrap(), questions.recv().await.unwrap()];
        assert_eq!(call("a", large).await.status(), 503);
        assert_eq!(call("a", 41 << 20).await.status(), 413);
        assert_eq!(call("no", 1000).await.status(), 200);
        drop(asked);
        for answer in waiting {
            assert_eq!(answer.await.unwrap().status(), 200);
        }
        assert_eq!(call("no", large).await.status(), 200);
    }

    #[test]
    fn only_commands_are_asked_for_this_way() {
        let check = |question: Value, words: &str| {
            let read = serde_json::from_value::<ShellQuestion>(question.clone()).map(drop);
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
