//! Infers result types of tools that declare none, from results that code has received.

use std::io;

use serde_json::Value;

use super::Registry;
use super::packages::Packages;
use crate::tools::codegen::{self, ObserveError, Options};

/// Why no type was inferred. The module is unchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InferError {
    /// The server's tools are not known.
    #[error(
        "infer a result type: the tools of the MCP server `{name}` are not known\n\
         hint: register it again with `register_mcp_server`"
    )]
    UnknownServer { name: String },
    /// No module has this name.
    #[error(
        "infer a result type: the MCP server `{server}` has no tool whose module is `{module}`; it has {known}"
    )]
    UnknownModule { server: String, module: String, known: String },
    /// No type can be inferred from the results.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The definitions of the tools could not be read or written.
    #[error("remember what the results of `{module}` look like")]
    Store { module: String, source: io::Error },
    /// The module could not be written.
    #[error("write the module `mcptools/{server}/{module}.py`")]
    Write { server: String, module: String, source: io::Error },
}

impl Registry {
    /// Infers the result type of the tool with the module `module` from `results`, and writes the module
    /// again. Returns the inferred classes as Python text. Blocks.
    pub(crate) fn infer(
        &self,
        server: &str,
        module: &str,
        results: &[Value],
        packages: &Packages,
    ) -> Result<String, InferError> {
        let store_error = |source| InferError::Store { module: module.to_owned(), source };
        let _turn = self.turn.blocking_lock();
        // The name becomes a file name, so it is validated first.
        let is_name = codegen::validate_package_name(server).is_ok();
        let definitions = is_name.then(|| self.definitions.get(server)).transpose().map_err(store_error)?;
        let Some(mut definitions) = definitions.filter(|definitions| !definitions.tools.is_empty()) else {
            return Err(InferError::UnknownServer { name: server.to_owned() });
        };
        let names = codegen::module_names(&definitions.tools);
        let Some(position) = names.iter().position(|name| name == module) else {
            let (server, module) = (server.to_owned(), module.to_owned());
            return Err(InferError::UnknownModule { server, module, known: names.join(", ") });
        };
        let tool = &mut definitions.tools[position];
        tool.observed.get_or_insert_default().observe(results)?;
        let (text, classes) = codegen::generate_observed(tool, Options::default());
        packages.replace_module(server, module, &text).map_err(|source| InferError::Write {
            server: server.to_owned(),
            module: module.to_owned(),
            source,
        })?;
        self.definitions.put(server, definitions).map_err(store_error)?;
        Ok(classes)
    }
}
