//! The files of a checkpoint: a document, and one file for each value, named by its digest.
//!
//! Code in the kernel has made the bytes. They are never parsed here.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

use super::manifest::{Conditions, Content, KEPT_FOR, Manifest};
use crate::ground::files::{StateFile, create_private_directory, if_there, lock};

const MANIFEST: &str = "manifest.json";
/// What [`StateFile`] locks the manifest by.
const MANIFEST_LOCK: &str = "manifest.lock";
/// Held as long as a session saves its variables here.
const OWNER: &str = "session.lock";
/// How much of the conditions' digest names the directory.
const NAME_CHARS: usize = 16;

/// The directory of one set of conditions, which no other session writes as long as this one lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    manifest: StateFile,
    _owner: File,
}

/// Why a directory is not opened.
pub(super) enum NotOpened {
    /// Another session saves its variables there.
    Busy,
    Failed(io::Error),
}

impl Directory {
    /// Opens the directory below `base` for kernels with `python` under these conditions, and reads what is there.
    pub(super) fn open(
        base: &Path,
        conditions: &Conditions,
        python: &str,
    ) -> Result<(Self, io::Result<Manifest>), NotOpened> {
        let path = base.join(name(conditions, python));
        create_private_directory(&path).map_err(NotOpened::Failed)?;
        let owner = lock(&path.join(OWNER), Duration::ZERO).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => NotOpened::Busy,
            _ => NotOpened::Failed(error),
        })?;
        let manifest = StateFile::new(path.join(MANIFEST));
        let directory = Self { path, manifest, _owner: owner };
        let found = directory.manifest.read::<Manifest>();
        Ok((directory, found))
    }

    /// Replaces the document, and removes the values that it does not name.
    pub(super) fn write(&self, manifest: &Manifest) -> io::Result<()> {
        self.manifest.change(|document: &mut Manifest| document.clone_from(manifest))?;
        self.sweep(&manifest.content);
        Ok(())
    }

    /// Removes the document and all values.
    pub(super) fn clear(&self) -> io::Result<()> {
        if_there(std::fs::remove_file(self.path.join(MANIFEST)))?;
        self.sweep(&Content::default());
        Ok(())
    }

    /// Removes values that `content` does not name, and what a host that died has left.
    pub(super) fn sweep(&self, content: &Content) {
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_named = content.variables.iter().any(|variable| *variable.digest == *name);
            if is_named || [MANIFEST, MANIFEST_LOCK, OWNER].iter().any(|kept| **kept == *name) {
                continue;
            }
            if let Err(error) = std::fs::remove_file(entry.path()) {
                tracing::warn!(%error, "could not remove a saved value");
            }
        }
    }

    /// A new file for a value that is about to arrive.
    pub(super) fn create(&self) -> io::Result<tempfile::NamedTempFile> {
        tempfile::NamedTempFile::new_in(&self.path)
    }

    /// Where the value with this digest is.
    pub(super) fn value(&self, digest: &str) -> PathBuf {
        self.path.join(digest)
    }

    /// Whether there is a value with this digest and length.
    pub(super) fn has(&self, digest: &str, bytes: u64) -> bool {
        let found = std::fs::symlink_metadata(self.value(digest));
        found.is_ok_and(|found| found.is_file() && found.len() == bytes)
    }

    pub(super) fn read(&self, digest: &str) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(self.value(digest))
    }
}

fn name(conditions: &Conditions, python: &str) -> String {
    let Conditions { site, policy } = conditions;
    let digest = format!("{:x}", Sha256::digest(format!("{site}\0{policy}\0{python}")));
    digest[..NAME_CHARS].to_owned()
}

/// The documents of other conditions below `base`. Those that nobody has written for long are removed.
pub(super) fn others(base: &Path, conditions: &Conditions, python: &str) -> Vec<Manifest> {
    let own = name(conditions, python);
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let mut others = Vec::new();
    for entry in entries.filter(|entry| *entry.file_name() != *own) {
        let path = entry.path();
        let file = path.join(MANIFEST);
        let written = std::fs::metadata(&file).and_then(|metadata| metadata.modified());
        let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
        if age.is_some_and(|age| age > KEPT_FOR) && lock(&path.join(OWNER), Duration::ZERO).is_ok() {
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::warn!(%error, "could not remove an old checkpoint");
            }
            continue;
        }
        others.extend(StateFile::new(file).read::<Manifest>().ok());
    }
    others
}
