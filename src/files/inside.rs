//! Files below a directory that a stranger can write: opened only if they are regular files that the path itself names.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// Opens a regular file below `root` for reading. No part of `path` may be a symbolic link, also one that stays inside: the
/// stranger may not be allowed to read what we can. For the same reason the file may have no second name.
///
/// # Errors
/// As for [`File::open`], and [`io::ErrorKind::InvalidInput`] for anything else than such a file. It never waits.
pub(crate) fn open(root: &Path, path: &Path) -> io::Result<File> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            _ => return Err(refused("its path leads elsewhere")),
        }
    }
    let Some((name, directories)) = parts.split_last() else { return Err(refused("it is a directory")) };
    let directory_flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let mut directory: OwnedFd = rustix::fs::openat(CWD, root, directory_flags, Mode::empty())?;
    for part in directories {
        let flags = directory_flags | OFlags::NOFOLLOW;
        directory =
            rustix::fs::openat(&directory, *part, flags, Mode::empty()).map_err(|error| match error {
                // Linux says of a link to a directory that it is none.
                Errno::LOOP | Errno::NOTDIR | Errno::MLINK => refused("a part of its path is no directory"),
                error => error.into(),
            })?;
    }
    // Opening a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, *name, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::MLINK => refused("it is a symbolic link"),
        // A socket, or a FIFO's other end.
        Errno::NXIO | Errno::OPNOTSUPP => refused("it is not a regular file"),
        error => error.into(),
    })?;
    let file = File::from(file);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refused("it is not a regular file"));
    }
    if metadata.nlink() > 1 {
        return Err(refused("it is a file with several names"));
    }
    Ok(file)
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
            ("a/../.env", "leads elsewhere"),
            ("/etc/passwd", "leads elsewhere"),
            ("", "directory"),
        ] {
            let error = open(&root, Path::new(path)).unwrap_err();
            assert!(error.to_string().contains(why), "{path}: {error}");
        }
        assert_eq!(open(&root, Path::new("a/gone")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
