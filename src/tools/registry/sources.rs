//! Generates a package and registers its server, for an application.

use std::io;
use std::path::Path;

use serde_json::Value;

use super::Registry;
use super::packages::PackageDirectory;
use super::records::ServerRecord;
use super::store::StoredServer;
use crate::ground::text::describe;

/// Why no package was generated. An earlier package and registration are unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// `server_params` is not a JSON object.
    #[error("read `server_params`: it must be an object, {{\"command\": …}} or {{\"url\": …}}")]
    NotAnObject,
    /// The directory of packages cannot be made.
    #[error("make the directory `{path}`", path = path.display())]
    Directory {
        /// The directory.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The name or the parameters cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The server could not be connected to, or did not list its tools.
    #[error("{0}")]
    Server(String),
    /// The package could not be written, or the registration not kept.
    #[error("{message}")]
    Files {
        /// The action that could not be done.
        message: String,
        /// Why.
        kind: std::io::ErrorKind,
    },
}

impl From<super::Error> for GenerateError {
    /// The words of a server's failure have its cause in them: secrets are removed from the text as a whole.
    fn from(error: super::Error) -> Self {
        let words = describe(&error);
        match error {
            super::Error::Unusable(_) | super::Error::ForeignSecret { .. } => Self::Unusable(words),
            super::Error::Server { .. } => Self::Server(words),
            super::Error::Package { source, .. } | super::Error::Store { source, .. } => {
                Self::Files { message: words, kind: source.kind() }
            }
        }
    }
}

/// Generates a typed Python API for the tools of an MCP server, the package `<root_dir>/<server_name>/`, and registers
/// the server in `registry`, which is to be given to
/// [`CodeExecutorBuilder::registry`](crate::CodeExecutorBuilder::registry).
///
/// `server_params` say how to reach the server: `command`, `args`, `env`, `cwd` of a program, or `url`, `headers`,
/// `type` of a server behind a URL. `${NAME}` placeholders in them are filled when connecting. Code finds the package as
/// `mcptools.<server_name>` if `root_dir` is `mcptools` in the executor's workspace. A package and a registration of the
/// same name are replaced, in one step.
///
/// Returns the names of the generated modules, one for each tool.
///
/// A program that is not ready in time ([`Registry::connect_timeout`], or `timeout` in `server_params`, in
/// seconds) goes on to start as long as `registry` lives, and the next call for the same waits for it. Other
/// keys that MCP clients use in `server_params` are applied where they have a meaning here, and else logged.
///
/// Dropping the future leaves the earlier package and registration.
///
/// # Errors
/// See [`GenerateError`].
pub async fn generate_mcp_sources(
    registry: &Registry,
    server_name: &str,
    server_params: &Value,
    root_dir: impl AsRef<Path>,
) -> Result<Vec<String>, GenerateError> {
    let path = root_dir.as_ref();
    std::fs::create_dir_all(path)
        .map_err(|source| GenerateError::Directory { path: path.to_owned(), source })?;
    let parameters = server_params.as_object().ok_or(GenerateError::NotAnObject)?;
    let candidate = registry.candidate(server_name, parameters)?;
    let report = |what: &str| tracing::debug!(server = server_name, "{what}");
    let registering = registry.register(candidate, PackageDirectory::new(path, "."), &report);
    let (registration, open) = registering.await?;
    open.close().await;
    for warning in registration.notes.iter().chain(&registration.warnings) {
        tracing::warn!(server = server_name, "{warning}");
    }
    Ok(registration.modules)
}

impl Registry {
    /// Keeps the registration of `name` in `other` too. Blocks.
    ///
    /// # Errors
    /// See [`GenerateError::Files`].
    pub(crate) fn copy_to(&self, other: &Self, name: &str) -> Result<(), GenerateError> {
        let copied = || -> io::Result<()> {
            let _turn = other.records.turn(&other.connector)?;
            let Some(ServerRecord { server, definitions }) = self.records.get(name)? else { return Ok(()) };
            let records = &other.records;
            let version = records.definitions.put(name, &definitions?)?;
            let server = StoredServer { definitions: Some(version), ..server };
            records.servers.put(name, Some(&server))?;
            records.definitions.keep_only(name, Some(&server))
        };
        copied().map_err(|error| GenerateError::Files {
            message: format!("store the registration of `{name}`: {error}"),
            kind: error.kind(),
        })
    }
}
