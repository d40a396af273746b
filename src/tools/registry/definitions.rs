//! The definitions of the tools, resource templates and prompts of registered servers, and observed result types: a file for each server in
//! `definitions/` of the state directory, from which modules are generated again without connecting to the
//! server.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::drift;

use crate::ground::files::{Stamp, StateFile, if_there};
use crate::tools::codegen::{Observed, ResourcesAndPrompts, Tool};
use crate::tools::servers::ToolDefinition;

/// What a server has, as it was when its package was generated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Definitions {
    pub(super) tools: Vec<Tool>,
    /// The server's resource templates and prompts.
    #[serde(flatten)]
    pub(super) others: ResourcesAndPrompts,
    /// The tools that have changed, as they were before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) before: Vec<Tool>,
}

impl Definitions {
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

    /// How the tools are defined, by name.
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

/// What distinguishes the definitions of a server from earlier ones.
#[derive(Debug, Clone)]
pub(super) enum Version {
    File(Stamp),
    /// The definitions themselves, so that no others come to lie in their place.
    Memory(Arc<Definitions>),
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => one == other,
            (Self::Memory(one), Self::Memory(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Where definitions are kept. Writers hold the turns of the registry and of its store.
pub(super) enum DefinitionStore {
    Directory(PathBuf),
    /// As long as the process lives.
    Memory(Mutex<BTreeMap<String, Arc<Definitions>>>),
}

impl DefinitionStore {
    pub(super) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    pub(super) fn in_directory(state_directory: &Path) -> Self {
        Self::Directory(state_directory.join("definitions"))
    }

    /// Forgets the definitions of `server`, a valid package name.
    pub(super) fn remove(&self, server: &str) -> io::Result<()> {
        match self {
            Self::Directory(directory) => {
                if_there(std::fs::remove_file(directory.join(format!("{server}.json")))).map(drop)
            }
            Self::Memory(servers) => {
                servers.lock().remove(server);
                Ok(())
            }
        }
    }

    /// The definitions of `server`, a valid package name; empty if it was never registered.
    pub(super) fn get(&self, server: &str) -> io::Result<Definitions> {
        match self {
            Self::Directory(directory) => file(directory, server).read(),
            Self::Memory(servers) => {
                let servers = servers.lock();
                Ok(servers.get(server).map(|held| Definitions::clone(held)).unwrap_or_default())
            }
        }
    }

    /// The version of the definitions of `server`; `None` if it was never registered.
    pub(super) fn version(&self, server: &str) -> io::Result<Option<Version>> {
        match self {
            Self::Directory(directory) => Ok(file(directory, server).stamp()?.map(Version::File)),
            Self::Memory(servers) => {
                let servers = servers.lock();
                Ok(servers.get(server).map(|held| Version::Memory(Arc::clone(held))))
            }
        }
    }

    /// Stores the definitions of `server`. Blocks.
    pub(super) fn put(&self, server: &str, definitions: Definitions) -> io::Result<()> {
        match self {
            Self::Directory(directory) => {
                std::fs::create_dir_all(directory)?;
                file(directory, server).change(|document| *document = definitions)
            }
            Self::Memory(servers) => {
                let mut servers = servers.lock();
                servers.insert(server.to_owned(), Arc::new(definitions));
                Ok(())
            }
        }
    }
}

fn file(directory: &Path, server: &str) -> StateFile {
    StateFile::new(directory.join(format!("{server}.json")))
}
