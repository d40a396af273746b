//! An action with all that its code imports of what agents have written: saved actions, and parsers of tools' output.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::imports::imported;
use super::record::{ActionFiles, SOURCES, SavedAction, ToolDigests, UsedAction, names_word, parser_path};
use super::store::ActionStore;
use super::workspace::WorkspaceActions;

/// The most parsers of an action, and the most actions that one uses, those among them that others use.
pub(super) const MOST_PARSERS: usize = 20;
pub(super) const MOST_USED: usize = 50;

/// The files of an action, and of those that it uses.
#[derive(Debug, Clone)]
pub(crate) struct ActionBundle {
    pub(crate) category: String,
    pub(crate) name: String,
    /// Its own, with the parsers that it imports.
    pub(crate) files: ActionFiles,
    /// The saved actions that its code imports, and those that they import.
    pub(crate) used: Vec<(SavedAction, ActionFiles)>,
}

/// Why an action cannot have what its code imports.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    #[error("save the action `{path}`: it uses `{used}`, which is no saved action: save that one first")]
    NotSaved { path: String, used: String },
    #[error("save the action `{path}`: it uses `{used}`, which is {state}: {why}")]
    Unusable { path: String, used: String, state: &'static str, why: String },
    #[error("save the action `{path}`: `{used}`, which it uses, uses it too: an action cannot use itself")]
    Circle { path: String, used: String },
    #[error(
        "save the action `{path}`: it uses more than {MOST_USED} saved actions, or more than {MOST_PARSERS} parsers"
    )]
    TooMany { path: String },
    #[error("read what the action `{path}` imports")]
    Read { path: String, source: io::Error },
}

impl ActionBundle {
    /// The files of a new action, with those of `workspace` and `store` that its code imports. Blocks.
    ///
    /// # Errors
    /// It uses an action that is not saved or not usable, or itself.
    pub(crate) fn of_draft(
        [category, name]: [&str; 2],
        mut files: ActionFiles,
        store: &ActionStore,
        workspace: &WorkspaceActions,
        tools: &ToolDigests,
    ) -> Result<Self, BundleError> {
        let path = format!("gentools.{category}.{name}");
        add_parsers(&path, &mut files, workspace)?;
        let mut used = Vec::new();
        for used_path in used_paths(&files, &path) {
            let [_, used_category, used_name] = &used_path;
            let used_path = used_path.join(".");
            let read = |source| BundleError::Read { path: path.clone(), source };
            let known = store.get(used_name).map_err(read)?;
            let Some(known) = known.filter(|known| known.category == *used_category) else {
                return Err(BundleError::NotSaved { path, used: used_path });
            };
            let state = store.state(&known, tools, Some(workspace));
            if let Some(why) = state.why() {
                return Err(BundleError::Unusable {
                    path,
                    used: used_path,
                    state: state.word(),
                    why: why.to_owned(),
                });
            }
            add_used(store, known, &mut used).map_err(read)?;
            if used.iter().any(|(action, _)| action.path() == path) {
                return Err(BundleError::Circle { path, used: used_path });
            }
            if used.len() > MOST_USED {
                return Err(BundleError::TooMany { path });
            }
        }
        Ok(Self { category: category.to_owned(), name: name.to_owned(), files, used })
    }

    /// The files of a saved action, with the newest versions of those that it uses. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or was edited; an action that it uses is missing: [`io::ErrorKind::NotFound`].
    pub(crate) fn of_saved(store: &ActionStore, action: &SavedAction) -> io::Result<Self> {
        let mut used = Vec::new();
        add_all_used(store, action, &mut used)?;
        let files = store.files(action)?;
        Ok(Self { category: action.category.clone(), name: action.name.clone(), files, used })
    }

    /// Puts an action, those that it uses, and the parsers of all of them into an empty workspace. Blocks.
    ///
    /// # Errors
    /// The files cannot be written.
    pub(crate) fn put_into(&self, workspace: &WorkspaceActions) -> io::Result<()> {
        let placed = self.placed_files();
        let mut directories: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for (place, text) in &placed {
            if let Some((directory, file)) = place.rsplit_once('/') {
                directories.entry(directory).or_default().push((file, text));
            }
        }
        directories.into_iter().try_for_each(|(directory, files)| {
            workspace.put_directory(Path::new(directory), files.into_iter())
        })
    }

    /// The actions that its own code imports, as they are now.
    pub(crate) fn uses(&self) -> BTreeMap<String, UsedAction> {
        let paths = used_paths(&self.files, &format!("gentools.{}.{}", self.category, self.name));
        let is_own = |action: &&SavedAction| {
            paths.iter().any(|[_, category, name]| (category, name) == (&action.category, &action.name))
        };
        let own = self.used.iter().map(|(action, _)| action).filter(is_own);
        own.map(|action| (action.name.clone(), action.as_used())).collect()
    }

    /// The files of all of them.
    pub(crate) fn all_files(&self) -> impl Iterator<Item = &(String, String)> {
        self.files.iter().chain(self.used.iter().flat_map(|(_, files)| files))
    }

    /// The files of all of them, by their places in a workspace.
    pub(crate) fn placed_files(&self) -> BTreeMap<String, String> {
        let own = [(&self.category, &self.name, &self.files)];
        let others = self.used.iter().map(|(action, files)| (&action.category, &action.name, files));
        let mut placed = BTreeMap::new();
        for (category, name, files) in own.into_iter().chain(others) {
            for (file, text) in files {
                let place = parser_path(file).map_or_else(
                    || format!("gentools/{category}/{name}/{file}"),
                    |path| path.display().to_string(),
                );
                placed.insert(place, text.clone());
            }
        }
        placed
    }

    /// Whether the code of one of them has this word.
    pub(crate) fn names_word(&self, word: &str) -> bool {
        names_word(&self.files, word) || self.used.iter().any(|(_, files)| names_word(files, word))
    }
}

/// The saved actions that these files import, but for the one at `path`.
fn used_paths(files: &ActionFiles, path: &str) -> Vec<[String; 3]> {
    let all = files.iter().flat_map(|(_, text)| imported(text));
    let mut paths: Vec<_> = all.filter(|parts| parts[0] == "gentools" && parts.join(".") != path).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Adds the parsers that files import, and those that these import. One that the workspace does not have is none.
fn add_parsers(path: &str, files: &mut ActionFiles, workspace: &WorkspaceActions) -> Result<(), BundleError> {
    let mut next = 0;
    while let Some((_, text)) = files.get(next) {
        next += 1;
        for parts in imported(text) {
            let name = format!("{}.py", parts.join("."));
            let Some(place) = parser_path(&name) else { continue };
            if files.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let read = workspace.parser(&place);
            let text = read.map_err(|source| BundleError::Read { path: path.to_owned(), source })?;
            files.extend(text.map(|text| (name, text)));
        }
        if files.len() > SOURCES.len() + MOST_PARSERS {
            return Err(BundleError::TooMany { path: path.to_owned() });
        }
    }
    Ok(())
}

/// Adds an action, and those that it uses, once each.
fn add_used(
    store: &ActionStore,
    action: SavedAction,
    used: &mut Vec<(SavedAction, ActionFiles)>,
) -> io::Result<()> {
    if used.iter().any(|(known, _)| known.name == action.name) {
        return Ok(());
    }
    let files = store.files(&action)?;
    used.push((action.clone(), files));
    add_all_used(store, &action, used)
}

fn add_all_used(
    store: &ActionStore,
    action: &SavedAction,
    used: &mut Vec<(SavedAction, ActionFiles)>,
) -> io::Result<()> {
    action.uses.keys().try_for_each(|name| add_used(store, store.used(name)?, used))
}
