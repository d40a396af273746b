//! Calls registered servers for a program of the host, on the path of calls of code: resolved, decided about, sent, recorded.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::answer::{CallAnswer, ErrorKind};
use super::call::{GET_PROMPT, READ_RESOURCE, SharedRoutes, ToolCall, answer, resolve};
use crate::approval::{ApprovalEffect, ApprovalPolicy, Audit, Gate, StandingAnswers};
use crate::connections::mcp_client::{Connector, ListKind};
use crate::ground::text::Redactor;
use crate::tools::recording::{CallTape, RecordedCall, RecordingLine, SessionRecorder};
use crate::tools::servers::{ConnectionPool, PoolRequest, ServerLookup};

/// Registered servers, whose answers are added to a recording. Each call is the user's own, and permitted.
pub(crate) struct LivingServers {
    shared: SharedRoutes,
    /// Replaces secrets in what is recorded.
    redactor: Redactor,
}

/// A request of MCP as recordings have it.
#[derive(Clone, Copy)]
pub(crate) enum RecordedRequest<'a> {
    /// A call of this tool.
    Tool(&'a str),
    ReadResource,
    ListResources,
    GetPrompt,
}

/// The answer of a living server.
pub(crate) struct LivingAnswer {
    /// As code would get it.
    pub(crate) answer: Value,
    pub(crate) recorded: RecordedCall,
}

impl<'a> RecordedRequest<'a> {
    /// The name of the tool, else the method.
    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Tool(name) => name,
            Self::ReadResource => READ_RESOURCE,
            Self::ListResources => ListKind::Resources.method(),
            Self::GetPrompt => GET_PROMPT,
        }
    }

    fn of_pool(self) -> PoolRequest {
        match self {
            Self::Tool(_) => PoolRequest::Tool,
            Self::ReadResource => PoolRequest::Resource,
            Self::ListResources => PoolRequest::List(ListKind::Resources),
            Self::GetPrompt => PoolRequest::Prompt,
        }
    }
}

impl LivingServers {
    pub(crate) fn new(servers: Arc<dyn ServerLookup>, connector: Connector, redactor: Redactor) -> Self {
        let policy = ApprovalPolicy::always(ApprovalEffect::Allow);
        let gate = Arc::new(Gate::new(policy, StandingAnswers::default(), Duration::ZERO, Audit::off()));
        let pool = Arc::new(ConnectionPool::new(servers, connector));
        Self { shared: SharedRoutes { pool, gate, tape: CallTape::Off, actions: None }, redactor }
    }

    /// Makes a request. Errors of the server are answers.
    ///
    /// # Errors
    /// The server is not registered, or has not answered; in words.
    pub(crate) async fn ask(
        &self,
        server: &str,
        request: RecordedRequest<'_>,
        arguments: Map<String, Value>,
    ) -> Result<LivingAnswer, String> {
        // One for each call, whose line is found in it.
        let recorder = SessionRecorder::in_memory(self.redactor.clone());
        let shared = SharedRoutes { tape: CallTape::Recording(Arc::clone(&recorder)), ..self.shared.clone() };
        let kind = request.of_pool();
        let found = resolve(&shared, server, request.name(), kind).await.map_err(words)?;
        let call = ToolCall::new(server.to_owned(), request.name().to_owned(), arguments);
        let answer = match answer(&shared, found, call, kind).await {
            CallAnswer::Error {
                kind: ErrorKind::Rejected | ErrorKind::Timeout | ErrorKind::Unreached,
                message,
            } => {
                return Err(message);
            }
            answer => answer.to_json(),
        };
        let recorded = recorder.take().into_iter().find_map(|line| match line {
            RecordingLine::Call(call) => Some(*call),
            _ => None,
        });
        let recorded = recorded.ok_or_else(|| "the call was not recorded".to_owned())?;
        Ok(LivingAnswer { answer, recorded })
    }

    /// Ends the connections.
    pub(crate) async fn stop(&self) {
        self.shared.pool.stop().await;
    }
}

fn words(refused: CallAnswer) -> String {
    match refused {
        CallAnswer::Error { message, .. } => message,
        other => other.to_json().to_string(),
    }
}
