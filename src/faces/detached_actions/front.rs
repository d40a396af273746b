//! The server of a team whose user calls actions: it has the user's tokens, and asks approvers.

use std::path::Path;

use serde::Deserialize;

use crate::approval::ApproverLine;
use crate::ground::env::{IPYBOX_SESSION_TOKEN, Variables};
use crate::ground::files::{FrontServer, FrontSocket};

/// The name that questions to approvers have in place of a session's id.
const SESSION: &str = "actions";

/// The server of a team, as it describes itself to the process that serves actions to a user.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct ActionTeam(FrontServer);

/// The ways of kernels to that server.
#[derive(Clone)]
pub(crate) struct ActionFront {
    pub(crate) socket: FrontSocket,
    /// The line to approvers whom rules name, if they can be asked.
    pub(super) approvers: Option<ApproverLine>,
}

impl ActionTeam {
    /// The ways to it, with this line to approvers; `None` without the user's token in the process environment.
    pub(crate) fn front(&self, workspace: &Path, line: ApproverLine) -> Option<ActionFront> {
        let Self(server) = self;
        let variables = Variables::load(workspace);
        let socket = server.for_session(SESSION.to_owned(), variables.in_process(IPYBOX_SESSION_TOKEN)?);
        Some(ActionFront { socket, approvers: server.approvals.then_some(line) })
    }
}
