//! Directories that only this user, or root, can change or replace.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::if_there;

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// In such a directory only the owner of an entry can rename or remove it.
const STICKY: u32 = 0o1000;

/// Makes a directory, for this user alone, with those above it, if it is missing.
///
/// # Errors
/// As for [`std::fs::create_dir_all`].
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The absolute path without links, as far as it exists.
///
/// # Errors
/// As for [`std::fs::canonicalize`], if something is there.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    for above in path.ancestors() {
        if let Some(real) = if_there(above.canonicalize())? {
            let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
            // `join` would add a slash.
            return Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
        }
    }
    Ok(path)
}

/// Checks a directory that may be missing: it is no link, belongs to this user or to root, and nobody else can write to it.
///
/// # Errors
/// It cannot be examined, or [`ErrorKind::PermissionDenied`] with the reason.
pub(crate) fn check_private(path: &Path) -> io::Result<()> {
    let Some(directory) = if_there(fs::symlink_metadata(path))? else { return Ok(()) };
    let shown = path.display();
    if directory.is_symlink() {
        return Err(refused(format!("`{shown}` is a symbolic link, and has to be a directory")));
    }
    if !directory.is_dir() {
        return Err(io::Error::new(ErrorKind::NotADirectory, format!("`{shown}` is not a directory")));
    }
    if !is_trusted(directory.uid()) {
        return Err(foreign(path, &directory));
    }
    match directory.mode() & (GROUP_WRITES | OTHERS_WRITE) {
        0 => Ok(()),
        _ => Err(writable(path)),
    }
}

/// Checks the directories above a real path, as `StrictModes` of OpenSSH does: who can write to one of them can replace
/// what is below.
///
/// # Errors
/// As for [`check_private`].
pub(crate) fn check_parents(path: &Path) -> io::Result<()> {
    let root = fs::metadata("/")?.uid();
    for above in path.ancestors().skip(1) {
        let Some(directory) = if_there(fs::symlink_metadata(above))? else { continue };
        // In a user namespace without root, all that belongs to root seems to belong to the same other user.
        if !is_trusted(directory.uid()) && directory.uid() != root {
            return Err(foreign(above, &directory));
        }
        let is_shared = match directory.mode() {
            mode if mode & STICKY != 0 => false,
            mode if mode & OTHERS_WRITE != 0 => true,
            mode => mode & GROUP_WRITES != 0 && !is_group_private(&directory),
        };
        if is_shared {
            return Err(writable(above));
        }
    }
    Ok(())
}

fn is_trusted(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw() || user == 0
}

/// Whether only the directory's owner is in its group, by the convention that both have one number; with a umask of 002
/// such users make all their directories writable for the group.
fn is_group_private(directory: &Metadata) -> bool {
    [0, directory.uid()].contains(&directory.gid())
}

fn foreign(path: &Path, directory: &Metadata) -> io::Error {
    refused(format!(
        "`{}` belongs to another user, number {}, who could choose what ipybox starts",
        path.display(),
        directory.uid()
    ))
}

fn writable(path: &Path) -> io::Error {
    let shown = path.display().to_string();
    let quoted = shown.replace('\'', r"'\''");
    refused(format!(
        "other users can write to `{shown}`, and could choose what ipybox starts; \
         if nobody else has written there yet, run `chmod go-w '{quoted}'`"
    ))
}

fn refused(why: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn make(path: &Path, mode: u32) {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[track_caller]
    fn refuses(checked: io::Result<()>, expected: &str) {
        let error = checked.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn a_private_directory_is_written_by_nobody_else() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        check_private(&path).unwrap();
        for mode in [0o700, 0o755, 0o1755] {
            make(&path, mode);
            check_private(&path).unwrap();
        }
        for mode in [0o777, 0o775, 0o702, 0o1777] {
            make(&path, mode);
            refuses(check_private(&path), &format!("run `chmod go-w '{}'`", path.display()));
        }
        symlink(&path, place.path().join("link")).unwrap();
        refuses(check_private(&place.path().join("link")), "is a symbolic link");
        fs::write(place.path().join("file"), "").unwrap();
        refuses(check_private(&place.path().join("file")), "is not a directory");
    }

    #[test]
    fn nobody_else_can_replace_it() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (above, path) = (place.join("above"), place.join("above/new/state"));
        for mode in [0o700, 0o755, 0o1777, 0o1775] {
            make(&above, mode);
            check_parents(&path).unwrap();
        }
        for mode in [0o777, 0o757] {
            make(&above, mode);
            refuses(check_parents(&path), &format!("can write to `{}`", above.display()));
        }
    }

    /// Only root can give a directory away.
    #[test]
    fn another_user_is_not_trusted() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        make(&place.join("theirs"), 0o755);
        chown(place.join("theirs"), Some(65534), Some(65534)).unwrap();
        refuses(check_private(&place.join("theirs")), "belongs to another user, number 65534");
        refuses(check_parents(&place.join("theirs/state")), "belongs to another user, number 65534");
        make(&place.join("shared"), 0o775);
        check_parents(&place.join("shared/state")).unwrap();
        chown(place.join("shared"), None, Some(65534)).unwrap();
        refuses(check_parents(&place.join("shared/state")), "other users can write");
    }

    #[test]
    fn a_path_is_real_as_far_as_it_exists() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        make(&place.join("there"), 0o700);
        symlink("there", place.join("link")).unwrap();
        for (path, real) in [("link", "there"), ("link/a/b", "there/a/b"), ("a", "a")] {
            assert_eq!(real_path(&place.join(path)).unwrap(), place.join(real));
        }
        assert!(real_path(Path::new("")).is_err());
    }
}
