//! Generates a package without a session: for a live server, or for a saved list of its tools.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::generate;
use super::listing;
use super::packages::PackageDirectory;
use crate::ground::env::Variables;
use crate::tools::formats;
use crate::tools::servers::UnusableServer;
use ipybox_codegen::{self as codegen, ObserveError, Observed, Options, ResourcesAndPrompts, Tool};

/// The source of the tools.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ApigenSource {
    /// A server, by its parameters: `command`, `args`, `env`, `cwd`, or `url`, `headers`, `type`; and `timeout`.
    Server(Map<String, Value>),
    /// A file with the result of a `tools/list` request.
    ToolsFile(PathBuf),
}

/// The generated packages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApigenReport {
    /// The names of the modules, one for each tool, in the order of the tools.
    pub modules: Vec<String>,
    /// Parts of the tools' schemas that the generated code does not express, and tools that were skipped.
    pub warnings: Vec<String>,
}

/// Why no package was generated. An earlier package is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApigenError {
    /// The name is no valid package name.
    #[error(transparent)]
    Name(#[from] codegen::PackageNameError),
    /// The server's tools could not be listed.
    #[error("{0}")]
    Server(String),
    /// The file of tools could not be read.
    #[error("read the tools in `{path}`: {reason}", path = path.display())]
    ToolsFile {
        /// The file.
        path: PathBuf,
        /// The fault of it.
        reason: String,
    },
    /// Results were given for a tool that the server does not have.
    #[error("infer a result type for `{tool}`: there is no such tool; there are {known}")]
    UnknownTool {
        /// The name.
        tool: String,
        /// The names of the tools.
        known: String,
    },
    /// No type can be inferred from the given results of a tool.
    #[error("use the results of `{tool}`: {source}")]
    Results {
        /// The tool's name.
        tool: String,
        /// Why.
        source: ObserveError,
    },
    /// The server has no tools.
    #[error("generate a package: there are no tools")]
    NoTools,
    /// The package could not be written.
    #[error("write the package `{path}`", path = path.display())]
    Write {
        /// The package's directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Generates the package `<root_dir>/<server_name>/`, replacing one that is there in one step.
///
/// `results` are results of tools, by tool name: texts, or structured results. The module of a tool with
/// results has `run_parsed`, which returns an instance of the type that was inferred from them.
///
/// `variables` fill the placeholders of a server's parameters. The server is not registered: code finds it under its
/// name only in a session in which it is.
///
/// # Errors
/// See [`ApigenError`]. A tool with an invalid schema is no error but a warning in the report.
pub async fn apigen(
    server_name: &str,
    root_dir: &Path,
    source: ApigenSource,
    results: &BTreeMap<String, Vec<Value>>,
    options: Options,
    variables: Variables,
) -> Result<ApigenReport, ApigenError> {
    codegen::validate_package_name(server_name)?;
    let (mut tools, others, description, mut warnings) = match source {
        ApigenSource::Server(parameters) => from_server(server_name, &parameters, variables).await?,
        ApigenSource::ToolsFile(path) => from_file(path)?,
    };
    if tools.is_empty() && others == ResourcesAndPrompts::default() {
        return Err(ApigenError::NoTools);
    }
    observe(&mut tools, results)?;
    let server = codegen::Server { name: server_name.to_owned(), description };
    let package = codegen::generate_all(&server, &tools, &others, options);
    let path = root_dir.join(server_name);
    let write_error = |source| ApigenError::Write { path: path.clone(), source };
    std::fs::create_dir_all(root_dir).map_err(write_error)?;
    let written = PackageDirectory::new(root_dir, ".").write(server_name, &package).map_err(write_error)?;
    written.put().map_err(write_error)?;
    warnings.extend(generate::warnings(&package));
    Ok(ApigenReport { modules: package.modules.into_iter().map(|module| module.name).collect(), warnings })
}

/// Infers result types of tools.
fn observe(tools: &mut [Tool], results: &BTreeMap<String, Vec<Value>>) -> Result<(), ApigenError> {
    for (name, results) in results {
        let Some(tool) = tools.iter_mut().find(|tool| tool.name == *name) else {
            let known = tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ApigenError::UnknownTool { tool: name.clone(), known });
        };
        let observed =
            Observed::of(results).map_err(|source| ApigenError::Results { tool: name.clone(), source })?;
        tool.observed = Some(observed);
    }
    Ok(())
}

type ApigenLists = (Vec<codegen::Tool>, ResourcesAndPrompts, Option<String>, Vec<String>);

async fn from_server(
    name: &str,
    parameters: &Map<String, Value>,
    variables: Variables,
) -> Result<ApigenLists, ApigenError> {
    let server_error =
        |error: &dyn std::error::Error| ApigenError::Server(crate::ground::text::describe(error));
    let directory = std::env::current_dir().map_err(|error| server_error(&error))?;
    let connector = crate::config::connector_at(directory, Arc::new(variables)).in_foreground();
    let adopted = formats::adopt(name, parameters, &|command| connector.has_program(command));
    let (parameters, mut notes) = adopted.map_err(|error| server_error(&UnusableServer::from(error)))?;
    let report = |what: &str| tracing::info!(server = name, "{what}");
    let listed = generate::listed_by(&connector, name, &parameters, &notes, &report).await;
    let generate::ServerLists { tools, for_apps, others, notes: of_others, connection, .. } =
        listed.map_err(|error| server_error(&error))?;
    let description = connection.identity().instructions.clone();
    connection.close().await;
    notes.extend(generate::left_out(&for_apps).into_iter().chain(of_others));
    Ok((tools, others, description, notes))
}

fn from_file(path: PathBuf) -> Result<ApigenLists, ApigenError> {
    let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    let listing =
        read.and_then(|text| listing::read(&text).map_err(|error| crate::ground::text::describe(&error)));
    match listing {
        Ok(listing) => Ok((listing.tools, ResourcesAndPrompts::default(), None, listing.problems)),
        Err(reason) => Err(ApigenError::ToolsFile { path, reason }),
    }
}
