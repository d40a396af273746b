//! Where workspaces and their state are.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;

use super::Error;
use crate::ground::env::{self, Variables};
use crate::ground::files::create_private_directory;

/// The real path of a workspace, which is created if it is missing.
pub(crate) fn create_workspace(path: &Path) -> Result<PathBuf, Error> {
    let created = match std::fs::create_dir_all(path) {
        // What is there is something else.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(ErrorKind::NotADirectory.into()),
        created => created,
    };
    created
        .and_then(|()| path.canonicalize())
        .map_err(|source| Error::Workspace { path: path.to_owned(), source })
}

/// Where the state of `workspace` is, which may not exist yet; `state_dir` is as in [`Settings`](super::Settings).
///
/// # Errors
/// There is no such workspace, or no place for the state of any.
pub fn state_directory(workspace: &Path, state_dir: Option<PathBuf>) -> Result<PathBuf, Error> {
    let canonical = workspace.canonicalize();
    let workspace = canonical.map_err(|source| Error::Workspace { path: workspace.to_owned(), source })?;
    let states = states_dir(state_dir, &Variables::load(&workspace))?;
    Ok(workspace_state_dir(&states, &workspace))
}

/// Where the state of all workspaces is: as named, or the default.
pub(crate) fn states_dir(named: Option<PathBuf>, variables: &Variables) -> Result<PathBuf, Error> {
    match named {
        Some(directory) => Ok(directory),
        None => default_state_dir(variables),
    }
}

fn default_state_dir(variables: &Variables) -> Result<PathBuf, Error> {
    if let Some(directory) = variables.in_process(env::IPYBOX_STATE_DIR).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(directory));
    }
    let platform = etcetera::base_strategy::choose_native_strategy().map_err(|_| Error::NoHome)?;
    Ok(platform.data_dir().join("ipybox"))
}

/// Where sessions that outlive their clients are described, and reached.
pub(crate) fn sessions_dir(states: &Path) -> PathBuf {
    states.join("sessions")
}

/// Where the notebooks are that sessions of a workspace with this state directory make by themselves.
pub(crate) fn notebooks_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("notebooks")
}

/// How much of a workspace's name its state directory shows. File names are limited to 255 bytes.
const NAME_CHARS: usize = 40;

/// The workspace's own directory below `states`, which may not exist yet.
pub(crate) fn workspace_state_dir(states: &Path, workspace: &Path) -> PathBuf {
    states.join("workspaces").join(state_dir_name(workspace))
}

pub(super) fn state_dir_name(workspace: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;

    let name = workspace.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(NAME_CHARS).collect();
    // Readable for a human, unique by the whole path, and the same at every start.
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, workspace.as_os_str().as_bytes());
    format!("{name}-{:016x}", hash.as_u64_pair().0)
}

/// Creates a directory for this user alone. Returns its real path.
pub(super) fn create_private_dir(directory: &Path) -> io::Result<PathBuf> {
    create_private_directory(directory)?;
    directory.canonicalize()
}
