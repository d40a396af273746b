//! The saved actions of a workspace, in its state directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};

use super::record::{ActionFiles, SOURCES, SavedAction, TEST, check_name, digest, parser_path};
use super::uses::ActionUses;
use crate::ground::files::replacement::{Replacement, sweep};
use crate::ground::files::{StateFile, create_private_directory, if_there, lock, remove_tree, small};

/// The directory of all actions in a state directory.
const DIRECTORY: &str = "actions";

/// The largest Python file of an action, and the largest test, in bytes.
pub(crate) const SOURCE_BYTES: usize = 256 * 1024;
pub(crate) const TEST_BYTES: usize = 16 * 1024 * 1024;

/// The time to wait for another process that saves an action.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of a record's file.
#[derive(Serialize, Deserialize)]
struct ActionDocument {
    action: SavedAction,
}

/// The saved actions. Its methods block.
#[derive(Debug, Clone)]
pub(crate) struct ActionStore {
    directory: PathBuf,
}

impl ActionStore {
    /// The actions that a state directory keeps.
    pub(crate) fn in_directory(state_directory: &Path) -> Self {
        Self { directory: state_directory.join(DIRECTORY) }
    }

    /// All actions, by category and name.
    ///
    /// # Errors
    /// A record cannot be read; the error names its file.
    pub(crate) fn all(&self) -> io::Result<Vec<SavedAction>> {
        let mut actions = Vec::new();
        for category in directories(&self.directory)? {
            for name in directories(&self.directory.join(&category))? {
                actions.extend(self.read(&category, &name)?);
            }
        }
        Ok(actions)
    }

    /// The action of this name.
    ///
    /// # Errors
    /// As for [`all`](Self::all).
    pub(crate) fn get(&self, name: &str) -> io::Result<Option<SavedAction>> {
        if check_name(name).is_err() {
            return Ok(None);
        }
        for category in directories(&self.directory)? {
            if let Some(action) = self.read(&category, name)? {
                return Ok(Some(action));
            }
        }
        Ok(None)
    }

    /// The action of this name, which another one uses.
    ///
    /// # Errors
    /// It is removed, as the text says: [`io::ErrorKind::NotFound`]; or as for [`all`](Self::all).
    pub(super) fn used(&self, name: &str) -> io::Result<SavedAction> {
        self.get(name)?.ok_or_else(|| {
            let why = format!("the saved action `{name}`, which it uses, is removed");
            io::Error::new(io::ErrorKind::NotFound, why)
        })
    }

    /// The Python files of an action, as they were saved.
    ///
    /// # Errors
    /// A file cannot be read, or is another one than was saved: [`io::ErrorKind::InvalidData`].
    pub(crate) fn files(&self, action: &SavedAction) -> io::Result<ActionFiles> {
        let read = |name: &str| Ok((name.to_owned(), self.file(action, name, SOURCE_BYTES)?));
        let parsers = action.files.keys().map(String::as_str).filter(|name| parser_path(name).is_some());
        SOURCES.into_iter().chain(parsers).map(read).collect()
    }

    /// The recording that tests an action.
    ///
    /// # Errors
    /// As for [`files`](Self::files).
    pub(crate) fn test(&self, action: &SavedAction) -> io::Result<String> {
        self.file(action, TEST, TEST_BYTES)
    }

    /// The versions that are kept of an action, in order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn versions(&self, action: &SavedAction) -> io::Result<Vec<u32>> {
        let names = directories(&self.place(&action.category, &action.name))?;
        let mut versions: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    /// Has one process at a time, as long as the result lives, save or remove actions.
    ///
    /// # Errors
    /// Another process has the turn for 10 seconds, or the directory cannot be written.
    pub(crate) fn turn(&self) -> io::Result<File> {
        create_private_directory(&self.directory)?;
        lock(&self.directory.join("actions.turn"), TURN_TIMEOUT)
    }

    /// Saves a version with its files, whose digests it puts into the record, and returns that. The caller has the turn. An
    /// error leaves the version before.
    ///
    /// # Errors
    /// The files cannot be written.
    pub(crate) fn put(&self, action: SavedAction, files: &ActionFiles) -> io::Result<SavedAction> {
        let place = self.place(&action.category, &action.name);
        create_private_directory(&place)?;
        let directory = Dir::open_ambient_dir(&place, cap_std::ambient_authority())?;
        sweep(&directory);
        let version = Replacement::directory(&directory)?;
        version.fill(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))?;
        version.exchange(&action.version.to_string())?;
        let digests = files.iter().map(|(name, text)| (name.clone(), digest(text.as_bytes())));
        let action = SavedAction { files: digests.collect::<BTreeMap<_, _>>(), ..action };
        self.put_record(&action)?;
        Ok(action)
    }

    /// Replaces the record of an action whose files stay. The caller has the turn.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn put_record(&self, action: &SavedAction) -> io::Result<()> {
        let document = ActionDocument { action: action.clone() };
        self.record(&action.category, &action.name).put(document)
    }

    /// Removes an action with all its versions. The caller has the turn.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove(&self, action: &SavedAction) -> io::Result<()> {
        // Without its record there is no action, whatever is left of it.
        let place = self.place(&action.category, &action.name);
        if_there(std::fs::remove_file(place.join("action.json")))?;
        if_there(remove_tree(&place))?;
        self.uses().forget(&action.name)
    }

    /// In how many cells actions have worked.
    pub(crate) fn uses(&self) -> ActionUses {
        ActionUses::in_directory(&self.directory)
    }

    /// The directory with the record and the versions of an action.
    pub(super) fn place(&self, category: &str, name: &str) -> PathBuf {
        self.directory.join(category).join(name)
    }

    fn record(&self, category: &str, name: &str) -> StateFile {
        StateFile::new(self.place(category, name).join("action.json"))
    }

    fn read(&self, category: &str, name: &str) -> io::Result<Option<SavedAction>> {
        let record = self.record(category, name);
        let Some(ActionDocument { action }) = record.find()? else { return Ok(None) };
        let are_valid = check_name(category).and_then(|()| check_name(name));
        are_valid.map_err(|error| record.damaged(error))?;
        if action.category != category || action.name != name {
            return Err(record.damaged(format!("it is the record of `{}`", action.path())));
        }
        Ok(Some(action))
    }

    fn file(&self, action: &SavedAction, name: &str, limit: usize) -> io::Result<String> {
        let version = self.place(&action.category, &action.name).join(action.version.to_string());
        let path = version.join(name);
        let failed = |kind, why: &dyn std::fmt::Display| {
            io::Error::new(kind, format!("`{}` cannot be used: {why}", path.display()))
        };
        let text = small::read_text(&path, limit as u64).map_err(|error| failed(error.kind(), &error))?;
        if action.files.get(name) != Some(&digest(text.as_bytes())) {
            return Err(failed(io::ErrorKind::InvalidData, &"it was edited after it was saved"));
        }
        Ok(text)
    }
}

/// The names of the directories in `directory`, in order; none if it is missing.
pub(super) fn directories(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in if_there(std::fs::read_dir(directory))?.into_iter().flatten() {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}
