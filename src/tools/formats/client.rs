//! The differences of the formats of clients. Pure.

use crate::ground::clients::KnownClient;

impl KnownClient {
    /// The key under which it has its servers.
    pub(super) fn wrapper(self) -> &'static str {
        match self {
            Self::VsCode => "servers",
            Self::Codex => "mcp_servers",
            _ => "mcpServers",
        }
    }

    /// Whether it counts `timeout` in milliseconds.
    pub(super) fn counts_milliseconds(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Gemini)
    }

    /// Whether `$NAME` refers to a variable.
    pub(super) fn fills_bare_names(self) -> bool {
        self == Self::Gemini
    }
}
