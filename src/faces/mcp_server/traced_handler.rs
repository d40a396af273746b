//! Requests of clients as spans: what they are about, and how they end.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientNotification, ClientRequest,
    ProtocolVersion, ServerConfig, ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext, Service};
use rmcp::{ErrorData, RoleServer};

use super::handler::ConnectionHandler;
use super::ledger::text_of;
use super::server::McpServer;
use super::{execute, install, register, reset, wait};
use crate::ground::telemetry::{Context, Operation, RequestTarget};
use crate::ground::text::cell_id;

/// The tools, by which spans are named: a client may ask for any.
const TOOLS: [&str; 5] = [execute::NAME, register::NAME, install::NAME, reset::NAME, wait::NAME];

/// A handler whose requests have spans. Calls of tools begin theirs themselves, since they may outlive their requests.
pub(super) struct TracedHandler(pub(super) ConnectionHandler);

impl Service<RoleServer> for TracedHandler {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let uri = match &request {
            ClientRequest::InitializeRequest(_)
            | ClientRequest::DiscoverRequest(_)
            | ClientRequest::ListToolsRequest(_)
            | ClientRequest::ListResourcesRequest(_)
            | ClientRequest::ListResourceTemplatesRequest(_) => None,
            ClientRequest::ReadResourceRequest(reading) => Some(reading.params.uri.clone()),
            _ => return self.0.handle_request(request, context).await,
        };
        let target = uri.as_deref().map_or(RequestTarget::None, RequestTarget::Resource);
        let mut operation = begin(&self.0.server, request.method(), target, &context);
        let parent = operation.context();
        let answer = parent.around(self.0.handle_request(request, context)).await;
        match &answer {
            Ok(_) => operation.succeeds(),
            Err(error) => operation.is_refused(error.code.0),
        }
        answer
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        Service::get_info(&self.0)
    }

    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        Service::supported_protocol_versions(&self.0)
    }
}

/// A call of a tool begins.
pub(super) fn call(
    server: &McpServer,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Operation {
    let tool = TOOLS.into_iter().find(|tool| *tool == request.name);
    let operation =
        begin(server, "tools/call", tool.map_or(RequestTarget::None, RequestTarget::Tool), context);
    let variables = &server.sessions.config().variables;
    operation.has_arguments(|length| variables.redactor().redact_json_beginning(&request.arguments, length));
    operation
}

fn begin(
    server: &McpServer,
    method: &str,
    target: RequestTarget<'_>,
    context: &RequestContext<RoleServer>,
) -> Operation {
    if !server.link.is_traced() {
        return Operation::default();
    }
    let parent = Context::of_meta(&context.meta.0.0);
    let mut operation = Operation::of_client(method, target, &server.link, &parent);
    operation.has_id(|| context.id.to_string());
    operation.is_of_version(|| Some(context.protocol_version()?.to_string()));
    operation
}

/// It is about this cell.
pub(super) fn about_cell(operation: &Operation, cell: Option<u64>) {
    operation.is_about_cell(|| cell.map(cell_id));
}

/// A call is done.
pub(super) fn done(
    server: &McpServer,
    operation: &mut Operation,
    result: &Result<CallToolResult, ErrorData>,
) {
    match result {
        Ok(result) => completed(server, operation, result),
        Err(error) => operation.is_refused(error.code.0),
    }
}

fn completed(server: &McpServer, operation: &mut Operation, result: &CallToolResult) {
    match result.is_error {
        Some(true) => operation.tool_fails(),
        _ => operation.succeeds(),
    }
    let variables = &server.sessions.config().variables;
    operation.has_result(|length| variables.redactor().redact_text_beginning(&text_of(result), length));
}

/// A request that waited for a call has its answer.
pub(super) fn answered(
    server: &McpServer,
    operation: &mut Operation,
    answer: &Result<CallToolResponse, ErrorData>,
) {
    match answer {
        Ok(CallToolResponse::Complete(result)) => completed(server, operation, result),
        Ok(_) => operation.succeeds(),
        Err(error) => operation.is_refused(error.code.0),
    }
}
