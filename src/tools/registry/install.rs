//! Puts a server's package and registration in place.

use std::collections::BTreeMap;

use super::definitions::ServerDefinitions;
use super::packages::PackageDirectory;
use super::records::{NotChanged, RegistrationSuccessor, ServerRecord};
use super::search::calls_of;
use super::store::StoredServer;
use super::{Error, Registry, drift, generate};
use crate::tools::servers::{RegisteredServer, ToolDefinition};
use ipybox_codegen as codegen;

/// The result of installing a package: see [`Registration`](super::Registration).
pub(super) struct InstalledPackage {
    pub(super) modules: Vec<String>,
    pub(super) calls: String,
    pub(super) others: String,
    pub(super) warnings: Vec<String>,
    pub(super) drift: Vec<String>,
    pub(super) definitions: BTreeMap<String, ToolDefinition>,
}

impl Registry {
    /// Generates a package, stores the registration, and puts the package in place. Blocks; the caller holds `turn`, and
    /// other processes wait.
    pub(super) fn install(
        &self,
        packages: &PackageDirectory,
        server: codegen::Server,
        found: ServerDefinitions,
        registered: RegisteredServer,
    ) -> Result<InstalledPackage, Error> {
        let ServerDefinitions { mut tools, others, .. } = found;
        let name = server.name.clone();
        let package_error = |source| Error::Package { name: name.clone(), source };
        let store_error = |source| Error::Store { name: name.clone(), source };
        let _turn = self.records.turn(&self.connector).map_err(store_error)?;
        let (before, known) = match self.records.get(&name).map_err(store_error)? {
            Some(ServerRecord { server, definitions }) => (Some(server), definitions.map_err(store_error)?),
            None => (None, ServerDefinitions::default()),
        };
        let earlier = known.earlier_than(&tools);
        let drift = before.as_ref().map_or_else(Vec::new, |before| {
            let mut changes = drift::changes(&before.annotations, &known.tools, &tools);
            changes.extend(drift::changes_of_others(&known.others, &others));
            changes
        });
        known.hand_over_to(&mut tools);
        let package = codegen::generate_all(&server, &tools, &others, codegen::Options::default());
        let summary = generate::summary(&name, &package, &others);
        let calls = calls_of(&name, &tools);
        let written = packages.write(&name, &package).map_err(package_error)?;
        let RegisteredServer { parameters, annotations, for_apps, .. } = registered;
        let after = StoredServer { parameters, annotations, for_apps, definitions: None };
        let found = ServerDefinitions { tools, description: server.description, others, before: earlier };
        let successor = RegistrationSuccessor {
            name: &name,
            before: before.as_ref(),
            after,
            definitions: &found,
            packages,
        };
        let replaced = self.records.replace(successor, || written.put());
        replaced.map_err(|why| match why {
            NotChanged::Store(source) => store_error(source),
            NotChanged::Package(source) => package_error(source),
        })?;
        let warnings = generate::warnings(&package);
        Ok(InstalledPackage {
            modules: package.modules.into_iter().map(|module| module.name).collect(),
            calls,
            others: summary,
            warnings,
            drift,
            definitions: found.by_tool(),
        })
    }
}
