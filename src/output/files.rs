//! Files for output that is longer than a reply: `<workspace>/.ipybox/outputs/<8 hex digits>.txt`.
//!
//! Code in the kernel can write to the workspace too: nothing here is trusted, and no symbolic link out of it
//! is followed.

use std::ffi::OsStr;
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use tokio::io::AsyncWriteExt as _;

/// The directory of such files in the workspace, which kernel and host write.
const DIRECTORY: &str = ".ipybox";
/// The directory of outputs in it.
pub(crate) const OUTPUTS: &str = ".ipybox/outputs";

/// The largest file. Longer output of a cell must not fill the disk.
const LARGEST_FILE_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// How many files are kept, the newest ones.
const KEPT_FILES: usize = 32;
/// How much all of the kept files may hold together, before a new one.
const KEPT_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    workspace: PathBuf,
    name: String,
    file: tokio::fs::File,
    bytes: u64,
    is_whole: bool,
}

impl OutputFile {
    /// Makes a new file below `workspace`, and removes the oldest ones if there are many.
    pub(crate) async fn create(workspace: &Path) -> io::Result<Self> {
        let workspace = workspace.to_owned();
        let create = move || {
            let root = Dir::open_ambient_dir(&workspace, cap_std::ambient_authority())?;
            let directory = open_directory(&root)?;
            prune(&directory)?;
            loop {
                let name = format!("{:08x}.txt", uuid::Uuid::new_v4().as_fields().0);
                match directory.open_with(&name, OpenOptions::new().write(true).create_new(true)) {
                    Ok(file) => {
                        let file = file.into_std();
                        // The lock keeps another server's `prune` from removing the open file. Some file
                        // systems have no locks.
                        if let Err(error) = file.try_lock() {
                            tracing::debug!(%error, "could not lock a file of output");
                        }
                        return Ok((workspace, name, file));
                    }
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error),
                }
            }
        };
        let (workspace, name, file) =
            tokio::task::spawn_blocking(create).await.map_err(io::Error::other)??;
        let file = tokio::fs::File::from_std(file);
        Ok(Self { workspace, name, file, bytes: 0, is_whole: true })
    }

    /// Appends `text`, as long as the file is not too large.
    pub(crate) async fn append(&mut self, text: &str) -> io::Result<()> {
        if self.bytes + text.len() as u64 > LARGEST_FILE_BYTES {
            self.is_whole = false;
        }
        if self.is_whole {
            self.file.write_all(text.as_bytes()).await?;
            self.bytes += text.len() as u64;
        }
        Ok(())
    }

    /// Finishes the file and returns its path, and whether it has everything.
    pub(crate) async fn finish(mut self) -> io::Result<(PathBuf, bool)> {
        self.file.flush().await?;
        Ok((self.workspace.join(OUTPUTS).join(self.name), self.is_whole))
    }

    /// Removes the file.
    pub(crate) async fn discard(self) -> io::Result<()> {
        let remove = move || {
            let root = Dir::open_ambient_dir(&self.workspace, cap_std::ambient_authority())?;
            root.remove_file(Path::new(OUTPUTS).join(self.name))
        };
        tokio::task::spawn_blocking(remove).await.map_err(io::Error::other)?
    }
}

fn open_directory(root: &Dir) -> io::Result<Dir> {
    root.create_dir_all(OUTPUTS)?;
    let ignore = Path::new(DIRECTORY).join(".gitignore");
    if !root.exists(&ignore)
        && let Err(error) = root.write(&ignore, "*\n")
    {
        tracing::debug!(%error, "could not write a .gitignore");
    }
    root.open_dir(OUTPUTS)
}

/// Removes the oldest of our files so that there is room for a new one. Others are left alone.
fn prune(directory: &Dir) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in directory.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        // Another server in this workspace may have removed it already.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() && is_ours(&name.to_string_lossy()) {
            let modified =
                metadata.modified().map_or(SystemTime::UNIX_EPOCH, cap_std::time::SystemTime::into_std);
            files.push((modified, metadata.len(), name));
        }
    }
    files.sort_by(|one, other| other.cmp(one));
    let mut bytes = 0;
    for (place, (_, length, name)) in files.iter().enumerate() {
        bytes += length;
        if (place + 1 >= KEPT_FILES || bytes > KEPT_BYTES) && !is_being_written(directory, name) {
            match directory.remove_file(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether a server, this one or another, has the file open.
fn is_being_written(directory: &Dir, name: &OsStr) -> bool {
    // Code in the kernel may have put a pipe in its place meanwhile.
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = directory.open_with(name, OpenOptions::new().read(true).custom_flags(without_waiting));
    file.map(cap_std::fs::File::into_std)
        .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn is_ours(name: &str) -> bool {
    name.strip_suffix(".txt")
        .is_some_and(|stem| stem.len() == 8 && stem.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn write(workspace: &Path, text: &str) -> PathBuf {
        let mut file = OutputFile::create(workspace).await.unwrap();
        file.append(text).await.unwrap();
        let (path, is_whole) = file.finish().await.unwrap();
        assert!(is_whole);
        path
    }

    #[tokio::test]
    async fn outputs_are_kept_beside_a_gitignore() {
        let workspace = tempfile::tempdir().unwrap();
        let path = write(workspace.path(), "text").await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(path.parent().unwrap(), workspace.path().join(".ipybox/outputs"));
        assert_eq!(std::fs::read_to_string(workspace.path().join(".ipybox/.gitignore")).unwrap(), "*\n");
    }

    #[tokio::test]
    async fn the_newest_are_kept_and_the_files_of_others() {
        let workspace = tempfile::tempdir().unwrap();
        let outputs = workspace.path().join(OUTPUTS);
        let first = write(workspace.path(), "first").await;
        let old = SystemTime::UNIX_EPOCH;
        std::fs::File::options().write(true).open(&first).unwrap().set_modified(old).unwrap();
        std::fs::write(outputs.join("mine.txt"), "").unwrap();
        std::fs::File::options()
            .write(true)
            .open(outputs.join("mine.txt"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        for _ in 0..KEPT_FILES {
            write(workspace.path(), "later").await;
        }
        assert!(!first.exists());
        assert!(outputs.join("mine.txt").exists());
        assert_eq!(std::fs::read_dir(outputs).unwrap().count(), KEPT_FILES + 1);
    }

    #[tokio::test]
    async fn what_is_being_written_is_kept() {
        let workspace = tempfile::tempdir().unwrap();
        let mut slow = OutputFile::create(workspace.path()).await.unwrap();
        for _ in 0..KEPT_FILES + 2 {
            write(workspace.path(), "later").await;
        }
        slow.append("at last").await.unwrap();
        let (path, _) = slow.finish().await.unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "at last");
    }

    #[tokio::test]
    async fn a_link_out_of_the_workspace_is_not_followed() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join(DIRECTORY)).unwrap();
        OutputFile::create(workspace.path()).await.unwrap_err();
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
