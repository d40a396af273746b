//! The copies of a workspace that are kept because changes wait in them, or their session goes on.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{
    AppliedChanges, ApplyDoubts, BASE, COPIES, CopyAudit, FileChange, FileChanges, SESSION, WorkspaceCopy,
    lines,
};
use crate::ground::files::{if_there, remove_tree, small};

/// The most copies of ended sessions that are kept, the newest ones.
const MOST_COPIES: usize = 16;
/// The time that they are kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The copies of a workspace.
#[derive(Debug)]
pub struct ChangedCopies(PathBuf);

/// A copy of a workspace in which changes wait.
#[derive(Debug)]
pub struct ChangedCopy(WorkspaceCopy);

/// Why there is no copy with this id.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoChangedCopy {
    /// No id begins so, or several do.
    #[error(
        "find the changes of `{id}`: {why}\nhint: `ipybox changes` lists the sessions of the workspace that have any"
    )]
    Unknown {
        /// The id.
        id: String,
        /// Why.
        why: &'static str,
    },
    /// The copies cannot be listed.
    #[error("read the copies of the workspace")]
    Read(#[from] io::Error),
}

/// A copy, as `ipybox changes` lists it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct CopySummary {
    /// The id of the copy.
    pub id: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Whether its session goes on.
    pub is_live: bool,
    /// The number of changes that wait.
    pub changes: usize,
}

impl ChangedCopies {
    /// Those of the workspace with this state directory.
    #[must_use]
    pub fn of(state_dir: &Path) -> Self {
        Self(state_dir.join(COPIES))
    }

    /// All copies, the oldest first.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn list(&self) -> io::Result<Vec<CopySummary>> {
        let mut found = Vec::new();
        for (id, directory) in directories(&self.0)? {
            let copy = ChangedCopy::at(directory);
            let base = copy.0.base()?;
            let changes = copy.0.changes()?.changes.len();
            let is_live = is_live(&copy.0.directory)?;
            found.push(CopySummary { id, created: base.created, is_live, changes });
        }
        found.sort_by_key(|copy| copy.created);
        Ok(found)
    }

    /// The copy whose id begins so.
    ///
    /// # Errors
    /// See [`NoChangedCopy`].
    pub fn find(&self, id: &str) -> Result<ChangedCopy, NoChangedCopy> {
        let unknown = |why| Err(NoChangedCopy::Unknown { id: id.to_owned(), why });
        let mut found = directories(&self.0)?.into_iter().filter(|(name, _)| name.starts_with(id));
        match (found.next(), found.next()) {
            (Some((_, directory)), None) => Ok(ChangedCopy::at(directory)),
            (Some(_), Some(_)) => unknown("several ids begin so"),
            (None, _) => unknown("no copy of the workspace has this id"),
        }
    }
}

impl ChangedCopy {
    fn at(directory: PathBuf) -> Self {
        Self(WorkspaceCopy { directory, _session: None })
    }

    /// The id of the copy.
    #[must_use]
    pub fn id(&self) -> String {
        self.0.id()
    }

    /// The changes in `paths`, all for none, which are shown to a person now: they can be applied as they are now.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn show(&self, paths: &[PathBuf]) -> io::Result<FileChanges> {
        self.0.show(paths)
    }

    /// A change as a unified diff; a sentence where the contents are no texts, or too long.
    #[must_use]
    pub fn diff(&self, change: &FileChange) -> String {
        match self.0.base() {
            Ok(base) => lines::diff(&base.workspace, &self.0.files(), change),
            Err(error) => format!("{error}\n"),
        }
    }

    /// Applies the changes in `paths`, all for none, as they have been shown.
    ///
    /// # Errors
    /// They cannot be read, or what is done cannot be recorded.
    pub fn apply(&self, paths: &[PathBuf], doubts: ApplyDoubts) -> io::Result<AppliedChanges> {
        let applied = self.0.apply(paths, doubts)?;
        self.remove_if_done()?;
        Ok(applied)
    }

    /// Discards the changes in `paths`; all for none.
    ///
    /// # Errors
    /// They cannot be read, or what is done cannot be recorded.
    pub fn discard(&self, paths: &[PathBuf]) -> io::Result<AppliedChanges> {
        let discarded = self.0.discard(paths)?;
        self.remove_if_done()?;
        Ok(discarded)
    }

    /// The changes that wait, which nobody is shown.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn changes(&self) -> io::Result<FileChanges> {
        self.0.changes()
    }

    /// Applies changes that somebody has seen: by path, with their digests.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(crate) fn apply_seen(&self, seen: &BTreeMap<PathBuf, String>) -> io::Result<AppliedChanges> {
        let applied = self.0.apply_seen(seen)?;
        self.remove_if_done()?;
        Ok(applied)
    }

    /// Discards changes that somebody has seen: by path, with their digests.
    ///
    /// # Errors
    /// As [`discard`](Self::discard).
    pub(crate) fn discard_seen(&self, seen: &BTreeMap<PathBuf, String>) -> io::Result<AppliedChanges> {
        let discarded = self.0.discard_seen(seen)?;
        self.remove_if_done()?;
        Ok(discarded)
    }

    /// The workspace, and the audit log of the session, if it keeps one.
    ///
    /// # Errors
    /// The record of the copy cannot be read.
    pub fn audit(&self) -> io::Result<(PathBuf, Option<CopyAudit>)> {
        self.0.base().map(|base| (base.workspace, base.audit))
    }

    fn remove_if_done(&self) -> io::Result<()> {
        let found = self.0.changes()?;
        if found.changes.is_empty() && !found.is_cut && !is_live(&self.0.directory)? {
            remove_tree(&self.0.directory)?;
        }
        Ok(())
    }
}

/// The directories of copies, by their ids.
fn directories(copies: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let Some(entries) = if_there(copies.read_dir())? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        // One that is not complete is being made.
        if entry.path().join(BASE).is_file()
            && let Ok(id) = entry.file_name().into_string()
        {
            found.push((id, entry.path()));
        }
    }
    Ok(found)
}

/// Whether the session of a copy goes on.
fn is_live(directory: &Path) -> io::Result<bool> {
    match small::create(&directory.join(SESSION))?.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes copies of ended sessions in which nothing waits, and those that are too many or too old. A failure is no reason not to
/// start.
pub(super) fn prune(copies: &Path) {
    if let Err(error) = try_to_prune(copies) {
        tracing::warn!(%error, "old copies of the workspace are not removed");
    }
}

fn try_to_prune(copies: &Path) -> io::Result<()> {
    let mut ended = Vec::new();
    for entry in copies.read_dir()? {
        let directory = entry?.path();
        if !directory.is_dir() || is_live(&directory)? {
            continue;
        }
        let copy = ChangedCopy::at(directory);
        // One without a record was never used.
        let Ok(base) = copy.0.base() else {
            remove_tree(&copy.0.directory)?;
            continue;
        };
        if let Err(error) = copy.remove_if_done() {
            tracing::warn!(%error, copy = copy.id(), "an old copy of the workspace cannot be compared");
        }
        ended.push((base.created, copy.0.directory));
    }
    ended.sort();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let many = ended.len().saturating_sub(MOST_COPIES);
    for (index, (created, directory)) in ended.into_iter().enumerate() {
        let is_old = now.saturating_sub(Duration::from_secs(created)) > KEPT;
        if (index < many || is_old) && directory.exists() {
            tracing::warn!(copy = %directory.display(), "an old copy of the workspace is removed, with changes that waited");
            remove_tree(&directory)?;
        }
    }
    Ok(())
}
