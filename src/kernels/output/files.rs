//! Files for output that is longer than a reply: `<workspace>/.ipybox/outputs/<8 hex digits>.txt`.
//!
//! Code in the kernel can write to the workspace too: nothing here is trusted, and no symbolic link out of it
//! is followed.

use std::io;
use std::path::{Path, PathBuf};
use tokio::io::AsyncWriteExt as _;

use super::kept::{self, KeptFiles};

/// The directory of such files in the workspace.
pub(crate) const OUTPUTS: &str = ".ipybox/outputs";

/// The largest file. Longer output of a cell must not fill the disk.
const LARGEST_FILE_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Which files are kept.
const KEPT: KeptFiles = KeptFiles { files: 32, bytes: 2 * 1024 * 1024 * 1024, is_ours };

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
    /// Writes a whole text, and returns the path of its file.
    pub(crate) async fn keep(workspace: &Path, text: &str) -> io::Result<PathBuf> {
        let mut file = Self::create(workspace).await?;
        file.append(text).await?;
        file.finish().await.map(|(path, _is_whole)| path)
    }

    /// Makes a new file below `workspace`, and removes the oldest ones if there are many.
    pub(crate) async fn create(workspace: &Path) -> io::Result<Self> {
        let workspace = workspace.to_owned();
        let create = move || -> io::Result<_> {
            let directory = kept::open_directory(&workspace, OUTPUTS)?;
            KEPT.prune(&directory)?;
            let (name, file) = kept::create_new(&directory, |digits| format!("{digits}.txt"))?;
            kept::hold(&file);
            Ok((workspace, name, file))
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
        let remove = move || kept::open_directory(&self.workspace, OUTPUTS)?.remove_file(self.name);
        tokio::task::spawn_blocking(remove).await.map_err(io::Error::other)?
    }
}

/// Whether a file of this name is an output of ours.
pub(super) fn is_ours(name: &str) -> bool {
    name.strip_suffix(".txt")
        .is_some_and(|stem| stem.len() == 8 && stem.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

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
        for _ in 0..KEPT.files {
            write(workspace.path(), "later").await;
        }
        assert!(!first.exists());
        assert!(outputs.join("mine.txt").exists());
        assert_eq!(std::fs::read_dir(outputs).unwrap().count(), KEPT.files + 1);
    }

    #[tokio::test]
    async fn what_is_being_written_is_kept() {
        let workspace = tempfile::tempdir().unwrap();
        let mut slow = OutputFile::create(workspace.path()).await.unwrap();
        for _ in 0..KEPT.files + 2 {
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
        std::os::unix::fs::symlink(outside.path(), workspace.path().join(".ipybox")).unwrap();
        OutputFile::create(workspace.path()).await.unwrap_err();
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
