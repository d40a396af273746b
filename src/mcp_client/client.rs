//! Our client information for servers, and our answers to their requests.

// Roots are deprecated in the newest revision of the protocol; refusing them still needs their types.
#![expect(deprecated)]

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ErrorCode, ErrorData, Implementation, ListRootsResult, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};

/// The client half without extras: pings are answered, everything else that a server may ask is refused.
///
/// Sampling, elicitation and roots are not among the declared capabilities, so a server that requests them
/// anyway gets the protocol's error for it. Most servers pass its text on as the error of the tool that
/// asked, so the text has to help the caller of the tool.
pub(super) struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut implementation = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        implementation.title = Some("ipybox".to_owned());
        // rmcp's default is a revision that has no `initialize`; old servers may reject it.
        ClientConfig::new(ClientCapabilities::default(), implementation)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_message(
        &self,
        _request: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(not_offered(
            "sampling/createMessage",
            "ipybox lends servers no language model (sampling). Use a tool that needs none, or a server that has one of \
             its own by a key in its `env`",
        ))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(not_offered(
            "elicitation/create",
            "ipybox does not ask users on behalf of servers (elicitation). Give all that the tool needs as arguments",
        ))
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(not_offered(
            "roots/list",
            "ipybox tells servers no directories (roots). Give them in the server's `args` or `env` when it is registered",
        ))
    }
}

fn not_offered(method: &str, advice: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("`{method}` is refused: {advice}"), None)
}
