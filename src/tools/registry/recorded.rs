//! Servers as recordings have them: of this registry, and put into another one without a connection to them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, json};

use super::definitions::ServerDefinitions;
use super::lookup::RegistryLookup;
use super::packages::PackageDirectory;
use super::records::{ServerRecord, ServerRecords};
use super::store::StoredServer;
use super::{Registry, drift, generate};
use crate::connections::mcp_client::ServerParameters;
use crate::ground::text::describe;
use crate::tools::actions::ToolDigests;
use crate::tools::recording::RecordedServer;
use crate::tools::servers::RegisteredServer;
use ipybox_codegen as codegen;

/// The address of servers that are never connected to: names below `invalid` are nobody's (RFC 2606).
const NOWHERE: &str = "https://recorded.invalid/mcp";

const NOT_REGISTERED: &str = "no server is registered under its name in the workspace";

/// Why a recorded server cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("use the recorded MCP server `{name}`: {why}")]
pub struct RecordedServerError {
    name: String,
    why: String,
}

/// The command line or URL behind the name of a recorded server; `None` if its parameters cannot be read.
pub(crate) fn recorded_target(server: &RecordedServer) -> Option<String> {
    ServerParameters::parse(&server.parameters).map(|parameters| parameters.summary()).ok()
}

/// The digests of the definitions of the tools of these servers.
pub(crate) fn digests_of_recorded(servers: &[RecordedServer]) -> ToolDigests {
    let digest = |tool: &codegen::Tool| (tool.name.clone(), drift::sha256(tool));
    servers.iter().map(|server| (server.name.clone(), server.tools.iter().map(digest).collect())).collect()
}

/// The server or the tool, in words, whose module has this name.
pub(crate) fn tool_called(name: &str, servers: &[RecordedServer]) -> Option<String> {
    servers.iter().find_map(|server| {
        if server.name == name {
            return Some(format!("the MCP server `{name}`"));
        }
        let has_tool = codegen::module_names(&server.tools).iter().any(|module| module == name);
        has_tool.then(|| format!("a tool of the MCP server `{}`", server.name))
    })
}

/// All servers that a state directory keeps, as a recording has them. Blocks.
///
/// # Errors
/// The files cannot be read.
pub(crate) fn recorded_in(state_directory: &Path) -> io::Result<Vec<RecordedServer>> {
    recorded_at(&[Arc::new(ServerRecords::in_directory(state_directory))])
}

/// The servers of these places; the first that has a name says what it means.
fn recorded_at(places: &[Arc<ServerRecords>]) -> io::Result<Vec<RecordedServer>> {
    let mut servers: Vec<RecordedServer> = Vec::new();
    for place in places {
        for name in place.servers.names()? {
            if servers.iter().any(|known| known.name == name) {
                continue;
            }
            let Some(ServerRecord { server, definitions }) = place.get(&name)? else { continue };
            let StoredServer { parameters, annotations, for_apps, .. } = server;
            let ServerDefinitions { tools, description, others, .. } = definitions?;
            let parameters = parameters.shown_json();
            servers.push(RecordedServer {
                name,
                description,
                parameters,
                tools,
                annotations,
                for_apps,
                others,
            });
        }
    }
    Ok(servers)
}

impl RegistryLookup {
    /// All servers that code can call, as a recording has them. Blocks.
    pub(super) fn recorded_servers(&self) -> io::Result<Vec<RecordedServer>> {
        recorded_at(self.places())
    }
}

impl Registry {
    /// The server `name`, as a recording has it.
    ///
    /// # Errors
    /// It is not registered for `workspace`, or the registry cannot be read.
    pub(crate) async fn recorded_server(
        &self,
        name: &str,
        workspace: &Path,
    ) -> Result<RecordedServer, RecordedServerError> {
        let error = |why: String| RecordedServerError { name: name.to_owned(), why };
        let servers = self.recorded_servers(workspace).await.map_err(|failed| error(failed.to_string()))?;
        let mut servers = servers.into_iter();
        servers.find(|server| server.name == name).ok_or_else(|| error(NOT_REGISTERED.to_owned()))
    }

    /// All servers that code in `workspace` can call, as a recording has them.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub(crate) async fn recorded_servers(&self, workspace: &Path) -> io::Result<Vec<RecordedServer>> {
        let lookup = self.lookup(workspace, &[]);
        let reading = tokio::task::spawn_blocking(move || lookup.recorded());
        reading.await.map_err(io::Error::other).flatten()
    }

    /// Registers a recorded server, and puts its package into `workspace`. Its name refers to the server that `living` has
    /// under it, and to none without: the parameters of a recording are a stranger's.
    ///
    /// # Errors
    /// `living` does not have the server, or the package cannot be written.
    pub(crate) async fn restore(
        &self,
        server: &RecordedServer,
        living: Option<&Self>,
        workspace: &Path,
    ) -> Result<(), RecordedServerError> {
        let error = |why: String| RecordedServerError { name: server.name.clone(), why };
        let parameters = match living {
            Some(living) => living.living_parameters(&server.name)?,
            None => {
                let nowhere = Map::from_iter([("url".to_owned(), json!(NOWHERE))]);
                ServerParameters::parse(&nowhere).map_err(|unusable| error(describe(&unusable)))?
            }
        };
        let RecordedServer { name, description, tools, annotations, for_apps, others, .. } = server.clone();
        let registered =
            RegisteredServer { parameters, annotations, for_apps, definitions: Default::default() };
        let found = ServerDefinitions { tools, others, ..ServerDefinitions::default() };
        let registry = self.clone();
        let packages = PackageDirectory::of_workspace(workspace);
        let installing = tokio::task::spawn_blocking(move || {
            registry.install(&packages, codegen::Server { name, description }, found, registered).map(drop)
        });
        let installed = installing.await.map_err(|failed| error(failed.to_string()))?;
        installed.map_err(|failed| error(describe(&failed)))
    }

    /// Asks the server of this registry what it has now. Returns how that differs from what was recorded.
    ///
    /// # Errors
    /// There is no such server, or it does not answer.
    pub(crate) async fn changes_since(
        &self,
        recorded: &RecordedServer,
    ) -> Result<Vec<String>, RecordedServerError> {
        let parameters = self.living_parameters(&recorded.name)?;
        let progress = |what: &str| tracing::debug!(server = recorded.name, "{what}");
        let listed = generate::listed_by(&self.connector, &recorded.name, &parameters, &[], &progress).await;
        let generate::ServerLists { tools, others, connection, .. } = listed
            .map_err(|error| RecordedServerError { name: recorded.name.clone(), why: describe(&error) })?;
        connection.close().await;
        let mut changes = drift::changes(&recorded.annotations, &recorded.tools, &tools);
        changes.extend(drift::changes_of_others(&recorded.others, &others));
        let changed = tools.iter().filter_map(|tool| {
            let before = recorded.tools.iter().find(|before| before.name == tool.name)?;
            drift::has_changed(before, tool).then(|| drift::diff(before, tool))
        });
        changes.extend(changed);
        Ok(changes)
    }

    fn living_parameters(&self, name: &str) -> Result<ServerParameters, RecordedServerError> {
        let error = |why: String| RecordedServerError { name: name.to_owned(), why };
        let found = self.parameters_of(name).map_err(|failed| error(failed.to_string()))?;
        found.ok_or_else(|| error(NOT_REGISTERED.to_owned()))
    }
}
