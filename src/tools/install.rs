//! The tool `install_package`.

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Map, json};
use tokio::sync::watch;

use super::{Call, McpServer, Progress, consent, parse, reply, schema};
use crate::approval::Approver;
use crate::describe::describe;

pub(super) const NAME: &str = "install_package";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    package_name: String,
}

pub(super) fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "package_name": {
                "type": "string",
                "description": "What to install: `requests`, `numpy>=1.20.0`, `httpx[http2]`, or `git+https://…`",
            },
        },
        "required": ["package_name"],
        "additionalProperties": false,
    });
    Tool::new(NAME, DESCRIPTION, schema(input)).with_title("Install a Python package").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(true),
    )
}

const DESCRIPTION: &str = "\
Install a Python package into the environment that runs the kernel. It can be imported at once and survives \
`reset`. Takes a name with optional version and extras, or a URL; options are refused. Returns the \
installer's output; a failed installation is an error.";

pub(super) async fn call(server: &McpServer, arguments: JsonObject, call: Call) -> CallToolResult {
    drop(call.turn);
    let arguments: Arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(refusal) => return reply::failure(refusal),
    };
    let installed = tokio::select! {
        installed = install(server, arguments.package_name, &call.approver, call.progress) => installed,
        () = call.cancelled.cancelled() => return reply::failure("Installation was cancelled."),
    };
    match installed {
        Ok(output) => {
            server.session.refresh_imports(None).await;
            reply::success(output)
        }
        Err(failure) => failure,
    }
}

/// Installs the package if it may be. Returns the installer's output.
async fn install(
    server: &McpServer,
    package: String,
    approver: &Approver,
    mut progress: Option<Progress>,
) -> Result<String, CallToolResult> {
    // Nobody is asked about what cannot be done.
    server.session.check_package(&package).map_err(|error| reply::error(&error))?;
    let arguments = Map::from_iter([("package_name".to_owned(), json!(package))]);
    let on_record = consent::decide(server, NAME, arguments, approver, progress.as_mut()).await?;
    let (phase, phases) = watch::channel(String::new());
    let tell = |words: &str| drop(phase.send_replace(words.to_owned()));
    let install = async { server.session.install(&package, &tell).await.map_err(|error| told(&error)) };
    match Progress::tell_while(progress, phases, install).await {
        Ok(output) => {
            on_record.result(|| json!(output));
            Ok(output)
        }
        Err((words, failure)) => {
            on_record.error(&words);
            Err(failure)
        }
    }
}

/// An error as the audit log and as the client is told it.
fn told(error: &dyn std::error::Error) -> (String, CallToolResult) {
    (describe(error), reply::error(error))
}
