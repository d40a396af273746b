//! The record of the places that code in sandboxes could write, in the state directory of each workspace: what such code
//! has left there, later sessions and commands must not run by mistake, with or without a sandbox.

use std::path::Path;

use super::{Error, state_dir_name};
use crate::connections::mcp_client::Guard;
use crate::ground::files::StateFile;
use crate::kernels::sandbox::Exposed;

/// The file in the state directory of a workspace.
const RECORD: &str = "exposed.json";

/// The directory in the state directory that MCP servers start in.
const SERVERS_DIRECTORY: &str = "servers";

/// Records that code in a sandbox in the workspace with this state directory can write to `exposed`.
///
/// # Errors
/// The record cannot be changed.
pub(super) fn record(state_dir: &Path, exposed: &Exposed) -> Result<(), Error> {
    let change = |recorded: &mut Exposed| recorded.add(exposed.clone());
    StateFile::new(state_dir.join(RECORD))
        .change(change)
        .map_err(|source| Error::StateDir { path: state_dir.to_owned(), source })
}

/// The places that code in sandboxes could write, in `workspace`, which has this state directory, and in those above it.
///
/// # Errors
/// A record cannot be read.
pub(crate) fn recorded(state_dir: &Path, workspace: &Path) -> Result<Exposed, Error> {
    let mut exposed = Exposed::default();
    for directory in workspace.ancestors() {
        let path = state_dir.with_file_name(state_dir_name(directory));
        let found = StateFile::new(path.join(RECORD)).find::<Exposed>();
        if let Some(found) = found.map_err(|source| Error::StateDir { path, source })? {
            exposed.add(found);
        }
    }
    Ok(exposed)
}

/// The guard of MCP servers that start in the workspace with this state directory.
pub(super) fn guard(state_dir: &Path, exposed: Exposed) -> Guard {
    Guard::new(state_dir.join(SERVERS_DIRECTORY), exposed)
}
