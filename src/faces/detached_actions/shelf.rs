//! The saved actions of a workspace, as they can be used without it.

use std::io;
use std::path::PathBuf;

use crate::tools::actions::{ActionState, ActionStore, SavedAction};
use crate::tools::registry::{digests_of_recorded, recorded_in};

/// The saved actions of a workspace. Its methods block.
#[derive(Debug, Clone)]
pub(crate) struct ActionShelf {
    state_dir: PathBuf,
    pub(super) store: ActionStore,
}

/// An action, and whether it can be used.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShelvedAction {
    pub(crate) action: SavedAction,
    pub(crate) state: ActionState,
    /// Whether it calls tools, and the servers of all say that they only read.
    pub(crate) only_reads: bool,
}

impl ActionShelf {
    /// The actions that a state directory keeps.
    pub(crate) fn in_directory(state_dir: PathBuf) -> Self {
        Self { store: ActionStore::in_directory(&state_dir), state_dir }
    }

    /// All of them.
    ///
    /// # Errors
    /// A file of the state directory cannot be read.
    pub(crate) fn all(&self) -> io::Result<Vec<ShelvedAction>> {
        let servers = recorded_in(&self.state_dir)?;
        let digests = digests_of_recorded(&servers);
        let shelved = |action: SavedAction| {
            let mut called = action
                .servers
                .iter()
                .flat_map(|(server, tools)| tools.keys().map(move |tool| (server, tool)))
                .peekable();
            let reads = |(server, tool): (&String, &String)| {
                let found = servers.iter().find(|known| known.name == *server);
                let hints = found.and_then(|server| server.annotations.get(tool));
                hints.is_some_and(|hints| hints.read_only == Some(true))
            };
            let only_reads = called.peek().is_some() && called.all(reads);
            ShelvedAction { state: self.store.state(&action, &digests, None), action, only_reads }
        };
        Ok(self.store.all()?.into_iter().map(shelved).collect())
    }
}
