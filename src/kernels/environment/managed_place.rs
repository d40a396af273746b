//! The paths and settings of a workspace's managed environment.

use std::path::{Path, PathBuf};

use super::installer::{BytecodeTime, Installer};
use super::record::RecordFile;
use super::{EnvironmentSettings, Error};
use crate::ground::files::{if_there, remove_tree};

/// The managed environment of one workspace: a directory, its lock and its record.
pub(super) struct ManagedPlace<'a> {
    pub(super) directory: PathBuf,
    pub(super) lock: &'a Path,
    pub(super) record: RecordFile,
    /// Whether its interpreter must not run outside a sandbox.
    pub(super) is_sandboxed: bool,
    pub(super) installer: &'a Installer,
    /// The value of `PATH`, where interpreters are looked for.
    pub(super) path: &'a str,
    /// Our own executable, which may lie in a virtual environment.
    pub(super) executable: Option<PathBuf>,
}

impl<'a> ManagedPlace<'a> {
    /// The managed environment in a workspace's state directory.
    ///
    /// Sandboxed kernels have another one, whose packages are not trusted.
    pub(super) fn of(
        settings: &EnvironmentSettings,
        lock: &'a Path,
        installer: &'a Installer,
        path: &'a str,
    ) -> Self {
        let name = if settings.is_sandboxed { "python-sandboxed" } else { "python" };
        Self {
            directory: settings.state_dir.join(name),
            lock,
            record: RecordFile::new(settings.state_dir.join(format!("{name}.json"))),
            is_sandboxed: settings.is_sandboxed,
            installer,
            path,
            executable: std::env::current_exe().ok(),
        }
    }

    /// When the bytecode of its packages is written.
    pub(super) fn bytecode(&self) -> BytecodeTime {
        BytecodeTime::for_kernel(self.is_sandboxed)
    }

    /// Removes the files of a failed or interrupted creation.
    pub(super) async fn clear(&self) -> Result<(), Error> {
        let directory = self.directory.clone();
        let removed = tokio::task::spawn_blocking(move || if_there(remove_tree(&directory)));
        removed.await.unwrap_or_else(|panic| Err(panic.into())).map(drop).map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, source: std::io::Error) -> Error {
        Error::File { path: self.directory.clone(), source }
    }
}
