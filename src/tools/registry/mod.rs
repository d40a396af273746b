//! The registered MCP servers of a workspace, and the Python packages generated for them.
//!
//! Registrations are kept outside the workspace, where code in the kernel can neither read nor change them;
//! the packages are in the workspace, where code imports them.
//!
//! Reasons: `docs/decisions/registry.md`.

mod apigen;
mod catalog;
mod definitions;
mod drift;
mod generate;
mod infer;
mod install;
mod known;
mod listing;
mod lookup;
mod packages;
mod recorded;
mod records;
mod registration;
mod search;
mod secrets;
mod sources;
mod store;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Mutex;

pub use self::apigen::{ApigenError, ApigenReport, ApigenSource, apigen};
pub use self::catalog::search;
use self::definitions::ServerDefinitions;
use self::generate::ServerLists;
use self::install::InstalledPackage;
pub use self::known::{KnownServer, KnownServerError, KnownServers, LoginState, OpenPage};
use self::lookup::RegistryLookup;
pub(crate) use self::packages::PackageDirectory;
pub use self::recorded::RecordedServerError;
pub(crate) use self::recorded::{digests_of_recorded, recorded_in, recorded_target, tool_called};
use self::records::ServerRecords;
pub(crate) use self::registration::Registration;
pub use self::search::{Error as SearchError, SearchIndex};
pub use self::sources::{GenerateError, generate_mcp_sources};
use crate::connections::mcp_client::{self, AccessRefusal, Connector, ServerParameters, StartProgress};
use crate::ground::env::Variables;
use crate::kernels::sandbox::ExposedPlaces;
use crate::tools::servers::{OpenConnection, RegisteredServer, ServerLookup, UnusableServer, read};
use ipybox_codegen as codegen;

/// Why a server could not be registered. An earlier package and registration are unchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The name or the parameters cannot be used.
    #[error(transparent)]
    Unusable(#[from] UnusableServer),
    /// The server could not be connected to, or did not list its tools.
    #[error("use the MCP server `{name}` ({what}){}", hints(notes))]
    Server {
        /// The name to register.
        name: String,
        /// The command line or URL, placeholders unresolved.
        what: String,
        /// Parts of its parameters that were left out or reinterpreted.
        notes: Vec<String>,
        /// Why.
        source: Box<mcp_client::Error>,
    },
    /// Its parameters have the placeholder of a secret, and it is another server that was imported with it.
    #[error(
        "give `{placeholder}` to the MCP server `{name}`: that secret is kept for a server that was imported\n\
         hint: write a secret as `${{VARIABLE}}`, and set the variable in ipybox's environment or in the workspace's `.env`"
    )]
    ForeignSecret {
        /// The name to register.
        name: String,
        /// The placeholder.
        placeholder: String,
    },
    /// The generated package could not be written.
    #[error("write the package `mcptools/{name}`")]
    Package {
        /// The package's name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The registry could not be read or written.
    #[error("remember the MCP server `{name}`")]
    Store {
        /// The server's name.
        name: String,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// Whether the server goes on to start.
    pub(crate) fn is_still_starting(&self) -> bool {
        matches!(self, Self::Server { source, .. } if matches!(**source, mcp_client::Error::StillStarting { .. }))
    }

    /// Whether the start was ended from outside, as a reset does.
    pub(crate) fn is_ended_start(&self) -> bool {
        matches!(self, Self::Server { source, .. } if matches!(**source, mcp_client::Error::StartEnded))
    }

    /// A server's refusal for want of a login, beside the error.
    pub(crate) fn into_refusal(self) -> (Option<AccessRefusal>, Self) {
        let refusal = match &self {
            Self::Server { source, .. } => match &**source {
                mcp_client::Error::Unauthorized { refusal } => Some(refusal.clone()),
                _ => None,
            },
            _ => None,
        };
        (refusal, self)
    }

    /// The error with another refusal in its place.
    pub(crate) fn with_refusal(self, refusal: AccessRefusal) -> Self {
        match self {
            Self::Server { name, what, notes, .. } => Self::Server {
                name,
                what,
                notes,
                source: Box::new(mcp_client::Error::Unauthorized { refusal }),
            },
            other => other,
        }
    }
}

/// A server to register, with a valid name and valid parameters.
#[derive(Clone)]
pub(crate) struct ServerCandidate {
    name: String,
    parameters: ServerParameters,
    /// Parts of the parameters that were left out or reinterpreted.
    notes: Vec<String>,
    is_known: bool,
}

impl ServerCandidate {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn parameters(&self) -> &ServerParameters {
        &self.parameters
    }

    /// Whether it is registered with just these parameters already.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }
}

/// The MCP servers whose tools code can call, by name.
///
/// Cloning it is cheap: clones are the same registry.
#[derive(Clone)]
pub struct Registry {
    records: Arc<ServerRecords>,
    connector: Connector,
    /// Serializes installations: two of the same name must not mix their files.
    turn: Arc<Mutex<()>>,
}

impl Registry {
    /// An empty registry, kept in memory. `${NAME}` placeholders are filled from the environment and the `.env` of the
    /// current directory. Each server starts in an empty directory of its own, unless its parameters name a `cwd`.
    ///
    /// An executor with a sandbox protects the servers of its registry from sandboxed code from its start on:
    /// register after that, if code may have written into the current directory.
    pub fn new() -> Self {
        Self::in_memory(crate::config::connector_here())
    }

    /// As [`new`](Self::new), with another connector.
    pub(crate) fn in_memory(connector: Connector) -> Self {
        Self::with(ServerRecords::in_memory(), connector)
    }

    /// Sets how long a registration waits for the server to start; default: 120 seconds. A program that is not ready then
    /// goes on to start, and the next registration of the same name and parameters waits for it.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { connector: self.connector.with_connect_timeout(timeout), ..self }
    }

    /// Keeps servers away from these places too.
    pub(crate) fn keep_apart(&self, exposed: ExposedPlaces) {
        self.connector.keep_apart(exposed);
    }

    /// The same registry, whose servers are connected to by `connector`.
    pub(crate) fn with_connector(&self, connector: Connector) -> Self {
        Self { connector, ..self.clone() }
    }

    /// The registry of a workspace, kept in its state directory.
    pub(crate) fn in_directory(directory: &Path, connector: Connector) -> Self {
        Self::with(ServerRecords::in_directory(directory), connector)
    }

    fn with(records: ServerRecords, connector: Connector) -> Self {
        Self { records: Arc::new(records), connector, turn: Arc::default() }
    }

    /// Completes and removes what processes have left that died while they changed registrations or packages of `workspace`.
    /// Blocks.
    pub(crate) fn settle(&self, workspace: &Path) {
        PackageDirectory::of_workspace(workspace).sweep();
        self.records.settle(&self.connector);
    }

    /// The connector to its servers.
    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Server lookup for kernels that import packages from `workspace`. What is not registered here is looked up in
    /// the state directories `others`.
    pub(crate) fn lookup(&self, workspace: &Path, others: &[PathBuf]) -> Arc<dyn ServerLookup> {
        Arc::new(RegistryLookup::new(self.clone(), PackageDirectory::of_workspace(workspace), others))
    }

    /// As [`lookup`](Self::lookup), with the saved actions that a state directory keeps for `workspace`.
    pub(crate) fn lookup_with_actions(
        &self,
        workspace: &Path,
        others: &[PathBuf],
        state_directory: &Path,
    ) -> Arc<dyn ServerLookup> {
        let lookup = RegistryLookup::new(self.clone(), PackageDirectory::of_workspace(workspace), others);
        Arc::new(lookup.with_actions(state_directory, workspace))
    }

    /// Reads the name and parameters of a server to register.
    ///
    /// # Errors
    /// The name or the parameters cannot be used at all.
    pub(crate) fn candidate(
        &self,
        name: &str,
        parameters: &Map<String, Value>,
    ) -> Result<ServerCandidate, Error> {
        let (parameters, notes) = read(name, parameters, &|command| self.connector.has_program(command))?;
        let candidate = self.imported(name, parameters, notes)?;
        match candidate.parameters.secrets().first() {
            // Else a server could be registered anew to be sent the secrets of another one.
            Some(secret) if !candidate.is_known => {
                Err(Error::ForeignSecret { name: name.to_owned(), placeholder: format!("${{{secret}}}") })
            }
            _ => Ok(candidate),
        }
    }

    /// As [`candidate`](Self::candidate), of parameters that were read before and may refer to kept secrets. The name must
    /// be valid.
    ///
    /// # Errors
    /// The parameters cannot be used at all.
    pub(crate) fn imported(
        &self,
        name: &str,
        parameters: ServerParameters,
        notes: Vec<String>,
    ) -> Result<ServerCandidate, Error> {
        if let Err(source) = self.connector.check(name, &parameters) {
            let name = name.to_owned();
            let what = parameters.summary();
            let source = Box::new(source);
            return Err(Error::Server { name, what, notes, source });
        }
        let registered = self.parameters_of(name);
        let registered = registered.map_err(|source| Error::Store { name: name.to_owned(), source })?;
        let is_known = registered.is_some_and(|registered| registered == parameters);
        Ok(ServerCandidate { name: name.to_owned(), parameters, notes, is_known })
    }

    /// The parameters of a registered server, if there is one of this name.
    pub(crate) fn parameters_of(&self, name: &str) -> io::Result<Option<ServerParameters>> {
        Ok(self.records.servers.get(name)?.map(|record| record.parameters))
    }

    /// The number of tools of each registered server, by its name. Empty if the registry cannot be read, which
    /// the first call reports.
    pub(crate) fn servers(&self) -> BTreeMap<String, usize> {
        self.records.servers.tools().unwrap_or_else(|error| {
            tracing::warn!(%error, "the registry of MCP servers cannot be read");
            BTreeMap::new()
        })
    }

    /// Reports to `variables` which of them registered servers use, before any connection: they are secrets.
    pub(crate) fn report_placeholders(&self, variables: &Variables) {
        match self.records.servers.placeholders() {
            Ok(texts) => texts.iter().for_each(|text| variables.expect_placeholders(text)),
            // The first call of a tool reports it too.
            Err(error) => tracing::warn!(%error, "the registry of MCP servers cannot be read"),
        }
    }

    /// Connects to a server, generates the package for its tools, and stores the registration. `progress`
    /// is called with each step. Returns the server with the connection over which its tools were listed, still
    /// open.
    ///
    /// A server that is not ready in time goes on to start, and the next registration of the same server
    /// joins it.
    ///
    /// Each step is complete before the next begins, and the last two replace the earlier package and
    /// registration atomically: after a failure, or if the future is dropped, a whole package is in place.
    pub(crate) async fn register(
        &self,
        candidate: ServerCandidate,
        packages: PackageDirectory,
        progress: StartProgress<'_>,
    ) -> Result<(Registration, OpenConnection), Error> {
        let ServerCandidate { name, parameters, mut notes, .. } = candidate;
        let ServerLists { tools, annotations, for_apps, others, notes: of_others, connection } =
            generate::listed_by(&self.connector, &name, &parameters, &notes, progress).await?;
        self.connector.end_other_starts(&name, &parameters);
        notes.extend(generate::left_out(&for_apps).into_iter().chain(of_others));
        let mut server = RegisteredServer { parameters, annotations, for_apps, definitions: BTreeMap::new() };
        let description = connection.identity().instructions.clone();
        let listed = codegen::Server { name: name.clone(), description };
        let registry = self.clone();
        let registered = server.clone();
        let _turn = self.turn.lock().await;
        let found = ServerDefinitions { tools, others, ..ServerDefinitions::default() };
        let installing =
            tokio::task::spawn_blocking(move || registry.install(&packages, listed, found, registered));
        let installed = installing
            .await
            .unwrap_or_else(|error| Err(Error::Package { name, source: io::Error::other(error) }));
        match installed {
            Ok(InstalledPackage { modules, calls, others, warnings, drift, definitions }) => {
                server.definitions = definitions;
                let registration = Registration { modules, calls, others, warnings, notes, drift };
                Ok((registration, OpenConnection::new(server, connection)))
            }
            Err(error) => {
                connection.close().await;
                Err(error)
            }
        }
    }
}

fn hints(notes: &[String]) -> String {
    notes.iter().map(|note| format!("\nhint: {note}")).collect()
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Registry").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
