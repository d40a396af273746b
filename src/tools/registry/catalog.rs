//! Searches the tools of all registered servers, in memory.
//!
//! The index is made for the first search, and again when a definition has changed: another process may have registered a
//! server meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::drift;
use super::records::{ServerRecord, ServerRecords};
use super::search::{Error, FoundAction, SearchIndex};
use crate::ground::files::FileStamp;
use crate::tools::actions::{ActionStamp, ActionStore, SavedAction, ToolDigests, UseCount, WorkspaceActions};
use crate::tools::servers::SearchQuery;
use ipybox_codegen::Tool;

/// The tools of all servers that code can call.
pub(super) struct ToolCatalog {
    /// The first that has a name says what it means.
    pub(super) places: Vec<Arc<ServerRecords>>,
    /// The saved actions, if searches find some.
    actions: Option<ActionPlaces>,
    /// One search at a time, since the first has to make the index.
    indexed: Mutex<Indexed>,
}

/// The places of saved actions: what the host has kept, and what code imports.
pub(super) struct ActionPlaces {
    pub(super) saved: ActionStore,
    pub(super) workspace: WorkspaceActions,
}

/// The indexes, and of which versions they were made.
#[derive(Default)]
struct Indexed {
    names: Vec<Names>,
    versions: Versions,
    tools: SearchIndex,
    /// Those of the tools.
    digests: ToolDigests,
    saved: Vec<StampedAction>,
    actions: SearchIndex,
}

/// An action, with the mark of its files and how often it has worked.
type StampedAction = (SavedAction, ActionStamp, UseCount);

/// The names that a place has, with the versions of their definitions.
#[derive(Default)]
struct Names {
    stamp: Option<FileStamp>,
    versions: BTreeMap<String, Option<String>>,
}

/// The servers that are registered, with the place and the version of their definitions.
type Versions = BTreeMap<String, (usize, Option<String>)>;

impl ToolCatalog {
    pub(super) fn new(places: impl IntoIterator<Item = Arc<ServerRecords>>) -> Self {
        Self { places: places.into_iter().collect(), actions: None, indexed: Mutex::default() }
    }

    /// Has searches find these actions too, as far as they can be used.
    pub(super) fn with_actions(self, actions: ActionPlaces) -> Self {
        Self { actions: Some(actions), ..self }
    }

    /// Answers a query. Blocks.
    pub(super) fn search(&self, query: &SearchQuery) -> Result<String, Error> {
        let mut indexed = self.indexed.lock();
        self.renew(&mut indexed).map_err(Error::Store)?;
        let mut answer = indexed.tools.search(query)?;
        if query.server.is_none()
            && let Some(actions) = indexed.actions.saved_actions(query)
        {
            answer = format!("{answer}\n{actions}");
        }
        Ok(answer)
    }

    fn renew(&self, indexed: &mut Indexed) -> io::Result<()> {
        indexed.names.resize_with(self.places.len(), Names::default);
        for (place, known) in self.places.iter().zip(&mut indexed.names) {
            // Each version is looked up before what it is the version of: in doubt the next search reads again.
            let stamp = place.servers.stamp()?;
            if stamp.is_none() || stamp != known.stamp {
                *known = Names { stamp, versions: place.servers.versions()? };
            }
        }
        let mut versions = Versions::new();
        for (number, known) in indexed.names.iter().enumerate() {
            for (name, version) in &known.versions {
                versions.entry(name.clone()).or_insert_with(|| (number, version.clone()));
            }
        }
        let saved = self.actions.as_ref().map(ActionPlaces::stamped).unwrap_or_default();
        let is_other = indexed.versions != versions;
        if is_other {
            self.index_tools(&versions, indexed);
            indexed.versions = versions;
        }
        if is_other || indexed.saved != saved {
            indexed.actions = SearchIndex::of_actions(&self.usable(&saved, &indexed.digests));
            indexed.saved = saved;
        }
        Ok(())
    }

    /// The actions that can be used.
    fn usable(&self, saved: &[StampedAction], digests: &ToolDigests) -> Vec<FoundAction> {
        let usable = saved.iter().filter(|(action, ..)| {
            self.actions.as_ref().is_some_and(|places| places.are_usable(action, digests))
        });
        usable.map(|(action, _, uses)| found(action, *uses)).collect()
    }

    fn index_tools(&self, versions: &Versions, indexed: &mut Indexed) {
        let mut servers: Vec<(&str, Vec<Tool>)> = Vec::with_capacity(versions.len());
        for (name, (number, _)) in versions {
            let record = self.places[*number].get(name).transpose();
            match record.map(|record| record.and_then(|ServerRecord { definitions, .. }| definitions)) {
                Some(Ok(definitions)) => servers.push((name, definitions.tools)),
                // Removed just now.
                None => {}
                // The others can be found all the same, and the next registration of this one reports it.
                Some(Err(error)) => tracing::warn!(%error, "the tools of a server cannot be searched"),
            }
        }
        let digest = |tool: &Tool| (tool.name.clone(), drift::sha256(tool));
        let digests =
            servers.iter().map(|(name, tools)| ((*name).to_owned(), tools.iter().map(digest).collect()));
        indexed.digests = digests.collect();
        indexed.tools = SearchIndex::new(servers.iter().map(|(name, tools)| (*name, tools.as_slice())));
    }
}

impl ActionPlaces {
    pub(super) fn of(state_directory: &Path, workspace: &Path) -> Self {
        Self {
            saved: ActionStore::in_directory(state_directory),
            workspace: WorkspaceActions::of_workspace(workspace),
        }
    }

    /// All actions, with the marks of their files and how often they have worked.
    fn stamped(&self) -> Vec<StampedAction> {
        let read = self.saved.all().and_then(|actions| Ok((actions, self.saved.uses().all()?)));
        let (actions, uses) = read.unwrap_or_else(|error| {
            // The tools can be found all the same, and `ipybox actions list` reports it.
            tracing::warn!(%error, "the saved actions cannot be searched");
            Default::default()
        });
        let stamped = actions.into_iter().map(|action| {
            let stamp = self.saved.stamp(&action, Some(self.workspace.path()));
            let uses = uses.get(&action.name).copied().unwrap_or_default();
            (action, stamp, uses)
        });
        stamped.collect()
    }

    fn are_usable(&self, action: &SavedAction, digests: &ToolDigests) -> bool {
        self.saved.state(action, digests, Some(&self.workspace)).is_usable()
    }
}

fn found(action: &SavedAction, uses: UseCount) -> FoundAction {
    let uses = match uses.worked {
        0 => String::new(),
        1 => " (worked once)".to_owned(),
        worked => format!(" (worked {worked} times)"),
    };
    FoundAction {
        category: action.category.clone(),
        name: action.name.clone(),
        summary: action.summary.clone(),
        uses,
        description: action.description.clone(),
        call: format!("{}{}", action.function(), action.signature),
        input_schema: action.input_schema.clone(),
    }
}

/// Answers a query about the servers and actions that a workspace's state directory keeps, as text for a model. Blocks.
///
/// # Errors
/// The query is out of bounds or names an unknown server, or the files cannot be read.
pub fn search(state_directory: &Path, workspace: &Path, query: &SearchQuery) -> Result<String, Error> {
    let catalog = ToolCatalog::new([Arc::new(ServerRecords::in_directory(state_directory))]);
    catalog.with_actions(ActionPlaces::of(state_directory, workspace)).search(query)
}
