//! Files below a directory that a stranger can write: opened only if they are regular files that the path itself names, and
//! put where the path says and nowhere else.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use cap_std::fs::Dir;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::replacement::{Replacement, sweep};

/// Opens a regular file below `root` for reading. No part of `path` may be a symbolic link, also one that stays inside: the
/// stranger may not be allowed to read what we can. For the same reason the file may have no second name.
///
/// # Errors
/// As for [`File::open`], and [`io::ErrorKind::InvalidInput`] for anything else than such a file. It never waits.
pub(crate) fn open(root: &Path, path: &Path) -> io::Result<File> {
    let file = open_any(root, path)?;
    if file.metadata()?.nlink() > 1 {
        return Err(refused("it is a file with several names"));
    }
    Ok(file)
}

/// As [`open()`], also of a file with several names.
///
/// # Errors
/// As there.
pub(crate) fn open_any(root: &Path, path: &Path) -> io::Result<File> {
    let parts = names(path)?;
    let Some((name, directories)) = parts.split_last() else { return Err(refused("it is a directory")) };
    let mut directory = opened(root)?;
    for part in directories {
        directory = open_directory(&directory, part)?;
    }
    file_in(&directory, name)
}

/// Opens a regular file in `directory`, which must be no symbolic link.
///
/// # Errors
/// As for [`open()`].
pub(crate) fn file_in(directory: impl AsFd, name: &OsStr) -> io::Result<File> {
    // Opening a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::MLINK => refused("it is a symbolic link"),
        // A socket, or a FIFO's other end.
        Errno::NXIO | Errno::OPNOTSUPP => refused("it is not a regular file"),
        error => error.into(),
    })?;
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Err(refused("it is not a regular file"));
    }
    Ok(file)
}

/// Opens the directory `path` of `root`, which exists. No part of it may be a symbolic link.
///
/// # Errors
/// As for [`std::fs::read_dir`], and [`io::ErrorKind::InvalidInput`] if a part of the path is no directory.
pub(crate) fn directory(root: &Path, path: &Path) -> io::Result<Dir> {
    let mut directory = opened(root)?;
    for part in names(path)? {
        directory = open_directory(&directory, part)?;
    }
    Ok(Dir::from_std_file(directory.into()))
}

/// Opens the directory `name` of `directory`, which must be no symbolic link.
///
/// # Errors
/// As for [`directory`].
pub(crate) fn in_directory(directory: &Dir, name: &OsStr) -> io::Result<Dir> {
    open_directory(directory, name).map(|opened| Dir::from_std_file(opened.into()))
}

/// Opens the directory `path` of `root`, and makes what is missing of it. No part of it may be a symbolic link: the stranger
/// may not be allowed to write where it leads to, also inside.
///
/// # Errors
/// As for [`std::fs::create_dir_all`], and [`io::ErrorKind::InvalidInput`] if a part of the path is no directory.
pub(crate) fn make_directory(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let mut directory = opened(root)?;
    for part in names(path)? {
        match rustix::fs::mkdirat(&directory, part, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        directory = open_directory(&directory, part)?;
    }
    Ok(directory)
}

/// Puts a file with these bytes into `directory` of `root`, which is made if it is missing and must be no link. What has the
/// name already is replaced, and never written to.
///
/// # Errors
/// As for [`std::fs::write`].
pub(crate) fn put(root: &Path, directory: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let place = Dir::from_std_file(make_directory(root, Path::new(directory))?.into());
    sweep(&place);
    let mut fresh = Replacement::file(&place, 0o644)?;
    fresh.as_file().write_all(bytes)?;
    fresh.put(name).map(drop)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

fn opened(root: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, root, DIRECTORY, Mode::empty())?)
}

fn open_directory(directory: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let opened = rustix::fs::openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    opened.map_err(|error| match error {
        // Linux says of a link to a directory that it is none.
        Errno::LOOP | Errno::NOTDIR | Errno::MLINK => {
            refused(&format!("`{}` is no directory, or a symbolic link", name.display()))
        }
        error => error.into(),
    })
}

/// The names that a path is made of.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let name = |part| match part {
        Component::Normal(name) => Some(Ok(name)),
        Component::CurDir => None,
        _ => Some(Err(refused("its path is absolute or contains `..`"))),
    };
    path.components().filter_map(name).collect()
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_that_the_path_names_are_opened() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        for file in ["root/a/b/file", "root/.env", "outside", "root/a/twice"] {
            std::fs::write(place.path().join(file), "content").unwrap();
        }
        std::fs::hard_link(root.join("a/twice"), root.join("a/again")).unwrap();
        symlink("../../outside", root.join("a/far")).unwrap();
        symlink("../.env", root.join("a/near")).unwrap();
        symlink("b", root.join("a/link")).unwrap();
        symlink("/dev/zero", root.join("a/zero")).unwrap();
        nix::unistd::mkfifo(&root.join("a/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(root.join("a/socket")).unwrap();

        assert_eq!(io::read_to_string(open(&root, Path::new("a/b/file")).unwrap()).unwrap(), "content");
        for (path, why) in [
            ("a/far", "symbolic link"),
            ("a/near", "symbolic link"),
            ("a/zero", "symbolic link"),
            ("a/link/file", "no directory"),
            ("a/b/file/more", "no directory"),
            ("a/fifo", "not a regular file"),
            ("a/socket", "not a regular file"),
            ("a/b", "not a regular file"),
            ("a/again", "several names"),
            ("a/../.env", "absolute or contains"),
            ("/etc/passwd", "absolute or contains"),
            ("", "directory"),
        ] {
            let error = open(&root, Path::new(path)).unwrap_err();
            assert!(error.to_string().contains(why), "{path}: {error}");
        }
        assert_eq!(open(&root, Path::new("a/gone")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_put_where_its_path_says() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("kept"), "kept").unwrap();
        put(&root, "in", "new", b"one").unwrap();
        put(&root, "in", "new", b"two").unwrap();
        assert_eq!(std::fs::read(root.join("in/new")).unwrap(), b"two");

        symlink("../kept", root.join("in/link")).unwrap();
        put(&root, "in", "link", b"three").unwrap();
        assert_eq!(std::fs::read(root.join("in/link")).unwrap(), b"three");
        assert_eq!(std::fs::read(root.join("kept")).unwrap(), b"kept");

        std::fs::create_dir(root.join("in/directory")).unwrap();
        put(&root, "in", "directory", b"four").unwrap_err();
        assert_eq!(std::fs::read_dir(root.join("in")).unwrap().count(), 3, "something is left behind");

        symlink("..", root.join("out")).unwrap();
        assert!(put(&root, "out", "new", b"five").unwrap_err().to_string().contains("no directory"));
        assert!(put(&root, "kept", "new", b"five").unwrap_err().to_string().contains("no directory"));
        assert!(!place.path().join("new").exists());
    }
}
