//! Connectors to MCP servers outside of a session, and the login of users for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{exposures, states_dir, workspace_state_dir};
use crate::connections::mcp_client::{Connector, StartGuard};
use crate::ground::env::Variables;
use crate::ground::text::describe;
use crate::ground::text::visible::word;
use crate::kernels::sandbox::ExposedPlaces;

/// A connector to MCP servers for a process in its current directory, without a session.
pub(crate) fn connector_here() -> Connector {
    // A process without a working directory starts servers in the root.
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let variables = Variables::load(&directory);
    connector_at(directory, Arc::new(variables))
}

/// A connector to MCP servers for a process in `directory`, without a session. Logins are where `ipybox login` keeps
/// them there.
pub(crate) fn connector_at(directory: PathBuf, variables: Arc<Variables>) -> Connector {
    let states = states_dir(None, &variables)
        .inspect_err(|error| tracing::warn!("no logins are known: failed to {}", describe(error)))
        .ok();
    let Some(states) = states else {
        return Connector::new(variables, directory, StartGuard::without_directory());
    };
    let directory = directory.canonicalize().unwrap_or(directory);
    let state_dir = workspace_state_dir(&states, &directory);
    let flags = login_flags(&directory, None);
    connector_in(&state_dir, directory, variables).with_accounts_in(state_dir, &flags, None)
}

/// A connector to MCP servers for a process in `directory`, whose state directory this is.
pub(crate) fn connector_in(state_dir: &Path, directory: PathBuf, variables: Arc<Variables>) -> Connector {
    let exposed = exposures::recorded(state_dir, &directory).unwrap_or_else(|error| {
        tracing::error!("no MCP server is started: failed to {}", describe(&error));
        ExposedPlaces::everywhere()
    });
    Connector::new(variables, directory, exposures::guard(state_dir, exposed))
}

/// The flags by which a command of `ipybox` finds the state of `workspace`, with a blank before each.
pub(super) fn login_flags(workspace: &Path, state_dir: Option<&Path>) -> String {
    let state_dir = state_dir.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let flags = std::iter::once(("--workspace", workspace))
        .chain(state_dir.as_deref().map(|path| ("--state-dir", path)));
    flags.map(|(flag, path)| format!(" {flag} {}", word(&path.to_string_lossy()))).collect()
}
