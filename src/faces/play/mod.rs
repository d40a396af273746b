//! Plays a server of a recording as an MCP server over stdio, for any client. Nothing of the recording runs.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};

use crate::ground::text::listed;
use crate::tools::recording::{
    AskedCall, PlayMatch, ReadRecording, RecordedCall, RecordedCalls, RecordedServer, RecordingLine,
    UnreadableRecording, diff,
};

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRecording),
    /// It does not have the server, or has several and none was named.
    #[error("play a server of the recording: it has {known}\nhint: name one with `--server`")]
    Server {
        /// The servers.
        known: String,
    },
    /// The tools of the server are no tools of MCP.
    #[error("play the server `{name}`")]
    Tools {
        /// The server.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The client has broken the protocol.
    #[error("speak MCP on stdin and stdout: {0}")]
    Protocol(String),
}

/// A played server.
struct PlayedServer {
    name: String,
    description: Option<String>,
    tools: Vec<Tool>,
    rule: PlayMatch,
    calls: Mutex<RecordedCalls>,
}

/// Plays the server `name` of a recording, or its only one, until the client has closed stdin. Calls are found by `rule`.
///
/// # Errors
/// See [`PlayError`].
pub async fn play(file: &Path, name: Option<&str>, rule: PlayMatch) -> Result<(), PlayError> {
    let path = PathBuf::from(file);
    let reading = tokio::task::spawn_blocking(move || ReadRecording::read(&path));
    let recording = reading.await.map_err(|error| PlayError::Protocol(error.to_string()))??;
    let server = PlayedServer::of(recording, name, rule)?;
    let running = server.serve(rmcp::transport::stdio()).await;
    let running = running.map_err(|error| PlayError::Protocol(error.to_string()))?;
    running.waiting().await.map_err(|error| PlayError::Protocol(error.to_string()))?;
    Ok(())
}

impl PlayedServer {
    fn of(recording: ReadRecording, name: Option<&str>, rule: PlayMatch) -> Result<Self, PlayError> {
        let mut servers: Vec<RecordedServer> = Vec::new();
        let mut calls = Vec::new();
        for (_, line) in recording.lines {
            match line {
                RecordingLine::Server(server) => {
                    // The newest definitions are those of the end.
                    servers.retain(|known| known.name != server.name);
                    servers.push(*server);
                }
                RecordingLine::Call(call) => calls.push(*call),
                _ => {}
            }
        }
        let known = match servers.len() {
            0 => "none".to_owned(),
            _ => listed(servers.iter().map(|server| server.name.as_str())),
        };
        let found = match name {
            Some(name) => servers.into_iter().find(|server| server.name == name),
            None if servers.len() == 1 => servers.pop(),
            None => None,
        };
        let server = found.ok_or(PlayError::Server { known })?;
        calls.retain(|call| call.server == server.name);
        calls.sort_by_key(|call| call.order[0]);
        let tools =
            tools(&server).map_err(|source| PlayError::Tools { name: server.name.clone(), source })?;
        let RecordedServer { name, description, .. } = server;
        Ok(Self { name, description, tools, rule, calls: Mutex::new(RecordedCalls::new(calls)) })
    }

    fn answer(&self, request: CallToolRequestParams) -> Result<CallToolResult, serde_json::Error> {
        let asked = AskedCall {
            server: self.name.clone(),
            tool: request.name.into_owned(),
            arguments: request.arguments.unwrap_or_default(),
        };
        let mut calls = self.calls.lock();
        let result = match calls.play(self.rule, &asked) {
            Some(RecordedCall { answer: Some(answer), .. }) => result(answer),
            Some(_) => failure("the recording does not have the answer of this call"),
            None => {
                let nearest = calls.nearest(0, &asked).map(RecordedCall::words).unwrap_or_default();
                let diff = diff(&nearest, &asked.words()).join("\n");
                failure(&format!("the recording does not have this call\n{diff}"))
            }
        };
        serde_json::from_value(result)
    }
}

/// The tools as MCP has them.
fn tools(server: &RecordedServer) -> serde_json::Result<Vec<Tool>> {
    let tool = |tool: &ipybox_codegen::Tool| {
        let mut value = json!({"name": tool.name, "inputSchema": tool.input_schema});
        let members = [
            ("title", tool.title.clone().map(Value::from)),
            ("description", tool.description.clone().map(Value::from)),
            ("outputSchema", tool.output_schema.clone().map(Value::from)),
            (
                "annotations",
                server.annotations.get(&tool.name).map(|hints| {
                    let hints = [
                        ("readOnlyHint", hints.read_only),
                        ("destructiveHint", hints.destructive),
                        ("idempotentHint", hints.idempotent),
                        ("openWorldHint", hints.open_world),
                    ];
                    let given =
                        hints.into_iter().filter_map(|(name, hint)| Some((name.to_owned(), hint?.into())));
                    Value::Object(given.collect())
                }),
            ),
        ];
        for (name, member) in members {
            if let Some(member) = member {
                value[name] = member;
            }
        }
        serde_json::from_value(value)
    };
    server.tools.iter().map(tool).collect()
}

/// A recorded answer as MCP has results.
fn result(answer: &Value) -> Value {
    if let Some(message) = answer["error"]["message"].as_str() {
        return failure(message);
    }
    let recorded = &answer["result"];
    let is_structured = answer["is_structured"] == true;
    let content = match (&answer["content"], recorded) {
        (Value::Array(content), _) => json!(content),
        (_, Value::Null) => json!([]),
        (_, Value::String(text)) if !is_structured => json!([{"type": "text", "text": text}]),
        // For clients that know no structured results.
        (_, value) => json!([{"type": "text", "text": value.to_string()}]),
    };
    let mut result = json!({"content": content, "isError": false});
    if is_structured {
        result["structuredContent"] = recorded.clone();
    }
    result
}

fn failure(message: &str) -> Value {
    json!({"content": [{"type": "text", "text": message}], "isError": true})
}

impl ServerHandler for PlayedServer {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new(self.name.clone(), env!("CARGO_PKG_VERSION"));
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let config = ServerConfig::new(capabilities).with_server_info(implementation);
        match &self.description {
            Some(description) => config.with_instructions(description.clone()),
            None => config,
        }
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.answer(request).map(CallToolResponse::from).map_err(|error| {
            ErrorData::internal_error(format!("the recorded answer is no result of MCP: {error}"), None)
        })
    }
}
