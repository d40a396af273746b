//! The entry of a kept session: a directory with its description, socket, lock and log.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Error;
use super::likeness::{JSON_BYTES, SessionLikeness};
use crate::config::sessions_dir;
use crate::ground::files::replacement::{PRIVATE, parent_of, replace};
use crate::ground::files::{check_private, create_private_directory, if_there, lock, small};

/// The longest path of a socket: 104 bytes on macOS and 108 on Linux, with the byte that ends it.
const SOCKET_BYTES: usize = 103;

/// The time that it may take to lock an entry that is new.
const LOCK_TIME: Duration = Duration::from_secs(5);

/// The number of hexadecimal digits of an id.
const ID_DIGITS: usize = 8;

/// Whether this can be the id of a session.
pub(super) fn is_session_id(id: &str) -> bool {
    id.len() == ID_DIGITS && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The entry of a session, which may have ended.
#[derive(Debug, Clone)]
pub(super) struct SessionEntry {
    path: PathBuf,
}

/// An entry's description of its session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EntryDescription {
    /// The workspace, as text.
    pub(super) workspace: PathBuf,
    /// The conditions that the session was begun under.
    pub(super) likeness: SessionLikeness,
    /// The process that holds it.
    pub(super) process: u32,
    /// When it began, in milliseconds since 1970.
    pub(super) began: u64,
    /// Since when no client attends it, in milliseconds since 1970.
    #[serde(default)]
    pub(super) alone_since: Option<u64>,
    /// The time that it waits for a client, in seconds.
    pub(super) keep_seconds: u64,
    /// Its notebook.
    #[serde(default)]
    pub(super) notebook: Option<PathBuf>,
    /// Why it has ended: written for the next client, who will look for it.
    #[serde(default)]
    pub(super) ended: Option<String>,
}

impl EntryDescription {
    /// Why the session, which has ended, has done so.
    pub(super) fn reason(self) -> String {
        self.ended.unwrap_or_else(|| "its process was killed".to_owned())
    }
}

impl SessionEntry {
    /// The entry with this path.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The entry of the session with this id, which may not exist.
    pub(super) fn of(states: &Path, id: &str) -> Self {
        Self { path: sessions_dir(states).join(id) }
    }

    /// A new entry, without a description: with this id, or with a new one.
    ///
    /// # Errors
    /// There is one with this id, or it cannot be made.
    pub(super) fn create(states: &Path, id: Option<&str>) -> Result<Self, Error> {
        let parent = sessions_dir(states);
        let fresh = uuid::Uuid::new_v4().simple().to_string();
        let path = parent.join(id.unwrap_or(&fresh[..ID_DIGITS]));
        let made = create_private_directory(&parent)
            .and_then(|()| std::fs::DirBuilder::new().mode(0o700).create(&path));
        made.map_err(|source| Error::Directory { path: parent, source })?;
        let entry = Self { path };
        let socket = entry.socket();
        if socket.as_os_str().len() > SOCKET_BYTES {
            entry.remove();
            return Err(Error::TooLong { path: socket, limit: SOCKET_BYTES });
        }
        Ok(entry)
    }

    /// All entries, in no order. Those that another user could have written are left out: an entry says which process
    /// is killed.
    pub(super) fn all(states: &Path) -> io::Result<Vec<Self>> {
        let entries = if_there(std::fs::read_dir(sessions_dir(states)))?.into_iter().flatten();
        let entries = entries.map(|entry| entry.map(|entry| Self { path: entry.path() }));
        entries
            .filter(|entry| entry.as_ref().map_or(true, |entry| check_private(&entry.path).is_ok()))
            .collect()
    }

    /// The directory of all states that the entry is in.
    pub(super) fn states(&self) -> Option<&Path> {
        self.path.parent()?.parent()
    }

    /// The id of the session.
    pub(super) fn id(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Locks the entry as long as the result lives: its session lives as long.
    pub(super) fn hold(&self) -> io::Result<File> {
        lock(&self.path.join("lock"), LOCK_TIME)
    }

    /// Whether the session's process lives.
    pub(super) fn is_held(&self) -> bool {
        // Not made here, since that would keep the entry from being removed.
        let Ok(file) = File::open(self.path.join("lock")) else { return false };
        // Shared: processes that look at the same moment must not take each other for the session.
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    pub(super) fn describe(&self, description: &EntryDescription) -> io::Result<()> {
        let path = self.description();
        let (directory, name) = parent_of(&path)?;
        replace(&directory, name, PRIVATE, &serde_json::to_vec(description)?)
    }

    /// The description in the entry; `None` if it is new or nothing that ipybox has written.
    pub(super) fn read(&self) -> Option<EntryDescription> {
        serde_json::from_slice(&small::read(&self.description(), JSON_BYTES as u64).ok()?).ok()
    }

    fn description(&self) -> PathBuf {
        self.path.join("session.json")
    }

    /// Removes the entry.
    pub(super) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "could not remove `{}`", self.path.display());
        }
    }

    /// When it was made or last changed.
    pub(super) fn age(&self) -> Duration {
        let changed = std::fs::metadata(&self.path).and_then(|metadata| metadata.modified());
        changed.ok().and_then(|changed| changed.elapsed().ok()).unwrap_or_default()
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of a session whose process has ended.
    fn ended(states: &Path) -> SessionEntry {
        let entry = SessionEntry::create(states, None).unwrap();
        drop(entry.hold().unwrap());
        entry
    }

    #[test]
    fn processes_that_look_at_the_same_moment_agree_that_a_session_has_ended() {
        let states = tempfile::tempdir().unwrap();
        let entry = ended(states.path());
        let held: usize = std::thread::scope(|scope| {
            let looking = || (0..10_000).filter(|_| entry.is_held()).count();
            [(); 2].map(|()| scope.spawn(looking)).into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(held, 0, "of 20000");
        let _held = entry.hold().unwrap();
        assert!(entry.is_held());
    }

    #[test]
    fn an_entry_that_others_look_at_is_removed_whole() {
        let states = tempfile::tempdir().unwrap();
        let entries: Vec<SessionEntry> = (0..500).map(|_| ended(states.path())).collect();
        std::thread::scope(|scope| {
            for entry in &entries {
                scope.spawn(|| (0..200).filter(|_| entry.is_held()).count());
                entry.remove();
            }
        });
        let left = entries.iter().filter(|entry| entry.path().exists()).count();
        assert_eq!(left, 0, "of 500");
    }
}
