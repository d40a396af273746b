//! An action: the names and arguments of a call, and the target that the server's name refers to.

pub(in crate::approval) mod as_python;
mod batch;
mod in_flight;
mod like;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::as_python::{TooLong, argument, question, question_of_ours};
pub use self::batch::ApprovalBatch;
pub(crate) use self::batch::InBatch;
pub(in crate::approval) use self::in_flight::{CallInFlight, CallsInFlight};
pub(in crate::approval) use self::like::AlikeActions;
use crate::approval::provenance::Provenance;
use crate::ground::text::visible::line;

/// The server name of ipybox's own actions: shell commands, registrations, installations and logins. No MCP server
/// can be registered by it.
pub(crate) const OURSELVES: &str = "ipybox";

/// The tool name of a registration: its argument `server_name` is the name that the server is to have.
pub(crate) const REGISTER: &str = "register_mcp_server";

/// The tool name of a login: its argument `url` is the page that the user is sent to.
pub(crate) const LOGIN: &str = "login";

/// The tool name of a question that a server asks the user: MCP's method. Its argument `message` is the question;
/// `requestedSchema` says what is asked for, or `url` which page to open.
pub(crate) const ELICITATION: &str = "elicitation/create";

/// An action that needs a decision before it runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Action {
    /// The name under which the MCP server is registered; [`OURSELVES`] for actions that
    /// are no MCP tool.
    pub(crate) server_name: String,
    /// The tool's name on its server.
    pub(crate) tool_name: String,
    /// The arguments that will be used if the action is permitted.
    pub(crate) tool_args: Map<String, Value>,
    /// The target that the server's name refers to.
    pub(crate) target: Target,
    /// A hash of the server's full definition, with what `target` does not show (variables, headers, the directory), and
    /// of the tool's description and schemas.
    pub(crate) definition: Option<String>,
    /// The change of the tool's description and schemas, as a diff, if there is one.
    pub(crate) changes: Option<String>,
    /// The server's hints on the tool; `None` if they are not known.
    pub(crate) annotations: Option<ToolAnnotations>,
    /// The batch in which code has announced it.
    pub(crate) batch: Option<InBatch>,
    /// The origins of the data that it would send; `None` if nobody has looked.
    pub(crate) known: Option<Arc<Provenance>>,
}

impl Action {
    /// An action of which nothing more is known.
    pub(crate) fn new(
        server_name: String,
        tool_name: String,
        tool_args: Map<String, Value>,
        target: Target,
    ) -> Self {
        Self {
            server_name,
            tool_name,
            tool_args,
            target,
            definition: None,
            changes: None,
            annotations: None,
            batch: None,
            known: None,
        }
    }

    /// An action of ipybox itself.
    pub(crate) fn ours<'a>(
        tool: &str,
        arguments: impl IntoIterator<Item = (&'a str, Value)>,
        target: Target,
    ) -> Self {
        let tool_args = arguments.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self::new(OURSELVES.to_owned(), tool.to_owned(), tool_args, target)
    }

    /// `server.tool`, as messages name it.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.server_name, self.tool_name)
    }

    /// Whether only the client can do it with its user: fill in a form of a server, or log in on a page.
    pub(crate) fn is_of_client(&self) -> bool {
        let is_login = self.server_name == OURSELVES && self.tool_name == LOGIN;
        is_login || self.tool_name == ELICITATION
    }

    /// The name of the server that this registers.
    pub(crate) fn registers(&self) -> Option<&str> {
        let is_registration = self.target == Target::Host && self.tool_name == REGISTER;
        self.tool_args.get("server_name").filter(|_| is_registration)?.as_str()
    }
}

/// The target of an action.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Target {
    /// An MCP server that is a program on this machine: its command line, placeholders unresolved.
    Command(String),
    /// An MCP server behind this URL, placeholders unresolved.
    Url(String),
    /// The kernel: a shell command that its code wants to run.
    Kernel,
    /// This program, on behalf of its MCP client: a registration or an installation.
    Host,
}

/// A server's hints on what calling a tool does (MCP, `ToolAnnotations`). Nothing enforces them, and a
/// malicious server may give wrong ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolAnnotations {
    /// `readOnlyHint`: it changes nothing. MCP's default: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// `destructiveHint`: it may destroy existing data. MCP's default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// `idempotentHint`: calling it again with the same arguments changes nothing more. MCP's default: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// `openWorldHint`: it reaches out to the world beyond the server. MCP's default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(words) | Self::Url(words) => formatter.write_str(&line(words)),
            Self::Kernel => formatter.write_str("a shell command in the kernel"),
            Self::Host => formatter.write_str("ipybox itself"),
        }
    }
}
