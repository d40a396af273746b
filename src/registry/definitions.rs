//! The tool definitions of registered servers, and observed result types: a file for each server in
//! `definitions/` of the state directory, from which modules are generated again without connecting to the
//! server.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::codegen::{Observed, Tool};
use crate::files::StateFile;

/// A server's tools, as they were when its package was generated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Definitions {
    pub(super) tools: Vec<Tool>,
}

impl Definitions {
    /// Moves the observed result types to `tools` of the same names.
    pub(super) fn hand_over_to(self, tools: &mut [Tool]) {
        let known = self.tools.into_iter().filter_map(|tool| Some((tool.name, tool.observed?)));
        let mut known: BTreeMap<String, Observed> = known.collect();
        tools.iter_mut().for_each(|tool| tool.observed = known.remove(&tool.name));
    }
}

/// Where definitions are kept. Writers hold the registry's `turn` lock.
pub(super) enum DefinitionStore {
    Directory(PathBuf),
    /// As long as the process lives.
    Memory(Mutex<BTreeMap<String, Definitions>>),
}

impl DefinitionStore {
    pub(super) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    pub(super) fn in_directory(state_directory: &Path) -> Self {
        Self::Directory(state_directory.join("definitions"))
    }

    /// The definitions of `server`, a valid package name; empty if it was never registered.
    pub(super) fn get(&self, server: &str) -> io::Result<Definitions> {
        match self {
            Self::Directory(directory) => file(directory, server).read(),
            Self::Memory(servers) => {
                let servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(servers.get(server).cloned().unwrap_or_default())
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
                let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
                servers.insert(server.to_owned(), definitions);
                Ok(())
            }
        }
    }
}

fn file(directory: &Path, server: &str) -> StateFile {
    StateFile::new(directory.join(format!("{server}.json")))
}
