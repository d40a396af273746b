//! The HTTP surface that code which calls tools can reach: `POST /run`, and nothing else.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Json, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pool::Pool;
use crate::approval::{Action, Denied, Gate};
use crate::describe::describe;
use crate::mcp::ToolOutput;

/// The largest request body: arguments of a tool call, which may hold a file's content.
const BODY_LIMIT_BYTES: usize = 64 * 1024 * 1024;

#[derive(Clone)]
struct Shared {
    pool: Arc<Pool>,
    gate: Arc<Gate>,
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

/// The answer to a call that was understood.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// What the tool returned: structured content, text, or null.
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
pub(super) fn router(pool: Arc<Pool>, gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/run", post(run))
        .layer(DefaultBodyLimit::max(BODY_LIMIT_BYTES))
        .with_state(Shared { pool, gate })
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
        annotations: server.annotations.get(&call.tool_name).copied(),
        server_name: call.server_name,
        tool_name: call.tool_name,
        tool_args: call.tool_args,
    };
    let ruling = shared.gate.decide(action, &shared.gate.on_duty()).await;
    let permit = match ruling.outcome {
        Ok(permit) => permit,
        Err(denied) => return Answer::from(denied),
    };
    match shared.pool.call(&server, permit).await {
        Ok(ToolOutput::Structured(value)) => Answer::Result(value),
        Ok(ToolOutput::Text(text)) => Answer::Result(Value::String(text)),
        Ok(ToolOutput::Nothing) => Answer::Result(Value::Null),
        Err(error) => failed(error),
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
