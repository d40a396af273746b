//! Places to mount on for what is missing and must not come into being: empty files and directories on the host, for as
//! long as a sandbox needs them.
//!
//! bubblewrap would make them too, and leave them. Sandboxes that share one hold it by shared locks; the last one
//! removes it. A stub is empty and bears a time of 1970: what somebody has written to is none any more, and stays.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::policy::is_directory;
use crate::ground::files::if_there;

/// When stubs were last changed, by which they are known. Archives have files of 1970's first second, so it is another.
const TIME: Duration = Duration::from_secs(19_700_607);

/// Stubs that are held. They are removed on drop; if we are killed, they stay, and the next sandbox that needs them
/// takes them over.
#[derive(Debug, Default)]
pub(crate) struct Stubs(Vec<Stub>);

#[derive(Debug)]
struct Stub {
    path: PathBuf,
    file: File,
}

impl Stubs {
    /// What has to be removed if we are killed.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|stub| stub.path.as_path())
    }

    /// Makes an empty file or directory of `stub`, the first part of `target` that is missing, or shares that of
    /// another sandbox.
    pub(super) fn hold(&mut self, stub: &Path, target: &Path) -> io::Result<()> {
        if self.paths().any(|path| path == stub) {
            return Ok(());
        }
        let is_named_so = target.file_name().and_then(OsStr::to_str).is_some_and(is_directory);
        let made = if stub != target || is_named_so {
            std::fs::create_dir(stub)
        } else {
            File::create_new(stub).map(drop)
        };
        match made {
            Ok(()) => File::open(stub)?.set_modified(SystemTime::UNIX_EPOCH + TIME)?,
            // By another sandbox.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        self.share(stub)
    }

    fn share(&mut self, path: &Path) -> io::Result<()> {
        if path.symlink_metadata().is_ok_and(|found| is_stub(&found)) {
            let file = File::open(path)?;
            file.try_lock_shared()?;
            self.0.push(Stub { path: path.to_owned(), file });
        }
        Ok(())
    }
}

/// Whether it was made for a sandbox, which may still run.
pub(crate) fn is_stub(found: &Metadata) -> bool {
    let is_empty = found.is_dir() || found.is_file() && found.len() == 0;
    is_empty && found.modified().is_ok_and(|time| time == SystemTime::UNIX_EPOCH + TIME)
}

impl Drop for Stubs {
    fn drop(&mut self) {
        for stub in &self.0 {
            if let Err(error) = stub.remove() {
                tracing::warn!(path = %stub.path.display(), %error, "empty file of the sandbox not removed");
            }
        }
    }
}

impl Stub {
    fn remove(&self) -> io::Result<()> {
        // Others hold it.
        if self.file.try_lock().is_err() {
            return Ok(());
        }
        let ours = self.file.metadata()?;
        let Some(found) = if_there(self.path.symlink_metadata())? else { return Ok(()) };
        if (found.dev(), found.ino()) != (ours.dev(), ours.ino()) || !is_stub(&found) {
            return Ok(());
        }
        if found.is_dir() { std::fs::remove_dir(&self.path) } else { std::fs::remove_file(&self.path) }
    }
}
