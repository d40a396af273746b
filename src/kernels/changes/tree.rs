//! A look at a directory tree that code may have made: bounded, and without following a link.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, Metadata, MetadataExt as _, PermissionsExt as _};
use serde::{Deserialize, Serialize};

use crate::ground::files::inside;

/// The most entries of a tree that are looked at. Code can make any number.
pub(super) const MOST_ENTRIES: usize = 100_000;
/// The most levels. Each takes a descriptor.
const MOST_LEVELS: usize = 64;
/// The permissions of a file, without the set-user-ID bit and others.
const PERMISSIONS: u32 = 0o777;

/// The permissions by which the owner adds to a directory.
const OWNER_MAY_ADD: u32 = 0o300;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TreeKind {
    File,
    Directory,
    Link,
    /// A device, a FIFO or a socket.
    Special,
}

/// The state of an entry. Two states of a file are the same only if it has not been changed in between: code cannot set the time
/// of the last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TreeStamp {
    pub(super) kind: TreeKind,
    pub(super) mode: u32,
    pub(super) bytes: u64,
    inode: u64,
    changed: (i64, i64),
}

impl TreeStamp {
    pub(super) fn of(found: &Metadata) -> Self {
        let kind = match found.file_type() {
            kind if kind.is_file() => TreeKind::File,
            kind if kind.is_dir() => TreeKind::Directory,
            kind if kind.is_symlink() => TreeKind::Link,
            _ => TreeKind::Special,
        };
        let mode = if kind == TreeKind::Link { 0 } else { found.permissions().mode() & PERMISSIONS };
        // A directory changes with what is in it, which has stamps of its own.
        if kind == TreeKind::Directory {
            return Self { kind, mode, bytes: 0, inode: 0, changed: (0, 0) };
        }
        let changed = (found.ctime(), found.ctime_nsec());
        Self { kind, mode, bytes: found.len(), inode: found.ino(), changed }
    }

    /// Whether nobody can add to this directory.
    pub(super) fn is_locked_directory(&self) -> bool {
        self.kind == TreeKind::Directory && self.mode & OWNER_MAY_ADD != OWNER_MAY_ADD
    }

    /// A digest that also distinguishes kinds and modes.
    pub(super) fn digest_with(&self, content: &str) -> String {
        format!("{:?} {:o} {content}", self.kind, self.mode)
    }

    /// That of `path` below `root`; `None` if nothing is there.
    pub(super) fn find(root: &Path, path: &Path) -> io::Result<Option<Self>> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        match inside::directory(root, parent).and_then(|parent| parent.symlink_metadata(name)) {
            Ok(found) => Ok(Some(Self::of(&found))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a path has no entry, or one of another kind than expected: also if that has changed since it was looked at.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput
    )
}

/// The entries of a tree, but for its root; parents first.
pub(super) struct TreeEntries {
    pub(super) entries: BTreeMap<PathBuf, TreeStamp>,
    /// Whether there are more, or some cannot be read.
    pub(super) is_cut: bool,
}

impl TreeEntries {
    /// Looks at the tree in `root`, but not at what is left out.
    ///
    /// # Errors
    /// The root cannot be listed.
    pub(super) fn read(root: &Path, is_left_out: &dyn Fn(&Path) -> bool) -> io::Result<Self> {
        let mut tree = Self { entries: BTreeMap::new(), is_cut: false };
        tree.add(&inside::directory(root, Path::new(""))?, Path::new(""), MOST_LEVELS, is_left_out)?;
        Ok(tree)
    }

    fn add(
        &mut self,
        directory: &Dir,
        at: &Path,
        levels: usize,
        is_left_out: &dyn Fn(&Path) -> bool,
    ) -> io::Result<()> {
        for entry in directory.entries()? {
            let name = entry?.file_name();
            let path = at.join(&name);
            if is_left_out(&path) {
                continue;
            }
            // Records are texts.
            if name.to_str().is_none() {
                self.is_cut = true;
                continue;
            }
            if self.entries.len() >= MOST_ENTRIES {
                self.is_cut = true;
                return Ok(());
            }
            // Code may have removed it since it was listed.
            let Ok(found) = directory.symlink_metadata(&name) else { continue };
            let stamp = TreeStamp::of(&found);
            let is_directory = stamp.kind == TreeKind::Directory;
            self.entries.insert(path.clone(), stamp);
            if is_directory {
                let below = (levels > 0).then(|| inside::in_directory(directory, &name));
                let added = below.map(|below| self.add(&below?, &path, levels - 1, is_left_out));
                self.is_cut |= !matches!(added, Some(Ok(())));
            }
        }
        Ok(())
    }
}
