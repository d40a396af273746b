//! Plays a server of a recording as an MCP server over stdio, for any client. Nothing of the recording runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::mcp_form::{self, PlayedLists};
use super::missing::{MissingAnswers, UpdateError};
use crate::ground::text::listed;
use crate::tools::recording::{
    AskedCall, PlayMatch, ReadRecording, RecordedCall, RecordedCalls, RecordedServer, RecordingLine,
    UnreadableRecording, diff,
};
use crate::tools::tool_server::RecordedRequest;

/// The options of a played server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlayOptions {
    /// The recording.
    pub file: PathBuf,
    /// The name of the server. Default: the only one of the recording.
    pub server: Option<String>,
    /// The rule by which calls are found. Default: [`PlayMatch::Arguments`].
    pub rule: PlayMatch,
    /// Whether calls that the recording does not have are made at the living server, and added to it: never with
    /// [`PlayMatch::Order`]. Default: no.
    pub update: bool,
    /// The workspace whose registered servers are the living ones. Default: the current directory.
    pub workspace: PathBuf,
    /// The directory of registered servers. Default: as for sessions.
    pub state_dir: Option<PathBuf>,
}

impl PlayOptions {
    /// The defaults, for this recording.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            server: None,
            rule: PlayMatch::Arguments,
            update: false,
            workspace: ".".into(),
            state_dir: None,
        }
    }
}

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
    /// The server of the recording is no server of MCP.
    #[error("play the server `{name}`")]
    Form {
        /// The server.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The recording cannot be completed.
    #[error(transparent)]
    Update(#[from] UpdateError),
    /// The client has broken the protocol.
    #[error("speak MCP on stdin and stdout: {0}")]
    Protocol(String),
}

/// A played server.
struct PlayedServer {
    name: String,
    description: Option<String>,
    lists: PlayedLists,
    rule: PlayMatch,
    calls: Mutex<RecordedCalls>,
    /// Answers what the recording does not.
    missing: Option<Arc<MissingAnswers>>,
}

/// Plays a server of a recording until the client has closed stdin.
///
/// # Errors
/// See [`PlayError`].
pub async fn play(options: PlayOptions) -> Result<(), PlayError> {
    if options.update && options.rule == PlayMatch::Order {
        return Err(UpdateError::Order.into());
    }
    let PlayOptions { file, workspace, state_dir, .. } = options.clone();
    let missing = options.update.then(|| MissingAnswers::open(file, workspace, state_dir)).transpose()?;
    let mut recording = read(&options.file).await?;
    if let (Some(missing), Some(name)) = (&missing, &options.server)
        && !has_server(&recording, name)
    {
        missing.add_server(name).await?;
        recording = read(&options.file).await?;
    }
    let server = PlayedServer::of(recording, options, missing.clone())?;
    let running = server.serve(rmcp::transport::stdio()).await;
    let running = running.map_err(|error| PlayError::Protocol(error.to_string()))?;
    let ended = running.waiting().await;
    if let Some(missing) = missing {
        missing.stop().await;
    }
    ended.map(drop).map_err(|error| PlayError::Protocol(error.to_string()))
}

fn has_server(recording: &ReadRecording, name: &str) -> bool {
    recording
        .lines
        .iter()
        .any(|(_, line)| matches!(line, RecordingLine::Server(server) if server.name == name))
}

async fn read(file: &Path) -> Result<ReadRecording, PlayError> {
    let path = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || ReadRecording::read(&path));
    Ok(reading.await.map_err(|error| PlayError::Protocol(error.to_string()))??)
}

impl PlayedServer {
    fn of(
        recording: ReadRecording,
        options: PlayOptions,
        missing: Option<Arc<MissingAnswers>>,
    ) -> Result<Self, PlayError> {
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
        let found = match &options.server {
            Some(name) => servers.into_iter().find(|server| server.name == *name),
            None if servers.len() == 1 => servers.pop(),
            None => None,
        };
        let server = found.ok_or(PlayError::Server { known })?;
        calls.retain(|call| call.server == server.name);
        calls.sort_by_key(|call| call.order[0]);
        let lists = PlayedLists::of(&server)
            .map_err(|source| PlayError::Form { name: server.name.clone(), source })?;
        let RecordedServer { name, description, .. } = server;
        let calls = Mutex::new(RecordedCalls::new(calls));
        Ok(Self { name, description, lists, rule: options.rule, calls, missing })
    }

    /// The answer as code gets it.
    async fn answer(&self, request: RecordedRequest<'_>, arguments: Map<String, Value>) -> Value {
        let given = AskedCall { server: self.name.clone(), tool: request.name().to_owned(), arguments };
        let Some(missing) = &self.missing else {
            return self.recorded(&given).unwrap_or_else(|| self.unknown(&given));
        };
        let asked = missing.as_recorded(&given);
        if let Some(answer) = self.recorded(&asked) {
            return answer;
        }
        match missing.ask(request, given).await {
            Ok(living) => {
                self.calls.lock().add(living.recorded);
                living.answer
            }
            Err(message) => failure(message),
        }
    }

    /// The recorded answer; `None` if it has to be asked for.
    fn recorded(&self, asked: &AskedCall) -> Option<Value> {
        let mut calls = self.calls.lock();
        match calls.play(self.rule, asked)? {
            RecordedCall { answer: Some(answer), .. } => Some(answer.clone()),
            _ if self.missing.is_some() => None,
            _ => Some(failure("the recording does not have the answer of this call".to_owned())),
        }
    }

    fn unknown(&self, asked: &AskedCall) -> Value {
        let calls = self.calls.lock();
        let nearest = calls.nearest(0, asked).map(RecordedCall::words).unwrap_or_default();
        let diff = diff(&nearest, &asked.words()).join("\n");
        failure(format!("the recording does not have this call\n{diff}"))
    }
}

/// An error as code gets it.
fn failure(message: String) -> Value {
    json!({"error": {"kind": "tool", "message": message}})
}

/// A value in the form of MCP.
fn form<T: DeserializeOwned>(value: Result<Value, String>) -> Result<T, ErrorData> {
    let value = value.map_err(|message| ErrorData::internal_error(message, None))?;
    serde_json::from_value(value).map_err(|error| {
        ErrorData::internal_error(format!("the recorded answer is no result of MCP: {error}"), None)
    })
}

impl ServerHandler for PlayedServer {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new(self.name.clone(), env!("CARGO_PKG_VERSION"));
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        capabilities.resources = self.lists.templates.is_some().then(Default::default);
        capabilities.prompts = self.lists.prompts.is_some().then(Default::default);
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
        Ok(ListToolsResult::with_all_items(self.lists.tools.clone()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(self.lists.templates.clone().unwrap_or_default()))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(self.lists.prompts.clone().unwrap_or_default()))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        form(mcp_form::resources(self.answer(RecordedRequest::ListResources, Map::new()).await))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let arguments = Map::from_iter([("uri".to_owned(), request.uri.into())]);
        let answer = self.answer(RecordedRequest::ReadResource, arguments).await;
        form::<ReadResourceResult>(mcp_form::contents(answer)).map(ReadResourceResponse::from)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let given = Value::Object(request.arguments.unwrap_or_default());
        let arguments =
            Map::from_iter([("name".to_owned(), request.name.into()), ("arguments".to_owned(), given)]);
        let answer = self.answer(RecordedRequest::GetPrompt, arguments).await;
        form::<GetPromptResult>(mcp_form::messages(answer)).map(GetPromptResponse::from)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let answer = self.answer(RecordedRequest::Tool(&request.name), arguments).await;
        form::<rmcp::model::CallToolResult>(Ok(mcp_form::result(&answer))).map(CallToolResponse::from)
    }
}
