//! Writes changes of a copy to the workspace, or takes them back in the copy: each entry as a whole, and through no link.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use serde::Serialize;

use super::base::{BYTECODE, BaseEntry, CopyBase, ShownChanges};
use super::compare::{ChangeMark, FileChange, FileChangeKind, digest_of, digest_of_link, target};
use super::copying::set_mode;
use super::tree::{TreeKind, TreeStamp, is_gone};
use crate::ground::files::replacement::{Replacement, sweep};
use crate::ground::files::{inside, remove_tree_in};

/// The permissions of a file until it has its own.
const UNFINISHED: u32 = 0o600;

/// The result of applying or discarding changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AppliedChanges {
    /// The paths that were done.
    pub done: Vec<PathBuf>,
    /// The paths that were not, and why.
    pub refused: Vec<RefusedChange>,
    /// The digests of what was done.
    #[serde(skip)]
    pub digests: BTreeMap<PathBuf, String>,
}

impl AppliedChanges {
    /// The same with the digests of what was done, among these changes.
    pub(super) fn with_digests(mut self, changes: &[FileChange]) -> Self {
        let done: BTreeSet<&PathBuf> = self.done.iter().collect();
        let done = changes.iter().filter(|change| done.contains(&change.path));
        self.digests = done.map(|change| (change.path.clone(), change.digest.clone())).collect();
        self
    }

    /// The same with a refusal of each change that was meant and is no longer there.
    pub(super) fn with_missing(mut self, seen: &BTreeMap<PathBuf, String>) -> Self {
        let known: BTreeSet<PathBuf> =
            self.done.iter().chain(self.refused.iter().map(|one| &one.path)).cloned().collect();
        let missing = seen.keys().filter(|path| !known.contains(*path));
        let why = "code has changed it since it was shown: look at it again";
        self.refused.extend(missing.map(|path| RefusedChange { path: path.clone(), why: why.to_owned() }));
        self
    }
}

/// A change that was not applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RefusedChange {
    /// Its path.
    pub path: PathBuf,
    /// Why, as a sentence without its subject.
    pub why: String,
}

/// The treatment of doubtful changes when changes are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApplyDoubts {
    /// Conflicts, and links that may lead out of the workspace, are refused.
    Refuse,
    /// They are applied as they are.
    Override,
}

/// Applies changes, in this order: parents before what is in them, and deletions last, the deepest first.
pub(super) fn apply(
    base: &mut CopyBase,
    files: &Path,
    changes: &[FileChange],
    shown: &ShownChanges,
    doubts: ApplyDoubts,
) -> AppliedChanges {
    let mut applied = AppliedChanges::default();
    sweep_places(&base.workspace, changes);
    let (deleted, others): (Vec<&FileChange>, Vec<&FileChange>) =
        changes.iter().partition(|change| change.kind == FileChangeKind::Deleted);
    // What was a directory, and is something else now, must be empty first.
    let (blocked, mut free): (Vec<_>, Vec<_>) = others.into_iter().partition(|change| {
        let is_directory = change.stamp.as_ref().is_some_and(|stamp| stamp.kind == TreeKind::Directory);
        !is_directory && deleted.iter().any(|gone| gone.path.starts_with(&change.path))
    });
    // A directory that is locked gets its mode after what is in it.
    free.sort_by_key(|change| change.stamp.as_ref().is_some_and(TreeStamp::is_locked_directory));
    for change in free.into_iter().chain(deleted.into_iter().rev()).chain(blocked) {
        let done = match refusal(change, shown, doubts) {
            Some(why) => Err(why.to_owned()),
            None => apply_one(base, files, change).map_err(|error| error.to_string()),
        };
        note(&mut applied, &change.path, done);
    }
    applied
}

/// Takes changes back: the copy has the state of the workspace again.
pub(super) fn discard(base: &mut CopyBase, files: &Path, changes: &[FileChange]) -> AppliedChanges {
    let mut discarded = AppliedChanges::default();
    let (added, others): (Vec<&FileChange>, Vec<&FileChange>) =
        changes.iter().partition(|change| change.kind == FileChangeKind::Added);
    // What code has put into the place of a directory is in the way of what was in it.
    for change in added.into_iter().rev().chain(others) {
        let done = discard_one(base, files, &change.path).map_err(|error| error.to_string());
        note(&mut discarded, &change.path, done);
    }
    discarded
}

/// Removes what an earlier process has left that died while it wrote.
fn sweep_places(workspace: &Path, changes: &[FileChange]) {
    let parents: BTreeSet<&Path> = changes.iter().filter_map(|change| change.path.parent()).collect();
    // A missing one has nothing.
    parents
        .into_iter()
        .filter_map(|parent| inside::directory(workspace, parent).ok())
        .for_each(|place| sweep(&place));
}

fn note(results: &mut AppliedChanges, path: &Path, done: Result<(), String>) {
    match done {
        Ok(()) => results.done.push(path.to_owned()),
        Err(why) => results.refused.push(RefusedChange { path: path.to_owned(), why }),
    }
}

fn refusal(change: &FileChange, shown: &ShownChanges, doubts: ApplyDoubts) -> Option<&'static str> {
    let has = |mark: &ChangeMark| change.marks.contains(mark);
    match shown.digests.get(&change.path) {
        None => return Some("it has not been shown yet: look at it first"),
        Some(digest) if *digest != change.digest => {
            return Some("code has changed it since it was shown: look at it again");
        }
        Some(_) => {}
    }
    if has(&ChangeMark::Special) {
        return Some("it is a device, a FIFO or a socket");
    }
    if doubts == ApplyDoubts::Override {
        None
    } else if has(&ChangeMark::Conflict) {
        Some("the workspace's has changed since the copy was made")
    } else if has(&ChangeMark::LeadsOut) {
        Some("the link may lead out of the workspace")
    } else {
        None
    }
}

fn apply_one(base: &mut CopyBase, files: &Path, change: &FileChange) -> io::Result<()> {
    let path = &change.path;
    match &change.stamp {
        Some(stamp) => {
            put(files, &base.workspace, path, stamp, Some(change))?;
            if let Some(original) = TreeStamp::find(&base.workspace, path)? {
                base.entries.insert(path.clone(), BaseEntry { original, copy: None });
            }
        }
        None => {
            remove(&base.workspace, path, remove_empty)?;
            base.entries.remove(path);
        }
    }
    Ok(())
}

fn discard_one(base: &mut CopyBase, files: &Path, path: &Path) -> io::Result<()> {
    match TreeStamp::find(&base.workspace, path)? {
        Some(original) => {
            put(&base.workspace, files, path, &original, None)?;
            base.entries.insert(path.to_owned(), BaseEntry { original, copy: None });
        }
        None => {
            remove(files, path, |parent, name| remove_tree_in(parent, &name.to_string_lossy()))?;
            base.entries.remove(path);
        }
    }
    Ok(())
}

/// Puts the entry `path` of one tree, which has this state, into another one. If it is a `change`, it must be as it was shown.
fn put(
    from: &Path,
    to: &Path,
    path: &Path,
    stamp: &TreeStamp,
    change: Option<&FileChange>,
) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = inside::make_directory(to, path.parent().unwrap_or(Path::new("")))?;
    let place = Dir::from_std_file(parent.into());
    match stamp.kind {
        TreeKind::File => {
            let mut fresh = Replacement::file(&place, UNFINISHED)?;
            let digest = digest_of(inside::open_any(from, path)?, fresh.as_file())?;
            check(change, &digest)?;
            set_mode(fresh.as_file().try_clone()?, stamp.mode)?;
            make_way(&place, name)?;
            fresh.put_durably(Path::new(name)).map(drop)
        }
        TreeKind::Link => {
            // A link has a name from the start: it gets one in a directory of its own.
            let around = Replacement::directory(&place)?;
            let link = Path::new(around.name()).join("link");
            let target = target(from, path)?;
            check(change, &digest_of_link(&target))?;
            place.symlink_contents(target, &link)?;
            make_way(&place, name)?;
            place.rename(&link, &place, name)
        }
        TreeKind::Directory => {
            let is_there = place.symlink_metadata(name).is_ok_and(|found| found.is_dir());
            if !is_there {
                let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
                Replacement::directory(&place)?.exchange(name)?;
            }
            set_mode(inside::in_directory(&place, name)?.into_std_file(), stamp.mode)
        }
        TreeKind::Special => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Removes an empty directory in the place of a file.
fn make_way(place: &Dir, name: &OsStr) -> io::Result<()> {
    if place.symlink_metadata(name).is_ok_and(|found| found.is_dir()) {
        remove_empty(place, name)
    } else {
        Ok(())
    }
}

/// Removes a directory that has nothing but bytecode.
fn remove_empty(parent: &Dir, name: &OsStr) -> io::Result<()> {
    // A locked one can be removed if it is empty.
    if let Ok(directory) = inside::in_directory(parent, name)
        && directory.symlink_metadata(BYTECODE).is_ok_and(|found| found.is_dir())
    {
        remove_tree_in(&directory, BYTECODE)?;
    }
    parent.remove_dir(name)
}

fn check(change: Option<&FileChange>, digest: &str) -> io::Result<()> {
    if change.is_none_or(|change| change.is_of(digest)) {
        return Ok(());
    }
    Err(io::Error::other("code changes it at this moment: look at it again"))
}

fn remove(
    root: &Path,
    path: &Path,
    remove_directory: impl FnOnce(&Dir, &OsStr) -> io::Result<()>,
) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let removed = inside::directory(root, path.parent().unwrap_or(Path::new(""))).and_then(|parent| {
        if parent.symlink_metadata(name)?.is_dir() {
            remove_directory(&parent, name)
        } else {
            parent.remove_file(name)
        }
    });
    match removed {
        // It is gone already, with its directory.
        Err(error) if is_gone(&error) => Ok(()),
        removed => removed,
    }
}
