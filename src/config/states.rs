//! The places of workspaces and their state.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;

use super::Error;
use crate::ground::env::{self, Variables};
use crate::ground::files::{check_parents, check_private, create_private_directory, real_path, sweep_state};

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

/// The place of the state of `workspace`, which may not exist yet; `state_dir` is as in [`Settings`](super::Settings).
///
/// # Errors
/// There is no such workspace, or no place for the state of any, or other users can change it.
pub fn state_directory(workspace: &Path, state_dir: Option<PathBuf>) -> Result<PathBuf, Error> {
    let canonical = workspace.canonicalize();
    let workspace = canonical.map_err(|source| Error::Workspace { path: workspace.to_owned(), source })?;
    let variables = Variables::load(&workspace);
    let states = states_dir(state_dir, &variables)?;
    let directory = workspace_state_dir(&states, &workspace);
    check(&states, &[&directory], &variables)?;
    Ok(directory)
}

/// The place of the state of all workspaces: as named, or the default. It may not exist yet; what exists, no other user can
/// change. Everything that reads or writes state finds it by this function.
///
/// # Errors
/// There is no such place, or other users can change it.
pub(crate) fn states_dir(named: Option<PathBuf>, variables: &Variables) -> Result<PathBuf, Error> {
    let named = named.map_or_else(|| default_state_dir(variables), Ok)?;
    // A link could lead to another place later.
    let states = real_path(&named).map_err(|source| Error::StateDir { path: named, source })?;
    check(&states, &[&workspaces_dir(&states), &sessions_dir(&states)], variables)?;
    Ok(states)
}

/// Creates a directory in `states` for this user alone, and removes from it what processes have left that died.
///
/// # Errors
/// It cannot be created, or other users can change it.
pub(crate) fn create_in(states: &Path, directory: &Path, variables: &Variables) -> Result<(), Error> {
    let failed = |source| Error::StateDir { path: states.to_owned(), source };
    create_private_directory(directory).map_err(failed)?;
    // Another user may have created one of them meanwhile.
    check(states, &[directory], variables)?;
    sweep_state(directory);
    Ok(())
}

/// Checks whether only this user can change or replace `directories`, which are in `states` and may be missing.
fn check(states: &Path, directories: &[&Path], variables: &Variables) -> Result<(), Error> {
    // The workspace, in which the image has its state, may be mounted from a system with other users; the container is
    // the boundary, and nobody else is in it.
    if variables.in_process(env::IPYBOX_CONTAINER).is_some() {
        return Ok(());
    }
    let in_states = |above: &&Path| above.starts_with(states);
    let mut below = directories.iter().flat_map(|directory| directory.ancestors().take_while(in_states));
    check_parents(states)
        .and_then(|()| below.try_for_each(check_private))
        .map_err(|source| Error::StateDir { path: states.to_owned(), source })
}

fn default_state_dir(variables: &Variables) -> Result<PathBuf, Error> {
    if let Some(directory) = variables.in_process(env::IPYBOX_STATE_DIR).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(directory));
    }
    let platform = etcetera::base_strategy::choose_native_strategy().map_err(|_| Error::NoHome)?;
    Ok(platform.data_dir().join("ipybox"))
}

/// The place in which sessions that outlive their clients are described, and reached.
pub(crate) fn sessions_dir(states: &Path) -> PathBuf {
    states.join("sessions")
}

/// The place of the notebooks that sessions of a workspace with this state directory make by themselves.
pub(crate) fn notebooks_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("notebooks")
}

/// The part of a workspace's name that its state directory shows. File names are limited to 255 bytes.
const NAME_CHARS: usize = 40;

/// The workspace's own directory below `states`, which may not exist yet.
pub(crate) fn workspace_state_dir(states: &Path, workspace: &Path) -> PathBuf {
    workspaces_dir(states).join(state_dir_name(workspace))
}

fn workspaces_dir(states: &Path) -> PathBuf {
    states.join("workspaces")
}

pub(super) fn state_dir_name(workspace: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;

    let name = workspace.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(NAME_CHARS).collect();
    // Readable for a human, unique by the whole path, and the same at every start.
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, workspace.as_os_str().as_bytes());
    format!("{name}-{:016x}", hash.as_u64_pair().0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn check(prepare: impl Fn(&Path), expected: &str) {
        let place = tempfile::tempdir().unwrap();
        let (workspace, states) = (place.path().join("work"), place.path().join("states"));
        for directory in [&workspace, &workspaces_dir(&states), &sessions_dir(&states)] {
            create_private_directory(directory).unwrap();
        }
        let open = || state_directory(&workspace, Some(states.clone()));
        create_private_directory(&open().unwrap()).unwrap();
        prepare(&states);
        let Error::StateDir { source, .. } = open().unwrap_err() else { panic!("another error") };
        assert!(source.to_string().contains(expected), "{source}");
    }

    fn open_to_all(path: &Path) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }

    #[test]
    fn no_state_is_used_that_other_users_can_change() {
        check(open_to_all, "chmod go-w");
        check(|states| open_to_all(states.parent().unwrap()), "chmod go-w");
        check(|states| open_to_all(&sessions_dir(states)), "chmod go-w");
        check(|states| open_to_all(&workspaces_dir(states)), "chmod go-w");
        let only_workspace = |states: &Path| {
            std::fs::read_dir(workspaces_dir(states)).unwrap().next().unwrap().unwrap().path()
        };
        check(|states| open_to_all(&only_workspace(states)), "chmod go-w");
        let replaced = |path: PathBuf| {
            let moved = path.with_file_name("moved");
            std::fs::rename(&path, &moved).unwrap();
            symlink(&moved, &path).unwrap();
        };
        check(|states| replaced(sessions_dir(states)), "is a symbolic link");
        check(|states| replaced(workspaces_dir(states)), "is a symbolic link");
        check(|states| replaced(only_workspace(states)), "is a symbolic link");
    }

    #[test]
    fn the_state_directory_itself_may_be_a_link() {
        let place = tempfile::tempdir().unwrap();
        create_private_directory(&place.path().join("there")).unwrap();
        symlink("there", place.path().join("link")).unwrap();
        let states = states_dir(Some(place.path().join("link")), &Variables::default()).unwrap();
        assert_eq!(states, place.path().canonicalize().unwrap().join("there"));
    }

    #[test]
    fn in_the_image_the_container_is_the_boundary() {
        let place = tempfile::tempdir().unwrap();
        open_to_all(place.path());
        let named = || Some(place.path().to_owned());
        let container = serde_json::from_value(serde_json::json!({env::IPYBOX_CONTAINER: "1"})).unwrap();
        assert!(states_dir(named(), &Variables::of(Some(&container), place.path())).is_ok());
        assert!(states_dir(named(), &Variables::default()).is_err());
    }
}
