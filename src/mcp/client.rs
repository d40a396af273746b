//! What we tell servers of ourselves, and how we answer their requests.

// Roots are deprecated in the newest revision of the protocol; refusing them still needs their types.
#![expect(deprecated)]

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ErrorCode, ErrorData,
    Implementation, ListRootsResult, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};

/// The client half without extras: pings are answered, everything else that a server may ask is refused.
///
/// Sampling, elicitation and roots are not among the declared capabilities, so a server that asks for
/// them all the same gets the protocol's error for it. (Sampling is refused by rmcp's default.)
pub(super) struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut implementation = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        implementation.title = Some("ipybox".to_owned());
        // rmcp's default is a revision that has no `initialize`; old servers may refuse to hear of it.
        ClientConfig::new(ClientCapabilities::default(), implementation)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(not_offered("elicitation/create"))
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(not_offered("roots/list"))
    }
}

fn not_offered(method: &'static str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("`{method}` is not offered by this client"), None)
}
