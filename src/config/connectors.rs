//! What connects to MCP servers outside of a session, and how users log in for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{states_dir, workspace_state_dir};
use crate::connections::mcp_client::Connector;
use crate::ground::env::Variables;
use crate::ground::text::describe;
use crate::ground::text::visible::word;

/// What connects to MCP servers for a process in its current directory, without a session.
pub(crate) fn connector_here() -> Connector {
    // A process without a working directory starts servers in the root.
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let variables = Variables::load(&directory);
    connector_at(directory, Arc::new(variables))
}

/// What connects to MCP servers for a process in `directory`, without a session. Logins are where `ipybox login` keeps
/// them there.
pub(crate) fn connector_at(directory: PathBuf, variables: Arc<Variables>) -> Connector {
    let states = states_dir(None, &variables)
        .inspect_err(|error| tracing::warn!("no logins are known: failed to {}", describe(error)))
        .ok();
    let connector = Connector::new(variables, directory.clone());
    let Some(states) = states else { return connector };
    let directory = directory.canonicalize().unwrap_or(directory);
    connector.with_accounts_in(workspace_state_dir(&states, &directory), &login_flags(&directory, None))
}

/// The flags by which a command of `ipybox` finds the state of `workspace`, with a blank before each.
pub(super) fn login_flags(workspace: &Path, state_dir: Option<&Path>) -> String {
    let state_dir = state_dir.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let flags = std::iter::once(("--workspace", workspace))
        .chain(state_dir.as_deref().map(|path| ("--state-dir", path)));
    flags.map(|(flag, path)| format!(" {flag} {}", word(&path.to_string_lossy()))).collect()
}
