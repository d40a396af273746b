//! The MCP servers that code can call: lookup of their names, and the live connections to them.

mod elicitation;
mod login;
mod pool;
pub(crate) mod query;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use ipybox_codegen as codegen;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::approval::{OURSELVES, Target, ToolAnnotations};
use crate::connections::mcp_client::{self, ParametersError, ServerParameters, ServerReach};
use crate::tools::formats;
use crate::tools::recording::RecordedServer;

pub(crate) use self::elicitation::ByGate;
pub(crate) use self::login::{LOGINS, log_in, with_offers};
pub(crate) use self::pool::{ConnectionPool, Error, OpenConnection, PermittedRequest, PoolRequest};
pub use self::query::SearchQuery;

/// Looks up registered servers by name.
pub(crate) trait ServerLookup: Send + Sync {
    /// The server registered as `name`, if there is one.
    fn find(&self, name: &str) -> io::Result<Option<RegisteredServer>>;

    /// The names of all registered servers, in order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// All registered servers, as a recording has them. Blocks.
    fn recorded(&self) -> io::Result<Vec<RecordedServer>> {
        Ok(Vec::new())
    }

    /// The changes of the tools of the server `name` since it was registered. Blocks.
    fn changes(&self, _name: &str, _tools: Vec<mcp_client::ServerTool>) -> Vec<String> {
        Vec::new()
    }

    /// The way to register a server here, as a text that follows "hint: ".
    fn how_to_register(&self) -> &'static str {
        "register it with `register_mcp_server`"
    }

    /// Finds tools of the registered servers, and says how they are called; the error is a text. Blocks.
    fn search(&self, query: &SearchQuery) -> Result<String, String>;

    /// Infers the type of a tool's results from some of them, and writes the tool's module anew. Returns the
    /// inferred classes as Python text; the error is a text. Blocks.
    fn infer_result(&self, server: &str, module: &str, results: &[Value]) -> Result<String, String>;
}

/// A registered server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RegisteredServer {
    /// The way to reach it.
    pub(crate) parameters: ServerParameters,
    /// The annotations of its tools when it was registered, by tool name.
    pub(crate) annotations: BTreeMap<String, ToolAnnotations>,
    /// The tools that are for the server's own user interface: code does not call them.
    pub(crate) for_apps: BTreeSet<String>,
    /// The definitions of its tools, by name.
    pub(crate) definitions: BTreeMap<String, ToolDefinition>,
}

/// The definition of a tool: its description and schemas.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolDefinition {
    /// Their SHA-256, in hexadecimal digits.
    pub(crate) sha256: String,
    /// The changes since the definitions before, as a diff; `None` if there are none.
    pub(crate) changes: Option<String>,
}

impl RegisteredServer {
    /// The SHA-256 of its parameters, in hexadecimal digits; placeholders are not filled.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{:x}", Sha256::digest(Value::Object(self.parameters.to_json()).to_string()))
    }

    /// The SHA-256 of its parameters and of the definition of one of its tools.
    pub(crate) fn fingerprint_of(&self, tool: &str) -> String {
        match self.definitions.get(tool) {
            None => self.fingerprint(),
            Some(definition) => {
                format!("{:x}", Sha256::digest(format!("{} {}", self.fingerprint(), definition.sha256)))
            }
        }
    }

    /// Its target, as an approval request shows it.
    pub(crate) fn target(&self) -> Target {
        match &self.parameters.reach {
            ServerReach::Stdio(_) => Target::Command(self.parameters.summary()),
            ServerReach::Http(_) => Target::Url(self.parameters.summary()),
        }
    }
}

/// Why a server cannot be registered under a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnusableServer {
    /// The name cannot be a package's.
    #[error(transparent)]
    Name(#[from] codegen::PackageNameError),
    /// The name is reserved for ipybox itself.
    #[error(
        "register an MCP server as `{OURSELVES}`: approval requests of ipybox itself have this name; choose another"
    )]
    Reserved,
    /// The parameters do not describe a server.
    #[error("read `server_params`")]
    Parameters(#[from] ParametersError),
}

/// Reads the server to register as `name`, with notes on parts of `parameters` that were left out or
/// reinterpreted. `has_program` says whether a command exists.
pub(crate) fn read(
    name: &str,
    parameters: &Map<String, Value>,
    has_program: &dyn Fn(&str) -> bool,
) -> Result<(ServerParameters, Vec<String>), UnusableServer> {
    codegen::validate_package_name(name)?;
    if name == OURSELVES {
        return Err(UnusableServer::Reserved);
    }
    Ok(formats::adopt(name, parameters, has_program)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_mislead_are_refused() {
        let object = Map::from_iter([("command".to_owned(), json!("x"))]);
        for name in ["", "A", "a-b", "class", "../a", "ipybox"] {
            read(name, &object, &|_| false).unwrap_err();
        }
        read("a_b", &object, &|_| false).unwrap();
    }
}
