//! A server's identity.

use rmcp::model::ServerPeerInfo;

/// A server's identity, from its answer to `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    /// Its own name, which may differ from its registered name; the registered one if it has none.
    pub(crate) name: String,
    /// A name for people.
    pub(crate) title: Option<String>,
    /// Its version; empty if unknown.
    pub(crate) version: String,
    /// The server's instructions for its use.
    pub(crate) instructions: Option<String>,
    /// The negotiated protocol revision.
    pub(crate) protocol_version: String,
    /// Whether it declares resources.
    pub(crate) has_resources: bool,
    /// Whether it declares prompts.
    pub(crate) has_prompts: bool,
}

impl ServerIdentity {
    /// The identity of the server registered as `registered_name`.
    pub(crate) fn from_rmcp(info: Option<&ServerPeerInfo>, registered_name: &str) -> Self {
        let implementation = info.and_then(|info| info.server_info.as_ref());
        let named = implementation.filter(|server| !server.name.is_empty());
        Self {
            name: named.map_or_else(|| registered_name.to_owned(), |server| server.name.clone()),
            title: implementation.and_then(|server| server.title.clone()),
            version: implementation.map(|server| server.version.clone()).unwrap_or_default(),
            instructions: info.and_then(|info| info.instructions.clone()),
            protocol_version: info.map(|info| info.protocol_version.to_string()).unwrap_or_default(),
            has_resources: info.is_some_and(|info| info.capabilities.resources.is_some()),
            has_prompts: info.is_some_and(|info| info.capabilities.prompts.is_some()),
        }
    }
}
