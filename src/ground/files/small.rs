//! Files that may come from a stranger: read only if they are small regular files.
//!
//! A device or a FIFO instead would fill the memory, or make the start hang.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// The largest file that somebody writes by hand, in bytes.
pub(crate) const BY_HAND: u64 = 1024 * 1024;

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As for [`std::fs::read`], and [`io::ErrorKind::InvalidInput`] if it is something else, or larger.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    // Opening a FIFO would block, and a device may react to it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    // The file may have been replaced meanwhile.
    if !file.metadata().as_ref().is_ok_and(Metadata::is_file) {
        return Err(refused("it is not a regular file".to_owned()));
    }
    let mut content = Vec::new();
    if file.take(limit + 1).read_to_end(&mut content)? as u64 > limit {
        return Err(refused(format!("it is larger than {limit} bytes")));
    }
    Ok(content)
}

/// The answer about a file; `None` if there is no such file.
pub(crate) fn if_there<T>(asked: io::Result<T>) -> io::Result<Option<T>> {
    match asked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        asked => asked.map(Some),
    }
}

/// The metadata of `file`, if it still has the name `path`: another process may have removed or replaced it.
///
/// # Errors
/// As for [`Path::symlink_metadata`].
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<Option<Metadata>> {
    let ours = file.metadata()?;
    let found = if_there(path.symlink_metadata())?;
    Ok(found.filter(|found| (found.dev(), found.ino()) == (ours.dev(), ours.ino())))
}

/// Opens a file to be locked, and creates it if it is missing.
///
/// # Errors
/// It is something else, or cannot be opened or made.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    File::options().write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

/// As [`read`], of text in UTF-8.
///
/// # Errors
/// As there, and [`io::ErrorKind::InvalidData`] for what is no text.
pub(crate) fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read(path, limit)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// As [`read`], of a file in `workspace`: it may be a link within, but lead nowhere else.
///
/// # Errors
/// As there, and [`io::ErrorKind::InvalidInput`] for a path in the workspace that leads out of it.
pub(crate) fn read_in(workspace: &Path, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    check_link(workspace, path)?;
    read(path, limit)
}

/// Refuses a path in `workspace` that leads out of it by a link; paths outside are the responsibility of the
/// user who names them.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`], or the error of resolving it.
pub(crate) fn check_link(workspace: &Path, path: &Path) -> io::Result<()> {
    if !std::path::absolute(path)?.starts_with(workspace) {
        return Ok(());
    }
    let real = path.canonicalize()?;
    if real.starts_with(workspace.canonicalize()?) {
        return Ok(());
    }
    let why = format!("it is a symbolic link out of the workspace, to `{}`", real.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn refused(result: io::Result<Vec<u8>>, expected: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn only_small_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        assert_eq!(read(&path("file"), 5).unwrap(), b"12345");
        refused(read(&path("file"), 4), "larger than 4 bytes");
        refused(read(directory.path(), 5), "not a regular file");
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        for name in ["fifo", "zero"] {
            refused(read(&path(name), 5), "not a regular file");
        }
        assert_eq!(read(&path("gone"), 5).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(path("binary"), b"\xff").unwrap();
        assert!(read_text(&path("binary"), 5).is_err());
    }

    #[test]
    fn files_of_a_workspace_are_not_read_outside_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("ws")).unwrap();
        for name in ["ws/inside", "outside"] {
            std::fs::write(root.join(name), "1").unwrap();
        }
        symlink("inside", root.join("ws/near")).unwrap();
        symlink("../outside", root.join("ws/far")).unwrap();
        symlink(root.join("ws/inside"), root.join("named")).unwrap();
        let read = |name: &str| read_in(&root.join("ws"), &root.join(name), 5);
        for name in ["ws/inside", "ws/near", "outside", "named"] {
            read(name).unwrap();
        }
        refused(read("ws/far"), "a symbolic link out of the workspace");
    }
}
