//! Directories for temporary files that code can write: they are removed however deep and locked it has left them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{Permissions, remove_dir, set_permissions, symlink_metadata};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use tempfile::TempDir;

/// A directory that is removed with the value.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    /// A new directory whose name begins so, by its real path.
    pub(crate) fn new(prefix: &str) -> io::Result<Self> {
        let mut directory = Self::from(tempfile::Builder::new().prefix(prefix).tempdir()?);
        directory.0 = directory.0.canonicalize()?;
        Ok(directory)
    }

    /// The directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it. Blocks.
    ///
    /// # Errors
    /// As for [`remove_tree`].
    pub(crate) fn close(mut self) -> io::Result<()> {
        remove_tree(&std::mem::take(&mut self.0))
    }
}

impl From<TempDir> for TemporaryDirectory {
    fn from(directory: TempDir) -> Self {
        Self(directory.keep())
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if self.0 != Path::new("")
            && let Err(error) = remove_tree(&self.0)
        {
            tracing::debug!(%error, "could not remove a directory for temporary files");
        }
    }
}

/// Removes a directory and all that is in it. No link is followed. Blocks.
///
/// Directories are moved up before their own turn comes: to descend takes a descriptor and a part of the stack for each
/// level, and [`std::fs::remove_dir_all`] ends the process where code has made some thousands of them.
///
/// # Errors
/// As for [`std::fs::remove_dir_all`].
pub(crate) fn remove_tree(directory: &Path) -> io::Result<()> {
    if !symlink_metadata(directory)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    set_permissions(directory, Permissions::from_mode(0o700))?;
    empty(&Dir::open_ambient_dir(directory, cap_std::ambient_authority())?)?;
    remove_dir(directory)
}

/// As [`remove_tree`], of the directory `name` in `directory`.
///
/// # Errors
/// As there.
pub(crate) fn remove_tree_in(directory: &Dir, name: &str) -> io::Result<()> {
    if !directory.symlink_metadata(name)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let open = cap_std::fs::Permissions::from_std(Permissions::from_mode(0o700));
    directory.set_permissions(name, open)?;
    empty(&directory.open_dir(name)?)?;
    directory.remove_dir(name)
}

/// Removes all that is in a directory.
fn empty(top: &Dir) -> io::Result<()> {
    let mut waiting = BTreeSet::new();
    take_apart(top, top, &mut waiting)?;
    while let Some(name) = waiting.pop_first() {
        take_apart(&top.open_dir(&name)?, top, &mut waiting)?;
        top.remove_dir(&name)?;
    }
    Ok(())
}

/// Removes the files of `directory`, and moves its directories to `top`, by names that are added to `waiting`.
fn take_apart(directory: &Dir, top: &Dir, waiting: &mut BTreeSet<OsString>) -> io::Result<()> {
    for entry in directory.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        if !entry.file_type()?.is_dir() {
            directory.remove_file(name)?;
            continue;
        }
        if waiting.contains(&name) {
            continue;
        }
        // What is locked can be neither read nor moved.
        let open = cap_std::fs::Permissions::from_std(Permissions::from_mode(0o700));
        directory.set_permissions(&name, open)?;
        let moved = OsString::from(uuid::Uuid::new_v4().to_string());
        directory.rename(name, top, &moved)?;
        waiting.insert(moved);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_deep_or_locked_is_removed_and_no_link_is_followed() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "").unwrap();
        let directory = TemporaryDirectory::from(tempfile::tempdir().unwrap());
        let path = directory.path().to_owned();
        symlink(outside.path(), path.join("link")).unwrap();
        std::fs::create_dir_all(path.join("locked/inner")).unwrap();
        std::fs::write(path.join("locked/inner/file"), "").unwrap();
        for locked in ["locked/inner", "locked"] {
            set_permissions(path.join(locked), Permissions::from_mode(0o000)).unwrap();
        }
        // Deeper than any path is long.
        let mut level = Dir::open_ambient_dir(&path, cap_std::ambient_authority()).unwrap();
        for _ in 0..20_000 {
            level.create_dir("d").unwrap();
            level = level.open_dir("d").unwrap();
        }
        // A thread of tests has as little stack as one that serves a session.
        directory.close().unwrap();
        assert!(!path.exists());
        assert!(outside.path().join("kept").exists());
    }
}
