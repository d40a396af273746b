//! A JSON document in the state directory that several processes read and write, and its owner may edit.
//!
//! It is replaced atomically; one that is damaged, or of a newer version, is refused and never overwritten.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::replacement::{PRIVATE, parent_of, replace};
use super::small::{self, if_there};

/// The format of the files.
const VERSION: u32 = 1;

/// The largest file that is read, in bytes. Definitions of tools may be long, and a state directory may lie in a workspace
/// that a stranger made.
const LARGEST: u64 = 256 * 1024 * 1024;

/// The time to wait for another process that writes the file; writing takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A file, and beside it `<name>.lock`. Its methods block.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
}

/// The mark that distinguishes the versions of a file: each is a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

#[derive(Serialize, Deserialize)]
struct StateDocument<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

impl StateFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The document in the file; the default if there is no file.
    pub(crate) fn read<T: DeserializeOwned + Default>(&self) -> io::Result<T> {
        Ok(self.find()?.unwrap_or_default())
    }

    /// The document in the file; `None` if there is no file.
    pub(crate) fn find<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let content =
            if_there(small::read(&self.path, LARGEST)).map_err(|error| self.failed("read", &error))?;
        let Some(content) = content else { return Ok(None) };
        let document: StateDocument<T> =
            serde_json::from_slice(&content).map_err(|error| self.damaged(error))?;
        match document.version {
            VERSION => Ok(Some(document.content)),
            other => Err(self.damaged(format!("version {other} is not {VERSION}"))),
        }
    }

    /// The version of the file; `None` if there is no file.
    pub(crate) fn stamp(&self) -> io::Result<Option<FileStamp>> {
        let found = if_there(std::fs::metadata(&self.path)).map_err(|error| self.failed("read", &error))?;
        Ok(found.map(|metadata| {
            let modified = metadata.modified().ok();
            FileStamp { inode: metadata.ino(), bytes: metadata.len(), modified }
        }))
    }

    /// Changes the document, under a lock against other processes. An error leaves the file unchanged.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut T)) -> io::Result<()>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let _lock = self.lock().map_err(|error| self.failed("locked", &error))?;
        let mut content = self.read()?;
        change(&mut content);
        self.put(content)
    }

    /// Replaces the document, whatever it is: nobody else writes it.
    pub(crate) fn put<T: Serialize>(&self, content: T) -> io::Result<()> {
        self.write(&StateDocument { version: VERSION, content })
            .map_err(|error| self.failed("written", &error))
    }

    /// Has one process at a time, as long as the result lives, change this file together with others. Waits at most for
    /// `limit`; [`io::ErrorKind::TimedOut`] if another process has the turn for so long.
    pub(crate) fn turn(&self, limit: Duration) -> io::Result<File> {
        lock(&self.path.with_extension("turn"), limit).map_err(|error| self.failed("locked", &error))
    }

    /// An error that names the file.
    pub(crate) fn damaged(&self, why: impl std::fmt::Display) -> io::Error {
        self.failed("used", &io::Error::new(io::ErrorKind::InvalidData, why.to_string()))
    }

    fn failed(&self, what: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("`{}` cannot be {what}: {error}", self.path.display()))
    }

    /// Waits for other processes, with a timeout.
    fn lock(&self) -> io::Result<File> {
        lock(&self.path.with_extension("lock"), LOCK_TIMEOUT)
    }

    fn write<T: Serialize>(&self, document: &StateDocument<T>) -> io::Result<()> {
        let (directory, name) = parent_of(&self.path)?;
        replace(&directory, name, PRIVATE, &serde_json::to_vec_pretty(document)?)
    }
}

/// Locks the file at `path`, which is made if it is missing, against other processes, as long as the result lives. Blocks.
///
/// # Errors
/// It cannot be locked, or another process has held it for all of `limit`.
pub(crate) fn lock(path: &Path, limit: Duration) -> io::Result<File> {
    let file = small::create(path)?;
    let deadline = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_POLL_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(held_too_long(limit));
            }
        }
    }
}

/// The error of who has waited for another process for all of `limit`.
pub(crate) fn held_too_long(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("another process has held it for {limit:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, Serialize, Deserialize)]
    struct Numbers {
        numbers: Vec<u32>,
    }

    #[test]
    fn no_change_of_several_writers_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers.json");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = StateFile::new(path.clone());
                scope.spawn(move || file.change(|all: &mut Numbers| all.numbers.push(number)).unwrap());
            }
        });
        let mut all: Numbers = StateFile::new(path).read().unwrap();
        all.numbers.sort_unstable();
        assert_eq!(all.numbers, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn what_cannot_be_understood_is_named_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers.json");
        for damage in ["{", "[]", r#"{"version": 2, "numbers": []}"#, r#"{"version": 1}"#] {
            std::fs::write(&path, damage).unwrap();
            let file = StateFile::new(path.clone());
            assert!(file.read::<Numbers>().err().unwrap().to_string().contains("numbers.json"), "{damage}");
            file.change(|all: &mut Numbers| all.numbers.push(1)).unwrap_err();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damage);
        }
    }
}
