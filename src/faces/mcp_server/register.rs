//! The tool `register_mcp_server`.

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::arguments::schema;
use super::call_context::CallContext;
use super::progress::ProgressNotifier;
use super::reply;
use super::server::McpServer;
use crate::approval::REGISTER;
use crate::kernels::kernel::plain;
use crate::session::{RegisterError, RequestingClient};

pub(super) const NAME: &str = REGISTER;

/// The arguments of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegisterArguments {
    server_name: String,
    #[serde(deserialize_with = "object_or_json")]
    server_params: JsonObject,
}

/// Models like to send an object as a string that holds its JSON.
fn object_or_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<JsonObject, D::Error> {
    let value = match Value::deserialize(deserializer)? {
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| serde::de::Error::custom(format!("it is a string that is not JSON: {error}")))?,
        value => value,
    };
    match value {
        Value::Object(object) => Ok(object),
        other => Err(serde::de::Error::custom(format!("expected an object, not {other}"))),
    }
}

pub(super) fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "server_name": {
                "type": "string",
                "description": "A lowercase Python identifier such as `github`",
            },
            "server_params": {
                "type": "object",
                "description": "stdio: {\"command\", \"args\", \"env\", \"cwd\"}; HTTP: {\"url\", \"headers\", \"type\": \
                    \"streamable_http\" or \"sse\"}. Write secrets as ${VARIABLE}: of ipybox's environment or the workspace's \
                    `.env`",
            },
        },
        "required": ["server_name", "server_params"],
    });
    Tool::new(NAME, DESCRIPTION, schema(input)).with_title("Register an MCP server").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(true),
    )
}

const DESCRIPTION: &str = "\
Connect to an MCP server and generate a Python API for its tools in `mcptools/<server_name>/`. Returns how they are called, \
or searched if they are many. Lasts over `reset` and restarts; registering a name again replaces its API.";

pub(super) async fn call(
    server: &McpServer,
    arguments: RegisterArguments,
    call: CallContext,
) -> CallToolResult {
    drop(call.turn);
    let RegisterArguments { server_name: name, server_params } = &arguments;
    let (phase, phases) = watch::channel(String::new());
    let report = |what: &str| drop(phase.send_replace(format!("MCP server `{name}`: {}", plain(what))));
    let client = RequestingClient {
        approver: &call.approver,
        cancelled: &call.cancelled,
        permissions: &call.permissions,
    };
    let registering = server.session().register(name, server_params, Some(client), &report);
    match ProgressNotifier::report_while(call.progress, phases, call.approver.waiting(), registering).await {
        Ok(registration) => {
            server.sessions.refresh_others(registration.changed(name)).await;
            reply::texts(registration.texts(name))
        }
        Err(RegisterError::Denied(denied)) => reply::denied(&denied),
        Err(RegisterError::Cancelled) => reply::failure("Registration was cancelled."),
        Err(error) => reply::error(&error),
    }
}
