//! Copies of the workspace that code writes in its place, and the changes that wait in them until a person applies or discards
//! them.
//!
//! ```text
//! workspace ─ copying ─→ files, base.json ─ code writes ─→ compare ─→ changes ─ apply ─→ workspace
//!                                                                              └ discard ─→ files
//! ```
//!
//! It knows nothing of kernels. Code that has been in a copy is hostile: nothing in it is followed, believed or waited for.

mod apply;
mod base;
mod compare;
mod copying;
mod lines;
mod places;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub use self::apply::{AppliedChanges, ApplyDoubts, RefusedChange};
pub use self::base::CopyAudit;
pub(crate) use self::base::WritableParts;
use self::base::{CopyBase, ShownChanges};
pub use self::compare::{ChangeMark, FileChange, FileChangeKind, FileChanges};
pub(crate) use self::copying::CopyError;
pub use self::places::{ChangedCopies, ChangedCopy, CopySummary, NoChangedCopy};
use crate::ground::files::{StateFile, create_private_directory, lock, remove_tree};

/// The directory in the state of a workspace that has its copies.
pub(crate) const COPIES: &str = "changes";

/// The entries of the directory of a copy: its files, what it began with, what has been shown, and the lock of its session.
const FILES: &str = "files";
const BASE: &str = "base.json";
const SHOWN: &str = "shown.json";
const SESSION: &str = "session.lock";

/// The time to wait for another process that applies changes.
const TURN: Duration = Duration::from_secs(10);

/// A copy of a workspace. Its methods block.
#[derive(Debug)]
pub(crate) struct WorkspaceCopy {
    directory: PathBuf,
    /// Held by the session that uses it.
    _session: Option<File>,
}

impl WorkspaceCopy {
    /// Makes a copy of what code may write of `workspace`, in the state directory of the workspace.
    ///
    /// # Errors
    /// See [`CopyError`]; nothing is left.
    pub(crate) fn make(
        state_dir: &Path,
        workspace: &Path,
        parts: WritableParts,
        audit: Option<CopyAudit>,
    ) -> Result<Self, CopyError> {
        Self::make_in(&state_dir.join(COPIES), |files| {
            let entries = copying::copy(workspace, files, &parts)?;
            Ok(CopyBase { workspace: workspace.to_owned(), created: 0, entries, parts, audit })
        })
    }

    /// Makes a copy of this copy, in the same state directory. What differs from the workspace here differs there too.
    ///
    /// # Errors
    /// See [`CopyError`]; nothing is left.
    pub(crate) fn copy(&self, state_dir: &Path) -> Result<Self, CopyError> {
        let base = self.base().map_err(CopyError::Place)?;
        Self::make_in(&state_dir.join(COPIES), |files| {
            let entries = copying::copy(&self.files(), files, &base.parts)?;
            Ok(base.passed_on(entries))
        })
    }

    /// Makes a copy below `copies` whose files `fill` makes.
    fn make_in(
        copies: &Path,
        fill: impl FnOnce(&Path) -> Result<CopyBase, CopyError>,
    ) -> Result<Self, CopyError> {
        create_private_directory(copies).map_err(CopyError::Place)?;
        let directory = copies.join(&uuid::Uuid::new_v4().simple().to_string()[..ID_CHARS]);
        let session = Self::begin(copies, &directory).map_err(CopyError::Place)?;
        let made = Self::fill(&directory, session, fill);
        if made.is_err()
            && let Err(error) = remove_tree(&directory)
        {
            tracing::warn!(%error, "an unfinished copy of the workspace is left");
        }
        made
    }

    /// Makes the directory of a copy, and locks it for a session. Others that begin would take it for an old one without a lock.
    fn begin(copies: &Path, directory: &Path) -> io::Result<File> {
        let _turn = lock(&copies.with_extension("lock"), TURN)?;
        places::prune(copies);
        create_private_directory(&directory.join(FILES))?;
        lock(&directory.join(SESSION), Duration::ZERO)
    }

    fn fill(
        directory: &Path,
        session: File,
        fill: impl FnOnce(&Path) -> Result<CopyBase, CopyError>,
    ) -> Result<Self, CopyError> {
        let mut base = fill(&directory.join(FILES))?;
        base.created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let copy = Self { directory: directory.to_owned(), _session: Some(session) };
        copy.document(BASE).put(base).map_err(CopyError::Place)?;
        Ok(copy)
    }

    /// The name by which users refer to it.
    pub(crate) fn id(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The directory with the files.
    pub(crate) fn files(&self) -> PathBuf {
        self.directory.join(FILES)
    }

    /// Has code write these parts from now on.
    ///
    /// # Errors
    /// The record cannot be changed.
    pub(crate) fn renew(&self, parts: WritableParts) -> io::Result<()> {
        self.document(BASE).change(|base: &mut CopyBase| base.parts = parts)
    }

    /// The changes that wait.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub(crate) fn changes(&self) -> io::Result<FileChanges> {
        compare::compare(&self.base()?, &self.files())
    }

    /// The changes that wait, of which a person sees those in `paths` now.
    fn show(&self, paths: &[PathBuf]) -> io::Result<FileChanges> {
        let mut found = self.changes()?;
        found.changes.retain(|change| is_among(change, paths));
        let digests = found.changes.iter().map(|change| (change.path.clone(), change.digest.clone()));
        self.document(SHOWN).change(|shown: &mut ShownChanges| shown.digests.extend(digests))?;
        Ok(found)
    }

    /// Applies the changes in `paths`; all for none.
    fn apply(&self, paths: &[PathBuf], doubts: ApplyDoubts) -> io::Result<AppliedChanges> {
        self.settle(
            |change| is_among(change, paths),
            |base, files, changes| {
                let shown = self.document(SHOWN).read()?;
                Ok(apply::apply(base, files, changes, &shown, doubts))
            },
        )
    }

    /// Discards the changes in `paths`; all for none.
    fn discard(&self, paths: &[PathBuf]) -> io::Result<AppliedChanges> {
        self.settle(
            |change| is_among(change, paths),
            |base, files, changes| Ok(apply::discard(base, files, changes)),
        )
    }

    /// Applies changes that somebody has seen: by path, with their digests.
    fn apply_seen(&self, seen: &BTreeMap<PathBuf, String>) -> io::Result<AppliedChanges> {
        let shown = ShownChanges { digests: seen.clone() };
        let applied = self.settle(
            |change| seen.contains_key(&change.path),
            |base, files, changes| Ok(apply::apply(base, files, changes, &shown, ApplyDoubts::Refuse)),
        );
        applied.map(|applied| applied.with_missing(seen))
    }

    /// Discards changes that somebody has seen: by path, with their digests.
    fn discard_seen(&self, seen: &BTreeMap<PathBuf, String>) -> io::Result<AppliedChanges> {
        let discarded = self.settle(
            |change| seen.get(&change.path) == Some(&change.digest),
            |base, files, changes| Ok(apply::discard(base, files, changes)),
        );
        discarded.map(|discarded| discarded.with_missing(seen))
    }

    /// Changes copy or workspace, one process at a time. The record is written even if something fails on the way.
    fn settle(
        &self,
        is_meant: impl Fn(&FileChange) -> bool,
        settle: impl FnOnce(&mut CopyBase, &Path, &[FileChange]) -> io::Result<AppliedChanges>,
    ) -> io::Result<AppliedChanges> {
        let file = self.document(BASE);
        let _turn = file.turn(TURN)?;
        let mut base = self.base()?;
        let files = self.files();
        let mut found = compare::compare(&base, &files)?;
        found.changes.retain(is_meant);
        let settled = settle(&mut base, &files, &found.changes);
        file.put(base)?;
        settled.map(|settled| settled.with_digests(&found.changes))
    }

    /// Ends the use by its session: the copy is removed if nothing in it waits. Returns how many changes wait.
    pub(crate) fn close(self) -> io::Result<usize> {
        let waiting =
            self.changes().map(|found| if found.is_cut { usize::MAX } else { found.changes.len() })?;
        if waiting == 0 {
            remove_tree(&self.directory)?;
        }
        Ok(waiting)
    }

    fn base(&self) -> io::Result<CopyBase> {
        self.document(BASE).find()?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn document(&self, name: &str) -> StateFile {
        StateFile::new(self.directory.join(name))
    }
}

/// The length of an id.
const ID_CHARS: usize = 6;

/// Whether a change is at one of the paths, or below; all are for none.
fn is_among(change: &FileChange, paths: &[PathBuf]) -> bool {
    paths.is_empty() || paths.iter().any(|path| change.path.starts_with(path))
}
