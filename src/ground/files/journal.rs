//! Notes of changes that touch several files, kept while they are under way.
//!
//! A process holds the locks of its notes. Those of a process that has died are found by others, who complete the change.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::replacement::{PRIVATE, Replacement};
use super::{create_private_directory, if_there, small};

/// The largest note, in bytes.
const LARGEST: u64 = 16 * 1024 * 1024;

/// A directory of notes. Its methods block.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    directory: PathBuf,
}

/// A note. If dropped before it is [`removed`](Self::remove), another process finds it, or this one.
#[derive(Debug)]
#[must_use = "remove it when the change is complete"]
pub(crate) struct JournalNote {
    path: PathBuf,
    _file: File,
}

impl Journal {
    pub(crate) fn in_directory(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Notes a change that is about to begin.
    pub(crate) fn note<T: Serialize>(&self, change: &T) -> io::Result<JournalNote> {
        create_private_directory(&self.directory)?;
        let directory = Dir::open_ambient_dir(&self.directory, cap_std::ambient_authority())?;
        let mut fresh = Replacement::file(&directory, PRIVATE)?;
        fresh.as_file().write_all(&serde_json::to_vec(change)?)?;
        let name = format!("{}.json", uuid::Uuid::new_v4().simple());
        let path = self.directory.join(&name);
        // The lock is of the file, whatever its name.
        Ok(JournalNote { path, _file: fresh.put_durably(&name)? })
    }

    /// Whether there is any note.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths().is_ok_and(|paths| paths.is_empty())
    }

    /// The changes that processes have not completed before they ended.
    pub(crate) fn left<T: DeserializeOwned>(&self) -> io::Result<Vec<(JournalNote, T)>> {
        let mut left = Vec::new();
        for path in self.paths()? {
            let Some(file) = if_there(File::open(&path))? else { continue };
            // Without locks, nobody can tell whether the process lives.
            if file.try_lock().is_err() {
                continue;
            }
            match read(&path) {
                Ok(Some(change)) => left.push((JournalNote { path, _file: file }, change)),
                // Completed between the opening and the lock.
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a change is not completed"),
            }
        }
        Ok(left)
    }

    /// All changes, also those that living processes complete.
    pub(crate) fn all<T: DeserializeOwned>(&self) -> io::Result<Vec<T>> {
        self.paths()?.iter().filter_map(|path| read(path).transpose()).collect()
    }

    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let Some(entries) = if_there(std::fs::read_dir(&self.directory))? else { return Ok(Vec::new()) };
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
        Ok(paths
            .into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect())
    }
}

impl JournalNote {
    /// The change is complete.
    pub(crate) fn remove(self) {
        if let Err(error) = if_there(std::fs::remove_file(&self.path)) {
            tracing::warn!(%error, "a complete change will be looked at again");
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(text) = if_there(small::read(path, LARGEST))? else { return Ok(None) };
    let change = serde_json::from_slice(&text);
    change.map(Some).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("`{}` cannot be read: {error}", path.display()))
    })
}
