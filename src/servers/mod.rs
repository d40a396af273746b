//! The MCP servers that code can call: what their names stand for, and the live connections to them.

mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::approval::{OURSELVES, Target, ToolAnnotations};
use crate::codegen;
use crate::mcp_client::{ParametersError, Reach, ServerParameters};

pub(crate) use self::pool::{Pool, Request};

/// Finds what a registered server's name stands for.
pub(crate) trait ServerLookup: Send + Sync {
    /// What is registered as `name`; `None` if nothing is.
    fn find(&self, name: &str) -> io::Result<Option<Registered>>;

    /// All names that something is registered as, in order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// How somebody registers a server here, in words that follow "hint: ".
    fn how_to_register(&self) -> &'static str {
        "register it with the tool `register_mcp_server`"
    }

    /// Infers the type of a tool's results from some of them, and writes the tool's module anew. Returns the inferred
    /// classes as Python text; an error in words. Blocks.
    fn infer_result(&self, server: &str, module: &str, results: &[Value]) -> Result<String, String>;
}

/// What a server's name stands for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Registered {
    /// How to reach it.
    pub(crate) parameters: ServerParameters,
    /// What it said of its tools when it was registered, by their names.
    pub(crate) annotations: BTreeMap<String, ToolAnnotations>,
    /// The tools that are for the server's own user interface: code does not call them.
    pub(crate) for_apps: BTreeSet<String>,
}

impl Registered {
    /// A SHA-256 of how to reach it, in hexadecimal digits; placeholders are not filled.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{:x}", Sha256::digest(Value::Object(self.parameters.to_json()).to_string()))
    }

    /// What a user should know of it when asked for approval.
    pub(crate) fn target(&self) -> Target {
        match &self.parameters.reach {
            Reach::Stdio(_) => Target::Command(self.parameters.summary()),
            Reach::Http(_) => Target::Url(self.parameters.summary()),
        }
    }
}

/// Why a name cannot stand for what somebody wants it to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// The name cannot be a package's.
    #[error(transparent)]
    Name(#[from] codegen::PackageNameError),
    /// The name is our own.
    #[error(
        "register an MCP server as `{OURSELVES}`: approval requests of ipybox itself have this name; choose another"
    )]
    Reserved,
    /// The parameters do not describe a server.
    #[error("read `server_params`")]
    Parameters(#[from] ParametersError),
}

/// What `name` is to stand for, if it can, with notes on what was left out of `parameters` or taken in another way than
/// one might think. `has_program` knows what commands there are.
pub(crate) fn read(
    name: &str,
    parameters: &Map<String, Value>,
    has_program: &dyn Fn(&str) -> bool,
) -> Result<(ServerParameters, Vec<String>), Unusable> {
    codegen::validate_package_name(name)?;
    if name == OURSELVES {
        return Err(Unusable::Reserved);
    }
    Ok(ServerParameters::adopt(name, parameters, has_program)?)
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
