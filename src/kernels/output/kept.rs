//! The directories of kept files below `<workspace>/.ipybox`: how they are opened, and which old files are removed.
//!
//! Code in the kernel can write there too: no symbolic link is followed.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::SystemTime;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};

use crate::ground::files::inside;

/// The directory that kernel and host write.
const DIRECTORY: &str = ".ipybox";

/// Which files of a directory are kept, the newest ones.
pub(crate) struct KeptFiles {
    /// The number of files.
    pub(crate) files: usize,
    /// The bytes that they may hold together, before a new one.
    pub(crate) bytes: u64,
    /// Whether a file of this name is one of them. Others are left alone.
    pub(crate) is_ours: fn(&str) -> bool,
}

/// Opens a directory below `.ipybox`, which is made if it is missing.
pub(super) fn open_directory(workspace: &Path, directory: &str) -> io::Result<Dir> {
    let opened = directory_below(workspace, Path::new(directory))?;
    let ignore = ".gitignore";
    let parent = directory_below(workspace, Path::new(DIRECTORY))?;
    // Whatever is there already is not opened: code may have put a pipe there.
    let made = parent.open_with(ignore, OpenOptions::new().write(true).create_new(true));
    match made.and_then(|mut file| file.write_all(b"*\n")) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            tracing::debug!(%error, "could not write a .gitignore");
        }
        _ => {}
    }
    Ok(opened)
}

/// Opens a directory below `root`, which is made if it is missing. No part of its path may be a link.
pub(crate) fn directory_below(root: &Path, path: &Path) -> io::Result<Dir> {
    Ok(Dir::from_std_file(inside::make_directory(root, path)?.into()))
}

/// Makes a new file, with 8 random hexadecimal digits in its `name`.
pub(super) fn create_new(directory: &Dir, name: impl Fn(&str) -> String) -> io::Result<(String, File)> {
    loop {
        let name = name(&format!("{:08x}", uuid::Uuid::new_v4().as_fields().0));
        match directory.open_with(&name, OpenOptions::new().write(true).create_new(true)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (name, file.into_std())),
        }
    }
}

/// Keeps a file that is being written from being removed by another server.
pub(super) fn hold(file: &File) {
    // Some file systems have no locks.
    if let Err(error) = file.try_lock() {
        tracing::debug!(%error, "could not lock a file of output");
    }
}

impl KeptFiles {
    /// Removes the oldest files so that there is room for a new one.
    pub(crate) fn prune(&self, directory: &Dir) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in directory.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            // Another server in this workspace may have removed it already.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() && (self.is_ours)(&name.to_string_lossy()) {
                let modified =
                    metadata.modified().map_or(SystemTime::UNIX_EPOCH, cap_std::time::SystemTime::into_std);
                files.push((modified, metadata.len(), name));
            }
        }
        files.sort_by(|one, other| other.cmp(one));
        let mut bytes = 0;
        for (place, (_, length, name)) in files.iter().enumerate() {
            bytes += length;
            if (place + 1 >= self.files || bytes > self.bytes) && !is_being_written(directory, name) {
                match directory.remove_file(name) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Whether a server, this one or another, has the file open.
fn is_being_written(directory: &Dir, name: &OsStr) -> bool {
    // Code in the kernel may have put a pipe in its place meanwhile.
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = directory.open_with(name, OpenOptions::new().read(true).custom_flags(without_waiting));
    file.map(cap_std::fs::File::into_std)
        .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_code_puts_beside_the_files_is_not_opened() {
        let workspace = tempfile::tempdir().unwrap();
        let ignore = workspace.path().join(DIRECTORY).join(".gitignore");
        open_directory(workspace.path(), ".ipybox/files").unwrap();
        assert_eq!(std::fs::read_to_string(&ignore).unwrap(), "*\n");
        std::fs::remove_file(&ignore).unwrap();
        nix::unistd::mkfifo(&ignore, nix::sys::stat::Mode::S_IRWXU).unwrap();
        open_directory(workspace.path(), ".ipybox/files").unwrap();
        // A link that leads nowhere is not followed either.
        std::fs::remove_file(&ignore).unwrap();
        std::os::unix::fs::symlink("../made", &ignore).unwrap();
        open_directory(workspace.path(), ".ipybox/files").unwrap();
        assert!(!workspace.path().join("made").exists());
    }
}
