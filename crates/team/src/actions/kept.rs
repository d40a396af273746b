//! The files of published actions: `<name>/<version>.json`. A version never changes.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{FILE_BYTES, PublishedFile};
use crate::storage::read_bounded;

/// The mode of directories: all users pass, and none can write.
const MODE: u32 = 0o755;

/// A published action, in its newest version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TeamAction {
    /// Its subject.
    pub category: String,
    /// The name.
    pub name: String,
    /// The version, from 1.
    pub version: u32,
    /// The user who has published it.
    pub publisher: String,
    /// The approver.
    pub by: String,
    /// When it was decided, in seconds since 1970.
    pub time: u64,
}

/// The published actions in a directory.
#[derive(Debug, Clone)]
pub(crate) struct KeptActions {
    directory: PathBuf,
}

impl KeptActions {
    pub(crate) fn in_directory(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> io::Result<Vec<TeamAction>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            if let Ok(name) = entry?.file_name().into_string()
                && !name.starts_with('.')
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        let mut actions = Vec::new();
        for name in names {
            actions.extend(self.newest(&name)?);
        }
        Ok(actions)
    }

    /// The newest version of the action with this name, which was checked.
    pub(crate) fn newest(&self, name: &str) -> io::Result<Option<TeamAction>> {
        let Some(version) = self.version(name)? else { return Ok(None) };
        let PublishedFile { time, publisher, by, action, .. } = self.read(name, version)?;
        let category = action.get("category").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Some(TeamAction { category, name: name.to_owned(), version, publisher, by, time }))
    }

    /// The published form of a version.
    pub(crate) fn action(&self, name: &str, version: u32) -> io::Result<Map<String, Value>> {
        Ok(self.read(name, version)?.action)
    }

    /// Adds a version: this file, which is moved.
    pub(super) fn add(&self, name: &str, file: &Path) -> io::Result<()> {
        let directory = self.directory.join(name);
        match DirBuilder::new().mode(MODE).create(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // Whatever the process's mask says.
        std::fs::set_permissions(&directory, Permissions::from_mode(MODE))?;
        let next = self.version(name)?.unwrap_or_default() + 1;
        std::fs::rename(file, directory.join(format!("{next}.json")))?;
        File::open(&directory)?.sync_all()?;
        File::open(&self.directory)?.sync_all()
    }

    /// Removes an action with all its versions; readers see all of them, or none.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let removed = tempfile::Builder::new().prefix(".removed-").tempdir_in(&self.directory)?;
        std::fs::rename(self.directory.join(name), removed.path().join(name))?;
        removed.close()
    }

    /// The newest version.
    fn version(&self, name: &str) -> io::Result<Option<u32>> {
        let entries = match std::fs::read_dir(self.directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        let mut newest = None;
        for entry in entries {
            let file = entry?.file_name().into_string().unwrap_or_default();
            newest = newest.max(file.strip_suffix(".json").and_then(|version| version.parse().ok()));
        }
        Ok(newest)
    }

    fn read(&self, name: &str, version: u32) -> io::Result<PublishedFile> {
        let path = self.directory.join(name).join(format!("{version}.json"));
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("read `{}`: {error}", path.display()));
        let text = read_bounded(&path, FILE_BYTES).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|error| failed(error.into()))
    }
}
