//! Makes a copy of the workspace, within limits. Where the file system can, files share their blocks until one is changed.

use std::collections::BTreeMap;
use std::fs::{File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::{
    Dir, DirBuilder, DirBuilderExt as _, Metadata, OpenOptions, OpenOptionsExt as _, Permissions,
    PermissionsExt as _,
};

use super::base::{BaseEntry, WritableParts};
use super::tree::{MOST_ENTRIES, TreeKind, TreeStamp};
use crate::ground::files::inside;

/// The most bytes of a copy.
const MOST_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// The most levels. Each takes two descriptors.
const MOST_LEVELS: usize = 60;

/// Why there is no copy of the workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CopyError {
    /// It is too large.
    #[error(
        "copy the workspace: it has more than {what}\n\
         hint: use a smaller workspace, or have the sandbox's policy hide (`denyRead`) or keep (`denyWrite`) what code need not write"
    )]
    TooLarge {
        /// The limit.
        what: String,
    },
    /// A file cannot be copied.
    #[error("copy `{}` of the workspace", path.display())]
    File {
        /// Its path in the workspace.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no place for it.
    #[error("make a copy of the workspace")]
    Place(#[source] io::Error),
}

/// Copies what code may write of `workspace` into the empty directory `to`.
pub(super) fn copy(
    workspace: &Path,
    to: &Path,
    parts: &WritableParts,
) -> Result<BTreeMap<PathBuf, BaseEntry>, CopyError> {
    let open = |path| inside::directory(path, Path::new("")).map_err(CopyError::Place);
    let mut copying = Copying { parts, entries: BTreeMap::new(), seen: 0, bytes: 0 };
    copying.directory(&open(workspace)?, &open(to)?, Path::new(""), MOST_LEVELS)?;
    Ok(copying.entries)
}

struct Copying<'a> {
    parts: &'a WritableParts,
    entries: BTreeMap<PathBuf, BaseEntry>,
    seen: usize,
    bytes: u64,
}

impl Copying<'_> {
    fn directory(&mut self, from: &Dir, to: &Dir, at: &Path, levels: usize) -> Result<(), CopyError> {
        let failed = |source| CopyError::File { path: at.to_owned(), source };
        for entry in from.entries().map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let path = at.join(&name);
            if name.to_str().is_none() {
                tracing::warn!(path = %path.display(), "a name that is not UTF-8 is not in the copy of the workspace");
                continue;
            }
            self.seen += 1;
            if self.seen > MOST_ENTRIES {
                return Err(CopyError::TooLarge { what: format!("{MOST_ENTRIES} files") });
            }
            let failed = |source| CopyError::File { path: path.clone(), source };
            let found = match from.symlink_metadata(&name) {
                // A user works here too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(failed)?,
            };
            if found.is_dir() {
                self.below(from, to, &path, &found, levels)?;
            } else if self.parts.has(&path) {
                self.bytes += if found.is_file() { found.len() } else { 0 };
                if self.bytes > MOST_BYTES {
                    return Err(CopyError::TooLarge { what: format!("{} GiB", MOST_BYTES >> 30) });
                }
                match copy_one(from, to, &path, &found) {
                    Ok(Some(copy)) => self.common(path, &found, copy),
                    Ok(None) => {}
                    Err(error) if is_passed_over(&error, &path) => {}
                    Err(source) => return Err(CopyError::File { path, source }),
                }
            }
        }
        Ok(())
    }

    fn below(
        &mut self,
        from: &Dir,
        to: &Dir,
        path: &Path,
        found: &Metadata,
        levels: usize,
    ) -> Result<(), CopyError> {
        if !self.parts.has_any_of(path) {
            return Ok(());
        }
        if levels == 0 {
            return Err(CopyError::TooLarge { what: format!("{MOST_LEVELS} levels of directories") });
        }
        let failed = |source| CopyError::File { path: path.to_owned(), source };
        let name = path.file_name().unwrap_or_default();
        let from = match inside::in_directory(from, name) {
            Err(error) if is_passed_over(&error, path) => return Ok(()),
            from => from.map_err(failed)?,
        };
        to.create_dir_with(name, DirBuilder::new().mode(0o700)).map_err(failed)?;
        let made = inside::in_directory(to, name).map_err(failed)?;
        self.directory(&from, &made, path, levels - 1)?;
        let stamp = TreeStamp::of(found);
        set_mode(made.into_std_file(), stamp.mode).map_err(failed)?;
        if self.parts.has(path) {
            self.entries.insert(path.to_owned(), BaseEntry { copy: Some(stamp.clone()), original: stamp });
        }
        Ok(())
    }

    fn common(&mut self, path: PathBuf, found: &Metadata, copy: TreeStamp) {
        let original = TreeStamp::of(found);
        self.entries.insert(path, BaseEntry { original, copy: Some(copy) });
    }
}

/// Whether code could not read it either, or a user has removed it since it was listed.
fn is_passed_over(error: &io::Error, path: &Path) -> bool {
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    if is_denied {
        tracing::warn!(path = %path.display(), "a file that cannot be read is not in the copy of the workspace");
    }
    is_denied || error.kind() == io::ErrorKind::NotFound
}

/// Copies a file or a link; nothing else.
fn copy_one(from: &Dir, to: &Dir, path: &Path, found: &Metadata) -> io::Result<Option<TreeStamp>> {
    let name = path.file_name().unwrap_or_default();
    let stamp = TreeStamp::of(found);
    match stamp.kind {
        TreeKind::File => {
            let mut original = inside::file_in(from, name)?;
            let mut options = OpenOptions::new();
            let mut copy = to.open_with(name, options.write(true).create_new(true).mode(0o600))?.into_std();
            io::copy(&mut original, &mut copy)?;
            // Caches compare it with that of their sources.
            copy.set_times(FileTimes::new().set_modified(original.metadata()?.modified()?))?;
            set_mode(copy, stamp.mode)?;
        }
        TreeKind::Link => to.symlink_contents(from.read_link_contents(name)?, name)?,
        TreeKind::Directory | TreeKind::Special => return Ok(None),
    }
    to.symlink_metadata(name).map(|found| Some(TreeStamp::of(&found)))
}

/// Sets the mode of what is open, whatever has its name by now.
pub(super) fn set_mode(file: File, mode: u32) -> io::Result<()> {
    cap_std::fs::File::from_std(file).set_permissions(Permissions::from_mode(mode))
}
