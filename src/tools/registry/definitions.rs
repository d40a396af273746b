//! The definitions of the tools, resource templates and prompts of registered servers, and observed result types: a file for each server in
//! `definitions/` of the state directory, from which modules are generated again without connecting to the
//! server.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::drift;
use super::store::StoredServer;
use crate::ground::files::{StateFile, create_private_directory, if_there};
use crate::tools::servers::ToolDefinition;
use ipybox_codegen::{Observed, ResourcesAndPrompts, Tool};

/// The number of characters of the digest of definitions in the name of their version.
const VERSION_CHARS: usize = 16;

/// The tools, resources and prompts of a server, as they were when its package was generated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ServerDefinitions {
    pub(super) tools: Vec<Tool>,
    /// The server's description of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    /// The server's resource templates and prompts.
    #[serde(flatten)]
    pub(super) others: ResourcesAndPrompts,
    /// The tools that have changed, as they were before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) before: Vec<Tool>,
}

impl ServerDefinitions {
    /// The tools of `now` that are defined in another way than here, as they are here; of the others what was kept before.
    pub(super) fn earlier_than(&self, now: &[Tool]) -> Vec<Tool> {
        let find = |tools: &[Tool], name: &str| tools.iter().find(|tool| tool.name == name).cloned();
        let earlier = now.iter().filter_map(|tool| match find(&self.tools, &tool.name) {
            Some(known) if drift::has_changed(&known, tool) => Some(Tool { observed: None, ..known }),
            Some(_) => find(&self.before, &tool.name),
            None => None,
        });
        earlier.collect()
    }

    /// The definitions of the tools, by name.
    pub(super) fn by_tool(&self) -> BTreeMap<String, ToolDefinition> {
        let of = |tool: &Tool| {
            let before = self.before.iter().find(|before| before.name == tool.name);
            ToolDefinition {
                sha256: drift::sha256(tool),
                changes: before.map(|before| drift::diff(before, tool)),
            }
        };
        self.tools.iter().map(|tool| (tool.name.clone(), of(tool))).collect()
    }

    /// Moves the observed result types to `tools` of the same names.
    pub(super) fn hand_over_to(self, tools: &mut [Tool]) {
        let known = self.tools.into_iter().filter_map(|tool| Some((tool.name, tool.observed?)));
        let mut known: BTreeMap<String, Observed> = known.collect();
        tools.iter_mut().for_each(|tool| tool.observed = known.remove(&tool.name));
    }
}

/// The place of definitions. Each version is a file of its own, which is never changed: a registration names its version.
/// Writers hold the turns of the registry and of its store.
pub(super) enum DefinitionStore {
    Directory(PathBuf),
    /// As long as the process lives.
    Memory(Mutex<BTreeMap<String, Arc<ServerDefinitions>>>),
}

impl DefinitionStore {
    pub(super) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    pub(super) fn in_directory(state_directory: &Path) -> Self {
        Self::Directory(state_directory.join("definitions"))
    }

    /// This version of the definitions of `server`, a valid package name; `None` if there is none.
    pub(super) fn get(&self, server: &str, version: Option<&str>) -> io::Result<Option<ServerDefinitions>> {
        let name = file_name(server, version);
        match self {
            Self::Directory(directory) => StateFile::new(directory.join(name)).find(),
            Self::Memory(known) => {
                let known = known.lock();
                Ok(known.get(&name).map(|held| ServerDefinitions::clone(held)))
            }
        }
    }

    /// Stores definitions of `server`, and returns their version. Blocks.
    pub(super) fn put(&self, server: &str, definitions: &ServerDefinitions) -> io::Result<String> {
        let digest = format!("{:x}", Sha256::digest(serde_json::to_vec(definitions)?));
        let version = digest[..VERSION_CHARS].to_owned();
        let name = file_name(server, Some(&version));
        match self {
            Self::Directory(directory) => {
                create_private_directory(directory)?;
                StateFile::new(directory.join(name)).put(definitions)?;
            }
            Self::Memory(known) => drop(known.lock().insert(name, Arc::new(definitions.clone()))),
        }
        Ok(version)
    }

    /// Removes the versions of `server` but for the one that a registration names.
    pub(super) fn keep_only(&self, server: &str, registered: Option<&StoredServer>) -> io::Result<()> {
        let kept = registered.map(|registered| file_name(server, registered.definitions.as_deref()));
        let is_other = |name: &str| {
            let is_ours = name.split_once('.').is_some_and(|(of, _)| of == server);
            is_ours && kept.as_deref() != Some(name)
        };
        match self {
            Self::Directory(directory) => {
                for entry in if_there(std::fs::read_dir(directory))?.into_iter().flatten() {
                    let entry = entry?;
                    if entry.file_name().to_str().is_some_and(is_other) {
                        if_there(std::fs::remove_file(entry.path()))?;
                    }
                }
            }
            Self::Memory(known) => known.lock().retain(|name, _| !is_other(name)),
        }
        Ok(())
    }
}

/// The name of a version's file. Earlier versions of ipybox had one file for each server.
fn file_name(server: &str, version: Option<&str>) -> String {
    version.map_or_else(|| format!("{server}.json"), |version| format!("{server}.{version}.json"))
}
