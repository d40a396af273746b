//! A request that waits for a call, and when it stops.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::asking_turn::AskingTurns;

/// A request that waits for a call.
#[derive(Clone, Copy)]
pub(in crate::faces::mcp_server) struct WaitingRequest<'a> {
    /// Cancelled when the client cancels the call.
    pub(in crate::faces::mcp_server) cancelled: &'a CancellationToken,
    pub(in crate::faces::mcp_server) leave: &'a LeaveTime,
    /// The turns to ask the user by elicitation.
    pub(in crate::faces::mcp_server) turns: &'a AskingTurns,
}

/// When a request stops waiting for its work, which goes on.
#[derive(Clone)]
pub(in crate::faces::mcp_server) struct LeaveTime {
    /// Cancelled when the client is gone.
    pub(in crate::faces::mcp_server) closed: CancellationToken,
    /// Cancelled when the client no longer wants to wait.
    pub(in crate::faces::mcp_server) given_up: CancellationToken,
    /// When the client wants an answer.
    pub(in crate::faces::mcp_server) at: Option<Instant>,
}

impl LeaveTime {
    /// Waits until it is time to leave.
    pub(in crate::faces::mcp_server) async fn come(&self) {
        let given_up = async {
            tokio::select! {
                () = self.closed.cancelled() => {}
                () = self.given_up.cancelled() => {}
            }
        };
        match self.at {
            Some(at) => drop(tokio::time::timeout_at(at, given_up).await),
            None => given_up.await,
        }
    }
}
