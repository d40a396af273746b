//! The file of registrations: `servers.json` in the state directory. What it says holds; the definitions and the package of a
//! server follow it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approval::ToolAnnotations;
use crate::connections::mcp_client::ServerParameters;
use crate::ground::files::{FileStamp, StateFile};

/// A stored registration.
#[derive(Clone)]
pub(super) struct StoredServer {
    /// As the user gave them: placeholders unresolved, so no secret is written to disk.
    pub(super) parameters: ServerParameters,
    /// The annotations of its tools when the package was generated, by tool name.
    pub(super) annotations: BTreeMap<String, ToolAnnotations>,
    /// The tools that were left out, since they are for apps only.
    pub(super) for_apps: BTreeSet<String>,
    /// The version of its definitions; `None` of an earlier version of ipybox.
    pub(super) definitions: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
pub(super) struct RegistryDocument {
    servers: BTreeMap<String, StoreEntry>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoreEntry {
    parameters: Map<String, Value>,
    #[serde(default)]
    tools: Vec<ToolEntry>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    for_apps: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definitions: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct ToolEntry {
    name: String,
    #[serde(default)]
    annotations: ToolAnnotations,
}

/// The place of registrations.
pub(super) enum RegistrationStore {
    /// The file. Several servers on one workspace may use it at the same time.
    File(StateFile),
    /// As long as the process lives.
    Memory(Mutex<RegistryDocument>),
}

impl RegistrationStore {
    pub(super) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    pub(super) fn in_directory(state_directory: &Path) -> Self {
        Self::File(StateFile::new(state_directory.join("servers.json")))
    }

    /// The registration of `name`.
    pub(super) fn get(&self, name: &str) -> io::Result<Option<StoredServer>> {
        let Some(StoreEntry { parameters, tools, for_apps, definitions }) = self.entries()?.remove(name)
        else {
            return Ok(None);
        };
        let parameters = ServerParameters::parse(&parameters).map_err(|error| match self {
            Self::File(file) => file.damaged(error),
            Self::Memory(_) => io::Error::other(error),
        })?;
        let annotations = tools.into_iter().map(|tool| (tool.name, tool.annotations)).collect();
        Ok(Some(StoredServer { parameters, annotations, for_apps, definitions }))
    }

    /// The number of tools of each server, by its name.
    pub(super) fn tools(&self) -> io::Result<BTreeMap<String, usize>> {
        Ok(self.entries()?.into_iter().map(|(name, entry)| (name, entry.tools.len())).collect())
    }

    /// The names of all servers, in order.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        match self {
            Self::File(_) => Ok(self.entries()?.into_keys().collect()),
            Self::Memory(document) => {
                let document = document.lock();
                Ok(document.servers.keys().cloned().collect())
            }
        }
    }

    /// The version of each server's definitions, by its name.
    pub(super) fn versions(&self) -> io::Result<BTreeMap<String, Option<String>>> {
        Ok(self.entries()?.into_iter().map(|(name, entry)| (name, entry.definitions)).collect())
    }

    /// The version of the file, if there is one.
    pub(super) fn stamp(&self) -> io::Result<Option<FileStamp>> {
        match self {
            Self::File(file) => file.stamp(),
            Self::Memory(_) => Ok(None),
        }
    }

    /// The parameters of all servers, as JSON texts with their placeholders.
    pub(super) fn placeholders(&self) -> io::Result<Vec<String>> {
        Ok(self.entries()?.into_values().map(|entry| Value::Object(entry.parameters).to_string()).collect())
    }

    /// Stores the registration of `name`, or removes it; an error leaves the file unchanged. Blocks.
    pub(super) fn put(&self, name: &str, record: Option<&StoredServer>) -> io::Result<()> {
        let put = |document: &mut RegistryDocument| match record.map(StoreEntry::of) {
            Some(entry) => drop(document.servers.insert(name.to_owned(), entry)),
            None => drop(document.servers.remove(name)),
        };
        match self {
            Self::File(file) => file.change(put),
            Self::Memory(document) => {
                put(&mut document.lock());
                Ok(())
            }
        }
    }

    /// Has one process at a time, as long as the result lives, change a registration with its definitions and its package.
    /// Waits at most for `limit`. Blocks.
    pub(super) fn turn(&self, limit: Duration) -> io::Result<Option<File>> {
        match self {
            Self::File(file) => file.turn(limit).map(Some),
            Self::Memory(_) => Ok(None),
        }
    }

    /// Reads the file: another process may have written it.
    fn entries(&self) -> io::Result<BTreeMap<String, StoreEntry>> {
        match self {
            Self::File(file) => Ok(file.read::<RegistryDocument>()?.servers),
            Self::Memory(document) => Ok(document.lock().servers.clone()),
        }
    }
}

impl StoreEntry {
    fn of(record: &StoredServer) -> Self {
        let tools = record.annotations.iter();
        Self {
            parameters: record.parameters.to_json(),
            tools: tools.map(|(name, &annotations)| ToolEntry { name: name.clone(), annotations }).collect(),
            for_apps: record.for_apps.clone(),
            definitions: record.definitions.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(command: &str) -> StoredServer {
        let Value::Object(parameters) = json!({"command": command, "env": {"KEY": "${KEY}"}}) else {
            panic!("an object")
        };
        StoredServer {
            parameters: ServerParameters::parse(&parameters).unwrap(),
            annotations: BTreeMap::from([("t".to_owned(), annotations())]),
            for_apps: BTreeSet::from(["u".to_owned()]),
            definitions: Some("1".to_owned()),
        }
    }

    fn annotations() -> ToolAnnotations {
        ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() }
    }

    #[test]
    fn what_is_put_is_found_by_another_process() {
        let directory = tempfile::tempdir().unwrap();
        let store = RegistrationStore::in_directory(directory.path());
        store.put("a", Some(&record("one"))).unwrap();
        store.put("b", Some(&record("two"))).unwrap();
        store.put("a", Some(&record("three"))).unwrap();
        let other = RegistrationStore::in_directory(directory.path());
        assert_eq!(other.get("a").unwrap().unwrap().parameters.to_json()["command"], "three");
        assert_eq!(other.get("b").unwrap().unwrap().parameters.to_json()["command"], "two");
        let record = other.get("b").unwrap().unwrap();
        assert_eq!(record.annotations["t"], annotations());
        assert!(record.for_apps.contains("u"));
        assert!(other.get("c").unwrap().is_none());
        assert_eq!(other.tools().unwrap(), BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 1)]));
        store.put("b", None).unwrap();
        assert!(other.get("b").unwrap().is_none() && other.get("a").unwrap().is_some());
    }

    #[test]
    fn hashes_of_an_earlier_version_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let tool =
            json!({"name": "t", "schema": "5f", "description": "e3", "annotations": {"read_only": true}});
        let servers = json!({"s": {"parameters": {"command": "x"}, "tools": [tool]}});
        let text = json!({"version": 1, "servers": servers}).to_string();
        std::fs::write(directory.path().join("servers.json"), text).unwrap();
        let record = RegistrationStore::in_directory(directory.path()).get("s").unwrap().unwrap();
        assert_eq!(record.annotations["t"], annotations());
    }

    #[test]
    fn placeholders_are_stored_unresolved() {
        let directory = tempfile::tempdir().unwrap();
        RegistrationStore::in_directory(directory.path()).put("a", Some(&record("x"))).unwrap();
        let text = std::fs::read_to_string(directory.path().join("servers.json")).unwrap();
        assert!(text.contains("${KEY}"), "{text}");
    }

    #[test]
    fn a_damaged_file_is_named_and_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("servers.json");
        for damage in ["{", r#"{"version": 2, "servers": {}}"#] {
            std::fs::write(&path, damage).unwrap();
            let store = RegistrationStore::in_directory(directory.path());
            assert!(store.get("a").err().unwrap().to_string().contains("servers.json"));
            assert!(store.put("a", Some(&record("x"))).is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damage);
        }
    }
}
