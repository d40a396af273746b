//! Where what a policy is about is.

use std::path::PathBuf;

/// Where things are on this host and in this session. All paths are absolute.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    /// What relative paths are relative to.
    pub(crate) workspace: PathBuf,
    /// What `~` stands for.
    pub(crate) home: PathBuf,
    /// The session's own directory, readable inside and not writable. What is made in it after the rules, and could be
    /// written because the user opened a directory above it, belongs into `protected`.
    pub(crate) private_directory: PathBuf,
    /// The part of it that is writable inside. It must exist when the sandbox starts.
    pub(crate) writable_directory: PathBuf,
    /// The workspace's own directory for state, which code inside neither reads nor writes.
    pub(crate) state_dir: PathBuf,
    /// What Python needs of itself: its environment and its installation, readable wherever they are.
    pub(crate) python_prefixes: Vec<PathBuf>,
    /// Files of the host that code must not write: the approval policy, the audit log.
    pub(crate) protected: Vec<PathBuf>,
    /// Files and directories that code must not even read.
    pub(crate) hidden: Vec<PathBuf>,
}
