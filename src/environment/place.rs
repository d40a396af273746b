//! Where the managed environment of a workspace is, and what it is made with.

use std::path::{Path, PathBuf};

use super::Error;
use super::installer::Installer;
use super::record::RecordFile;

/// The managed environment of one workspace: a directory, its lock and its record.
pub(super) struct Place<'a> {
    pub(super) directory: PathBuf,
    pub(super) lock: &'a Path,
    pub(super) record: RecordFile,
    pub(super) installer: &'a Installer,
    /// The value of `PATH`, where interpreters are looked for.
    pub(super) path: &'a str,
    /// Our own executable, which may lie in a virtual environment.
    pub(super) executable: Option<PathBuf>,
}

impl Place<'_> {
    /// Removes what a broken or interrupted creation has left.
    pub(super) async fn clear(&self) -> Result<(), Error> {
        match tokio::fs::remove_dir_all(&self.directory).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    pub(super) fn failed(&self, source: std::io::Error) -> Error {
        Error::File { path: self.directory.clone(), source }
    }
}
