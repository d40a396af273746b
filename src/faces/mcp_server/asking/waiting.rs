//! A request that waits for a call, and when it stops.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::asking_turn::Together;
use crate::faces::mcp_server::left_calls::LeftCalls;

/// A request that waits for a call.
#[derive(Clone, Copy)]
pub(in crate::faces::mcp_server) struct WaitingRequest<'a> {
    /// Cancelled when the client cancels the call.
    pub(in crate::faces::mcp_server) cancelled: &'a CancellationToken,
    pub(in crate::faces::mcp_server) leave: &'a Leave,
    /// Other calls, whose questions the request asks too.
    pub(in crate::faces::mcp_server) left: &'a LeftCalls,
    /// Other calls, whose questions are asked with those of this one.
    pub(in crate::faces::mcp_server) together: &'a Together,
}

/// When a request stops waiting for its work, which goes on.
#[derive(Clone)]
pub(in crate::faces::mcp_server) struct Leave {
    /// Cancelled when the client is gone.
    pub(in crate::faces::mcp_server) closed: CancellationToken,
    /// Cancelled when the client no longer wants to wait.
    pub(in crate::faces::mcp_server) given_up: CancellationToken,
    /// When the client wants an answer.
    pub(in crate::faces::mcp_server) at: Option<Instant>,
}

impl Leave {
    /// Waits until it is time to leave.
    pub(in crate::faces::mcp_server) async fn come(&self) {
        let time = async {
            match self.at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = self.given_up.cancelled() => {}
            () = time => {}
        }
    }
}
