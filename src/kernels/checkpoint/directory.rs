//! The files of a checkpoint: a document, and one file for each value, named by its digest.
//!
//! Code in the kernel has made the bytes. They are never parsed here.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cap_std::fs::Dir;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

use super::manifest::{CheckpointConditions, CheckpointContent, KEPT_FOR, Manifest};
use crate::ground::files::replacement::{PRIVATE, Replacement};
use crate::ground::files::{StateFile, create_private_directory, if_there, is_at, lock, persist};

const MANIFEST: &str = "manifest.json";
/// The file by which [`StateFile`] locks the manifest.
const MANIFEST_LOCK: &str = "manifest.lock";
/// Held as long as a session saves its variables here.
const OWNER: &str = "session.lock";
/// The number of characters of the conditions' digest in the name of the directory.
const NAME_CHARS: usize = 16;

/// The directory of one set of conditions, which no other session writes as long as this one lives.
#[derive(Debug)]
pub(super) struct CheckpointDirectory {
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

impl CheckpointDirectory {
    /// Opens the directory below `base` for kernels with `python` under these conditions, and reads what is there.
    pub(super) fn open(
        base: &Path,
        conditions: &CheckpointConditions,
        python: &str,
    ) -> Result<(Self, io::Result<Manifest>), NotOpened> {
        let path = base.join(name(conditions, python));
        // Making a directory also fails with `AlreadyExists` if another session removes it just after it was found.
        let is_removed = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
        };
        let owned = persist(is_removed, || {
            create_private_directory(&path)?;
            Self::own(&path)
        });
        let directory = owned.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => NotOpened::Busy,
            _ => NotOpened::Failed(error),
        })?;
        let found = directory.manifest.read::<Manifest>();
        Ok((directory, found))
    }

    /// Keeps other sessions from writing the directory, and from removing it.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if another session has it, [`io::ErrorKind::NotFound`] if one has removed it.
    fn own(path: &Path) -> io::Result<Self> {
        let owner = lock(&path.join(OWNER), Duration::ZERO)?;
        // It may have been removed before the lock.
        is_at(&owner, &path.join(OWNER))?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { path: path.to_owned(), manifest: StateFile::new(path.join(MANIFEST)), _owner: owner })
    }

    /// Removes it with all that is in it.
    fn remove(self) -> io::Result<()> {
        self.clear()?;
        if_there(std::fs::remove_file(self.path.join(MANIFEST_LOCK)))?;
        // Last: from then on another session may have the directory.
        if_there(std::fs::remove_file(self.path.join(OWNER)))?;
        match std::fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed,
        }
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
        self.sweep(&CheckpointContent::default());
        Ok(())
    }

    /// Removes values that `content` does not name, and what a host that died has left.
    pub(super) fn sweep(&self, content: &CheckpointContent) {
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
    pub(super) fn create(&self) -> io::Result<Replacement> {
        Replacement::file(&Dir::open_ambient_dir(&self.path, cap_std::ambient_authority())?, PRIVATE)
    }

    /// The place of the value with this digest.
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

fn name(conditions: &CheckpointConditions, python: &str) -> String {
    let CheckpointConditions { site, policy } = conditions;
    let digest = format!("{:x}", Sha256::digest(format!("{site}\0{policy}\0{python}")));
    digest[..NAME_CHARS].to_owned()
}

/// Removes the checkpoints below `base` that no session has open, and `base` itself if nothing is left.
pub(super) fn remove_all(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        remove_unused(&entry.path());
    }
    match std::fs::remove_dir(base) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
            tracing::debug!(%error, "could not remove an old checkpoint");
        }
        _ => {}
    }
}

/// Removes a checkpoint, unless a session has it open; then it returns `false`.
fn remove_unused(path: &Path) -> bool {
    let Ok(unused) = CheckpointDirectory::own(path) else { return false };
    if let Err(error) = unused.remove() {
        tracing::warn!(%error, "could not remove an old checkpoint");
    }
    true
}

/// The checkpoints of a session.
pub(super) struct SavedContent {
    /// When variables were last saved.
    pub(super) saved: SystemTime,
    /// Their size together, in bytes.
    pub(super) bytes: u64,
}

/// The checkpoints below `base`; `None` if there is no variable in them.
pub(super) fn saved_content(base: &Path) -> Option<SavedContent> {
    let mut found: Option<SavedContent> = None;
    for entry in std::fs::read_dir(base).ok()?.flatten() {
        let file = entry.path().join(MANIFEST);
        let Ok(Manifest { content, .. }) = StateFile::new(file.clone()).read::<Manifest>() else { continue };
        let written = std::fs::metadata(file).and_then(|metadata| metadata.modified());
        if let Ok(saved) = written
            && !content.variables.is_empty()
        {
            let own = content.variables.iter().map(|variable| variable.bytes).sum::<u64>();
            let (newest, bytes) = found.map_or((saved, 0), |found| (found.saved.max(saved), found.bytes));
            found = Some(SavedContent { saved: newest, bytes: bytes + own });
        }
    }
    found
}

/// The documents of other conditions below `base`. Those that nobody has written for long are removed.
pub(super) fn others(base: &Path, conditions: &CheckpointConditions, python: &str) -> Vec<Manifest> {
    let own = name(conditions, python);
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let mut others = Vec::new();
    for entry in entries.filter(|entry| *entry.file_name() != *own) {
        let path = entry.path();
        let file = path.join(MANIFEST);
        // A session that died at its start has left none.
        let written = std::fs::metadata(&file).or_else(|_| std::fs::metadata(&path));
        let written = written.and_then(|metadata| metadata.modified());
        let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
        if age.is_some_and(|age| age > KEPT_FOR) && remove_unused(&path) {
            continue;
        }
        others.extend(StateFile::new(file).read::<Manifest>().ok());
    }
    others
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const PYTHON: &str = "3.12";

    fn conditions(site: &str) -> CheckpointConditions {
        CheckpointConditions { site: site.to_owned(), policy: String::new() }
    }

    /// Leaves a checkpoint that nobody has written for long.
    fn leave_old(base: &Path) {
        let (directory, _) = CheckpointDirectory::open(base, &conditions("old"), PYTHON).ok().unwrap();
        directory.write(&Manifest::default()).unwrap();
        let manifest = File::options().write(true).open(directory.path.join(MANIFEST)).unwrap();
        manifest.set_modified(SystemTime::now() - 2 * KEPT_FOR).unwrap();
    }

    #[test]
    fn an_old_checkpoint_is_removed() {
        let base = tempfile::tempdir().unwrap();
        leave_old(base.path());
        assert!(others(base.path(), &conditions("new"), PYTHON).is_empty());
        assert_eq!(base.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn an_old_checkpoint_is_not_removed_from_a_session_that_has_just_opened_it() {
        let lost = (0..400).filter(|_| {
            let base = tempfile::tempdir().unwrap();
            leave_old(base.path());
            let begin = Barrier::new(2);
            let opened = std::thread::scope(|scope| {
                scope.spawn(|| {
                    begin.wait();
                    others(base.path(), &conditions("new"), PYTHON);
                });
                begin.wait();
                CheckpointDirectory::open(base.path(), &conditions("old"), PYTHON)
            });
            match opened {
                Ok((directory, _)) => directory.write(&Manifest::default()).is_err(),
                Err(NotOpened::Busy) => false,
                Err(NotOpened::Failed(_)) => true,
            }
        });
        assert_eq!(lost.count(), 0, "of 400");
    }
}
