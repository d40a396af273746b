//! Looks up the servers that code in a kernel can call.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::catalog::{ActionPlaces, ToolCatalog};
use super::packages::PackageDirectory;
use super::records::{ServerRecord, ServerRecords};
use super::store::StoredServer;
use super::{Registry, drift, generate};
use crate::connections::mcp_client;
use crate::ground::text::describe;
use crate::tools::recording::RecordedServer;
use crate::tools::servers::{RegisteredServer, SearchQuery, ServerLookup};

/// The servers of a registry, and then those of other workspaces.
pub(super) struct RegistryLookup {
    registry: Registry,
    packages: PackageDirectory,
    catalog: ToolCatalog,
}

impl RegistryLookup {
    /// `others` are the state directories of other workspaces.
    pub(super) fn new(registry: Registry, packages: PackageDirectory, others: &[PathBuf]) -> Self {
        let others = others.iter().map(|state| Arc::new(ServerRecords::in_directory(state)));
        let catalog = ToolCatalog::new(std::iter::once(Arc::clone(&registry.records)).chain(others));
        Self { registry, packages, catalog }
    }

    /// Has searches find the saved actions of a workspace too.
    pub(super) fn with_actions(self, state_directory: &Path, workspace: &Path) -> Self {
        let catalog = self.catalog.with_actions(ActionPlaces::of(state_directory, workspace));
        Self { catalog, ..self }
    }

    /// The records of the registry, and then those of other workspaces.
    pub(super) fn places(&self) -> &[Arc<ServerRecords>] {
        &self.catalog.places
    }
}

impl ServerLookup for RegistryLookup {
    fn find(&self, name: &str) -> io::Result<Option<RegisteredServer>> {
        self.registry.records.settle(&self.registry.connector);
        for place in &self.catalog.places {
            let Some(ServerRecord { server, definitions }) = place.get(name)? else { continue };
            let StoredServer { parameters, annotations, for_apps, .. } = server;
            // Without them no earlier answer holds.
            let definitions = definitions.map(|known| known.by_tool()).unwrap_or_else(|error| {
                tracing::warn!(%error, "the definitions of an MCP server's tools cannot be read");
                Default::default()
            });
            return Ok(Some(RegisteredServer { parameters, annotations, for_apps, definitions }));
        }
        Ok(None)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = BTreeSet::new();
        for place in &self.catalog.places {
            names.extend(place.servers.names()?);
        }
        Ok(names.into_iter().collect())
    }

    fn recorded(&self) -> io::Result<Vec<RecordedServer>> {
        self.recorded_servers()
    }

    fn changes(&self, name: &str, tools: Vec<mcp_client::ServerTool>) -> Vec<String> {
        let Ok(Some(ServerRecord { server: registered, definitions: Ok(known) })) =
            self.registry.records.get(name)
        else {
            return Vec::new();
        };
        let tools = tools.into_iter().filter(generate::is_for_code);
        let tools: Vec<_> = tools.map(generate::to_codegen).collect();
        drift::changes(&registered.annotations, &known.tools, &tools)
    }

    fn search(&self, query: &SearchQuery) -> Result<String, String> {
        self.catalog.search(query).map_err(|error| describe(&error))
    }

    fn infer_result(&self, server: &str, module: &str, results: &[Value]) -> Result<String, String> {
        let inferred = self.registry.infer(server, module, results, &self.packages);
        inferred.map_err(|error| describe(&error))
    }
}
