//! The HTTP routes for the host of a standalone tool server: registering servers, and approving calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{DefaultBodyLimit, Json, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use serde::Serialize;
use serde_json::{Map, Value};

use super::announced::AnnouncedServers;
use super::approval_channel::ApprovalChannel;
use crate::ground::text::describe;
use crate::tools::servers::{self, ConnectionPool};

/// The largest request body: the parameters of one server.
const BODY_LIMIT_BYTES: usize = 1024 * 1024;

/// The state of the routes.
#[derive(Clone)]
pub(super) struct HostState {
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) servers: Arc<AnnouncedServers>,
    pub(super) channel: Arc<ApprovalChannel>,
}

/// The status of the tool server.
#[derive(Debug, Serialize)]
struct ToolServerStatus {
    version: &'static str,
    /// Whether an approval client is connected.
    approval_client: bool,
    /// The number of approval requests that wait for its answer.
    waiting: usize,
    /// The servers by name.
    servers: BTreeMap<String, ServerStatus>,
}

#[derive(Debug, Serialize)]
struct ServerStatus {
    /// Its command line or URL, placeholders unresolved.
    target: String,
    is_connected: bool,
}

/// The routes, for requests with the host token.
pub(super) fn router(subjects: HostState) -> Router {
    Router::new()
        .route("/reset", put(reset))
        .route("/status", get(status))
        .route("/servers/{name}", put(register).delete(forget))
        .route("/approval", get(approval))
        .layer(DefaultBodyLimit::max(BODY_LIMIT_BYTES))
        .with_state(subjects)
}

async fn reset(State(subjects): State<HostState>) -> StatusCode {
    subjects.pool.close_all().await;
    StatusCode::NO_CONTENT
}

async fn status(State(subjects): State<HostState>) -> Json<ToolServerStatus> {
    let waiting = subjects.channel.waiting();
    let servers = subjects.servers.all().into_iter().map(|(name, server)| {
        let is_connected = subjects.pool.is_connected(&name);
        (name, ServerStatus { target: server.target().to_string(), is_connected })
    });
    Json(ToolServerStatus {
        version: env!("CARGO_PKG_VERSION"),
        approval_client: waiting.is_some(),
        waiting: waiting.unwrap_or_default(),
        servers: servers.collect(),
    })
}

async fn register(
    State(subjects): State<HostState>,
    Path(name): Path<String>,
    parameters: Result<Json<Map<String, Value>>, JsonRejection>,
) -> Response {
    let Json(parameters) = match parameters {
        Ok(parameters) => parameters,
        Err(rejection) => return (rejection.status(), rejection.body_text()).into_response(),
    };
    let has_program = |command: &str| subjects.pool.has_program(command);
    let parameters = match servers::read(&name, &parameters, &has_program) {
        Ok((parameters, notes)) => {
            notes.iter().for_each(|note| tracing::warn!(name, "{note}"));
            parameters
        }
        Err(error) => return (StatusCode::BAD_REQUEST, describe(&error)).into_response(),
    };
    // First the registration, then the old connection: the pool relies on this order.
    if subjects.servers.put(&name, parameters) {
        subjects.pool.close(&name).await;
    }
    tracing::info!(name, "an MCP server is registered");
    StatusCode::NO_CONTENT.into_response()
}

async fn forget(State(subjects): State<HostState>, Path(name): Path<String>) -> Response {
    if !subjects.servers.remove(&name) {
        return (StatusCode::NOT_FOUND, "no MCP server is registered by this name").into_response();
    }
    subjects.pool.close(&name).await;
    tracing::info!(name, "an MCP server is registered no more");
    StatusCode::NO_CONTENT.into_response()
}

async fn approval(
    State(subjects): State<HostState>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match upgrade {
        Ok(upgrade) => subjects.channel.enter(upgrade).await,
        Err(rejection) => rejection.into_response(),
    }
}
