//! The client of one MCP server: its parameters, connection, tools, calls and results.
//!
//! It keeps no list of servers and no state on disk; it does not generate code and knows no kernel.
//! Values that `${NAME}` placeholders were filled with are taken out of every error and log line.
//!
//! Its rooms, the top one first: each uses those below it, never one above.
//!
//! ```text
//! connector   parameters → a live connection, or a login
//! connection  calls and lists of one server, from the handshake to the end
//! client      our side: what a server may ask us, and its user
//! requests    one request and its answer, as a span
//! transport   the process of a server, or HTTP to one
//! results     results of tools, contents of resources and prompts in our own types
//! messages    messages to and from servers: limited, and repaired where they are odd
//! failure     why there is no answer, in words
//! parameters  how a server is reached, as its user wrote it
//! ```
//!
//! Reasons: `docs/decisions/mcp_client.md`.

mod client;
mod connection;
mod connector;
mod failure;
mod messages;
mod parameters;
mod requests;
mod results;
#[cfg(test)]
mod tests;
mod transport;

pub(crate) use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool as ServerTool};

pub(crate) use self::client::{ElicitationQuestion, NotAnswered, UserAsker};
pub(crate) use self::connection::{CallError, Connection, ListKind, ReceivedResult};
pub(crate) use self::connector::{Connector, DEFAULT_CONNECT_TIMEOUT, LoginError, StartProgress};
pub(crate) use self::failure::{AccessRefusal, Error};
pub(crate) use self::parameters::{
    HttpParameters, HttpTransport, ParametersError, ServerParameters, ServerReach, StdioParameters,
    TRUST_WORKSPACE, WORKSPACE, kind, wrong_type,
};
pub(crate) use self::results::{ResourceBody, ToolContent, ToolOutput};
pub(crate) use self::transport::{StartGuard, chosen_arguments};
