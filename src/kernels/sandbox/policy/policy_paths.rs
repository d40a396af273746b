//! Directories that a sandbox policy refers to.

#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

use crate::ground::env::MovedPlace;

/// The paths of this host and session. All are absolute.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyPaths {
    /// Relative paths are relative to it.
    pub(crate) workspace: PathBuf,
    /// The home directory, `~`.
    pub(crate) home: PathBuf,
    /// The session's own directory, readable inside and not writable. Files created in it after the rules,
    /// which would be writable if the user opened a directory above it, belong into `protected`.
    pub(crate) private_directory: PathBuf,
    /// The part of it that is writable inside. It must exist when the sandbox starts.
    pub(crate) writable_directory: PathBuf,
    /// The workspace's own directory for state, which code inside neither reads nor writes.
    pub(crate) state_dir: PathBuf,
    /// Python's environment and installation, which are always readable.
    pub(crate) python_prefixes: Vec<PathBuf>,
    /// Files of the host that code must not write: the approval policy, the audit log.
    pub(crate) protected: Vec<PathBuf>,
    /// Paths that earlier sandboxes in this workspace protected, which are found again however many others code has made.
    pub(crate) protected_before: Vec<PathBuf>,
    /// Files and directories that code must not even read.
    pub(crate) hidden: Vec<PathBuf>,
    /// Files and directories that code does not see, but for what is opened in them.
    pub(crate) covered: Vec<PathBuf>,
    /// Further homes of the user, for which the default policy says the same as for `home`.
    pub(crate) other_homes: Vec<PathBuf>,
    /// Homes of other users that the user can read, as root can. The default policy hides them.
    pub(crate) foreign_homes: Vec<PathBuf>,
    /// Places in the home that are elsewhere, where the default policy hides the same.
    pub(crate) moved: Vec<MovedPlace>,
}

#[cfg(test)]
impl PolicyPaths {
    /// Those of a test: the workspace `ws`, the home and the other directories in `base`.
    pub(crate) fn below(base: &Path) -> Self {
        Self {
            workspace: base.join("ws"),
            home: base.join("home"),
            private_directory: base.join("p"),
            writable_directory: base.join("p/w"),
            state_dir: base.join("state"),
            ..Self::default()
        }
    }
}
