//! The saved actions of a workspace, or those that a team has published, as they can be used without it.

use std::io;
use std::path::PathBuf;

use crate::tools::actions::{ActionBundle, ActionState, ActionStore, PublishedActions, SavedAction};
use crate::tools::registry::{digests_of_recorded, recorded_in};

/// Actions with the servers of a workspace. Its methods block.
#[derive(Debug, Clone)]
pub(crate) struct ActionShelf {
    state_dir: PathBuf,
    place: ShelfPlace,
}

/// The place of the actions.
#[derive(Debug, Clone)]
enum ShelfPlace {
    Saved(ActionStore),
    Published(PublishedActions),
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
        Self { place: ShelfPlace::Saved(ActionStore::in_directory(&state_dir)), state_dir }
    }

    /// The published actions in a directory, with the servers that a state directory keeps.
    pub(crate) fn of_published(directory: PathBuf, state_dir: PathBuf) -> Self {
        Self { place: ShelfPlace::Published(PublishedActions::in_directory(directory)), state_dir }
    }

    /// The files of an action, and of those that it uses.
    ///
    /// # Errors
    /// A file cannot be read, or is another one than it was.
    pub(super) fn bundle(&self, action: &SavedAction) -> io::Result<ActionBundle> {
        match &self.place {
            ShelfPlace::Saved(store) => ActionBundle::of_saved(store, action),
            ShelfPlace::Published(published) => published.bundle(action),
        }
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
            let seems_to_read = called.peek().is_some() && called.all(reads);
            match &self.place {
                ShelfPlace::Saved(store) => ShelvedAction {
                    state: store.state(&action, &digests, None),
                    action,
                    only_reads: seems_to_read,
                },
                // Its publisher has said which tools it calls.
                ShelfPlace::Published(_) => ShelvedAction {
                    state: ActionState::of_published(&action, &digests),
                    action,
                    only_reads: false,
                },
            }
        };
        let all = match &self.place {
            ShelfPlace::Saved(store) => store.all()?,
            ShelfPlace::Published(published) => published.all()?,
        };
        Ok(all.into_iter().map(shelved).collect())
    }
}
