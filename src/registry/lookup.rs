//! Looks up the servers that code in a kernel can call.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use serde_json::Value;

use super::Registry;
use super::packages::Packages;
use super::store::{Store, StoredServer};
use crate::servers::{Registered, ServerLookup};
use crate::text::describe;

/// The servers of a registry, and then those of other workspaces.
pub(super) struct Lookup {
    registry: Registry,
    packages: Packages,
    others: Vec<Store>,
}

impl Lookup {
    /// `others` are the state directories of other workspaces.
    pub(super) fn new(registry: Registry, packages: Packages, others: &[PathBuf]) -> Self {
        Self { registry, packages, others: others.iter().map(|state| Store::in_directory(state)).collect() }
    }

    fn stores(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(&*self.registry.store).chain(&self.others)
    }
}

impl ServerLookup for Lookup {
    fn find(&self, name: &str) -> io::Result<Option<Registered>> {
        for store in self.stores() {
            if let Some(StoredServer { parameters, annotations, for_apps }) = store.get(name)? {
                return Ok(Some(Registered { parameters, annotations, for_apps }));
            }
        }
        Ok(None)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = BTreeSet::new();
        for store in self.stores() {
            names.extend(store.tools()?.into_keys());
        }
        Ok(names.into_iter().collect())
    }

    fn infer_result(&self, server: &str, module: &str, results: &[Value]) -> Result<String, String> {
        let inferred = self.registry.infer(server, module, results, &self.packages);
        inferred.map_err(|error| describe(&error))
    }
}
