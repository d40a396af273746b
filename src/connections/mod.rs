//! Connections to MCP servers, and the logins that some of them want.

pub(crate) mod mcp_client;
pub(crate) mod oauth;
