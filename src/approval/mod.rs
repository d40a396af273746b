//! May this tool call run? Asked on the host, for every call, before anything reaches an MCP server.
//!
//! The decision is made here and nowhere else; code in the kernel has no way to reach it.

use serde_json::{Map, Value};

/// A tool call that asks for permission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The name under which the MCP server is registered.
    pub(crate) server_name: &'a str,
    /// The tool's name, as its server calls it.
    pub(crate) tool_name: &'a str,
    /// The arguments that will be sent if the call is accepted.
    pub(crate) tool_args: &'a Map<String, Value>,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "`Automatic` never rejects; the modes that ask do")]
pub(crate) enum Decision {
    /// The call may run.
    Accepted,
    /// It may not.
    Rejected,
}

/// Who decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Approval {
    /// Every call of a registered server's tools is accepted.
    #[default]
    Automatic,
}

impl Approval {
    /// Decides about one call.
    pub(crate) async fn decide(self, request: Request<'_>) -> Decision {
        match self {
            Self::Automatic => {
                tracing::debug!(
                    server = request.server_name,
                    tool = request.tool_name,
                    arguments = request.tool_args.len(),
                    "tool call accepted"
                );
                Decision::Accepted
            }
        }
    }
}
