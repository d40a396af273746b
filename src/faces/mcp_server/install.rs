//! The tool `install_package`.

use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use super::arguments::schema;
use super::call_context::CallContext;
use super::progress::ProgressNotifier;
use super::reply;
use super::server::McpServer;
use crate::session::{self, InstallError, RequestingClient};

pub(super) const NAME: &str = "install_package";

/// The arguments of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InstallArguments {
    #[serde(deserialize_with = "session::packages")]
    package_name: Vec<String>,
}

pub(super) fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "package_name": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
                "description": "One or several: `requests`, `pandas numpy>=1.20`, `httpx[http2]`, `git+https://…`",
            },
        },
        "required": ["package_name"],
    });
    Tool::new(NAME, DESCRIPTION, schema(input)).with_title("Install a Python package").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(true),
    )
}

const DESCRIPTION: &str = "\
Install Python packages into the kernel's environment. They can be imported at once and survive `reset`.";

pub(super) async fn call(
    server: &McpServer,
    arguments: InstallArguments,
    call: CallContext,
) -> CallToolResult {
    drop(call.turn);
    let (phase, phases) = watch::channel(String::new());
    let report = |words: &str| drop(phase.send_replace(words.to_owned()));
    let client = RequestingClient {
        approver: &call.approver,
        cancelled: &call.cancelled,
        permissions: &call.permissions,
    };
    let installing = server.session().install(&arguments.package_name, Some(client), &report);
    match ProgressNotifier::report_while(call.progress, phases, call.approver.waiting(), installing).await {
        Ok(output) => {
            server.sessions.refresh_others(None).await;
            reply::success(output)
        }
        Err(InstallError::Denied(denied)) => reply::denied(&denied),
        Err(InstallError::Cancelled) => reply::failure("Installation was cancelled."),
        Err(error) => reply::error(&error),
    }
}
