//! Infers result types of tools that declare none, from results that code has received.

use std::io;

use serde_json::Value;

use super::Registry;
use super::packages::PackageDirectory;
use super::records::{NotChanged, RegistrationSuccessor, ServerRecord};
use ipybox_codegen::{self as codegen, ObserveError, Options};

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
        packages: &PackageDirectory,
    ) -> Result<String, InferError> {
        let store_error = |source| InferError::Store { module: module.to_owned(), source };
        let _turn = self.turn.blocking_lock();
        let _turn_of_processes = self.records.turn(&self.connector).map_err(store_error)?;
        // The name becomes a file name, so it is validated first.
        let is_name = codegen::validate_package_name(server).is_ok();
        let record = if is_name { self.records.get(server).map_err(store_error)? } else { None };
        let Some(ServerRecord { server: registered, definitions }) = record else {
            return Err(InferError::UnknownServer { name: server.to_owned() });
        };
        let mut definitions = definitions.map_err(store_error)?;
        if definitions.tools.is_empty() {
            return Err(InferError::UnknownServer { name: server.to_owned() });
        }
        let names = codegen::module_names(&definitions.tools);
        let Some(position) = names.iter().position(|name| name == module) else {
            let server = server.to_owned();
            let module = module.to_owned();
            return Err(InferError::UnknownModule { server, module, known: names.join(", ") });
        };
        let tool = &mut definitions.tools[position];
        tool.observed.get_or_insert_default().observe(results)?;
        let (text, classes) = codegen::generate_observed(tool, Options::default());
        let place = || packages.replace_module(server, module, &text);
        let before = Some(&registered);
        let after = registered.clone();
        let successor =
            RegistrationSuccessor { name: server, before, after, definitions: &definitions, packages };
        let replaced = self.records.replace(successor, place);
        replaced.map_err(|why| match why {
            NotChanged::Store(source) => store_error(source),
            NotChanged::Package(source) => {
                InferError::Write { server: server.to_owned(), module: module.to_owned(), source }
            }
        })?;
        Ok(classes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{definitions_in, install_tools, registry_in};
    use super::*;

    #[test]
    fn what_two_sessions_infer_at_the_same_moment_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let lost = (0..15).filter(|_| {
            install_tools(&registry_in(state), state, &["one", "two"]);
            let begin = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for module in ["one", "two"] {
                    let (registry, begin) = (registry_in(state), &begin);
                    scope.spawn(move || {
                        begin.wait();
                        let results = [serde_json::json!({"number": 1})];
                        registry
                            .infer("s", module, &results, &PackageDirectory::of_workspace(state))
                            .unwrap();
                    });
                }
            });
            let kept = definitions_in(state).tools;
            registry_in(state).records.servers.put("s", None).unwrap();
            kept.iter().any(|tool| tool.observed.is_none())
        });
        assert_eq!(lost.count(), 0, "of 15");
    }
}
