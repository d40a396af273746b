//! Requests to a server as spans: what they are about, and how they end.

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, GetMeta as _};
use rmcp::service::Peer;

use super::mcp_failure::McpFailure;
use crate::connections::mcp_client::results::ToolOutput;
use crate::ground::telemetry::{Operation, RequestLink, RequestTarget, TracedConnection};
use crate::ground::text::Redactor;

/// The common attributes of spans of requests to one server.
#[derive(Clone)]
pub(crate) struct TracedServer {
    link: RequestLink,
    /// Knows the secrets of the workspace.
    redactor: Redactor,
}

impl TracedServer {
    /// Requests to the server that is registered as `server`; `url` is its address, if it has one.
    pub(crate) fn new(server: &str, url: Option<&reqwest::Url>, redactor: &Redactor) -> Self {
        let address = || {
            let url = url?;
            // A placeholder may have filled the host.
            Some((redactor.redact(url.host_str()?).into_owned(), url.port_or_known_default()))
        };
        Self { link: RequestLink::to_server(server, address), redactor: redactor.clone() }
    }

    /// The first request, of this method.
    pub(crate) fn handshake(&self, method: &str) -> Operation {
        self.about(method, RequestTarget::None)
    }

    /// A connection.
    pub(crate) fn session(&self) -> TracedConnection {
        TracedConnection::with_server(&self.link)
    }

    /// A request, which says what its span is from now on.
    pub(crate) fn begin(&self, peer: &Peer<RoleClient>, request: &mut ClientRequest) -> Operation {
        if !self.link.is_traced() {
            return Operation::default();
        }
        let method = request.method();
        let mut operation = match &*request {
            ClientRequest::CallToolRequest(call) => {
                let name = self.redactor.redact(&call.params.name);
                let operation = self.about(method, RequestTarget::Tool(&name));
                let arguments = &call.params.arguments;
                operation.has_arguments(|length| self.redactor.redact_json_beginning(arguments, length));
                operation
            }
            ClientRequest::GetPromptRequest(getting) => {
                let name = self.redactor.redact(&getting.params.name);
                self.about(method, RequestTarget::Prompt(&name))
            }
            ClientRequest::ReadResourceRequest(reading) => {
                let uri = self.redactor.redact(&reading.params.uri);
                self.about(method, RequestTarget::Resource(&uri))
            }
            _ => self.about(method, RequestTarget::None),
        };
        operation.is_of_version(|| Some(peer.peer_info()?.protocol_version.to_string()));
        operation.context().write_to(&mut request.get_meta_mut().0.0);
        operation
    }

    fn about(&self, method: &str, target: RequestTarget<'_>) -> Operation {
        Operation::to_server(method, target, &self.link)
    }

    /// The result of a tool.
    pub(crate) fn result(&self, operation: &Operation, output: &ToolOutput) {
        operation.has_result(|length| match &output.structured {
            Some(value) => self.redactor.redact_json_beginning(value, length),
            None => self.redactor.redact_text_beginning(output, length),
        });
    }
}

/// A request has failed.
pub(crate) fn failed(operation: &mut Operation, failure: &McpFailure) {
    match failure {
        McpFailure::Answered { code, .. } => operation.is_refused(*code),
        McpFailure::Closed | McpFailure::Broken { .. } => operation.fails("disconnected"),
        McpFailure::NotDelivered { .. } => operation.fails("not_delivered"),
        McpFailure::Refused(_) => operation.fails("unauthorized"),
        McpFailure::BadStatus { .. } | McpFailure::Unusable { .. } => operation.fails("invalid_answer"),
    }
}
