//! The record of the places that code in sandboxes could write, in the state directory of each workspace: what such code
//! has left there, later sessions and commands must not run by mistake, in whichever workspace they are, with or without a sandbox.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Error;
use crate::connections::mcp_client::StartGuard;
use crate::ground::files::{FileIdentity, StateFile};
use crate::kernels::sandbox::ExposedPlaces;

/// The file in the state directory of a workspace.
const RECORD: &str = "exposed.json";

/// The directory in the state directory that MCP servers start in.
const SERVERS_DIRECTORY: &str = "servers";

/// The most protected paths that are recorded.
const MOST_PROTECTED: usize = 2000;

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ExposureRecord {
    #[serde(flatten)]
    exposed: ExposedPlaces,
    /// The directories that code could write as a whole: they may be moved.
    #[serde(default)]
    roots: BTreeSet<FileIdentity>,
    /// Paths that sandboxes protected, for as long as they are there.
    #[serde(default)]
    protected: BTreeSet<PathBuf>,
}

/// Records that code in a sandbox in the workspace with this state directory can write to `exposed`.
///
/// # Errors
/// The record cannot be changed.
pub(super) fn record(state_dir: &Path, exposed: &ExposedPlaces) -> Result<(), Error> {
    let roots = exposed.open().iter().filter_map(|path| path.metadata().ok());
    let roots: Vec<FileIdentity> = roots.map(|found| FileIdentity::of(&found)).collect();
    let change = |record: &mut ExposureRecord| {
        record.exposed.add(exposed.clone());
        record.roots.extend(roots);
        record.protected.retain(|path| path.symlink_metadata().is_ok());
        // The first ones stay: code may have made any number of others since.
        let room = MOST_PROTECTED.saturating_sub(record.protected.len());
        let new = exposed.closed().iter().filter(|path| !record.protected.contains(*path));
        let new: Vec<PathBuf> = new.take(room).cloned().collect();
        record.protected.extend(new);
    };
    StateFile::new(state_dir.join(RECORD)).change(change).map_err(|source| unusable(state_dir, source))
}

/// The places that code in sandboxes could write, in the workspaces of all state directories beside this one.
///
/// # Errors
/// A record cannot be read.
pub(crate) fn recorded(state_dir: &Path, workspace: &Path) -> Result<ExposedPlaces, Error> {
    let states = state_dir.parent().unwrap_or(state_dir);
    let mut exposed = ExposedPlaces::default();
    let above: Vec<(&Path, FileIdentity)> = workspace
        .ancestors()
        .filter_map(|directory| Some((directory, FileIdentity::of(&directory.metadata().ok()?))))
        .collect();
    let entries = match states.read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(exposed),
        entries => entries.map_err(|source| unusable(states, source))?,
    };
    for entry in entries {
        let path = entry.map_err(|source| unusable(states, source))?.path();
        let Some(record) = read(&path)? else { continue };
        exposed.add(record.exposed);
        // What was moved is where it is now.
        let moved = above.iter().filter(|(_, root)| record.roots.contains(root));
        let moved: Vec<&Path> = moved.map(|(directory, _)| *directory).collect();
        for directory in moved {
            if exposed.above(directory).is_none() {
                exposed.add(ExposedPlaces::place(directory.to_owned()));
            }
        }
    }
    Ok(exposed)
}

/// The paths that sandboxes in the workspace with this state directory protected.
///
/// # Errors
/// The record cannot be read.
pub(super) fn protected(state_dir: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    Ok(read(state_dir)?.map(|record| record.protected).unwrap_or_default())
}

fn read(state_dir: &Path) -> Result<Option<ExposureRecord>, Error> {
    StateFile::new(state_dir.join(RECORD)).find().map_err(|source| unusable(state_dir, source))
}

fn unusable(path: &Path, source: std::io::Error) -> Error {
    Error::StateDir { path: path.to_owned(), source }
}

/// The guard of MCP servers that start in the workspace with this state directory.
pub(super) fn guard(state_dir: &Path, exposed: ExposedPlaces) -> StartGuard {
    StartGuard::new(state_dir.join(SERVERS_DIRECTORY), exposed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_code_could_write_is_known_in_all_workspaces_and_under_a_new_name() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let states = base.join("states");
        let [first, second] = ["a-1", "b-2"].map(|name| states.join(name));
        for directory in [&first, &second, &base.join("one/inner"), &base.join("two")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        record(&first, &ExposedPlaces::place(base.join("one"))).unwrap();
        let is_exposed = |workspace: &str, path: &str| {
            recorded(&second, &base.join(workspace)).unwrap().above(&base.join(path)).is_some()
        };
        assert!(is_exposed("two", "one/x") && !is_exposed("two", "two/x"));
        std::fs::rename(base.join("one"), base.join("moved")).unwrap();
        assert!(is_exposed("moved/inner", "moved/x") && is_exposed("moved", "moved/x"));
        // A new directory of the old name is still taken for exposed.
        assert!(is_exposed("two", "one/x"));
    }

    #[test]
    fn the_first_protected_paths_stay_as_long_as_they_are_there() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let state = base.join("states/a-1");
        for directory in [&state, &base.join("ws/project")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let closed = |paths: Vec<PathBuf>| {
            serde_json::from_value(serde_json::json!({ "open": [base.join("ws")], "closed": paths })).unwrap()
        };
        let project = base.join("ws/project");
        record(&state, &closed(vec![project.clone()])).unwrap();
        let decoys: Vec<PathBuf> =
            (0..MOST_PROTECTED).map(|number| base.join(format!("ws/{number}"))).collect();
        for decoy in &decoys {
            std::fs::write(decoy, "").unwrap();
        }
        record(&state, &closed(decoys)).unwrap();
        let found = protected(&state).unwrap();
        assert!(found.contains(&project) && found.len() == MOST_PROTECTED);
        std::fs::remove_dir(&project).unwrap();
        record(&state, &closed(Vec::new())).unwrap();
        assert!(!protected(&state).unwrap().contains(&project));
    }
}
