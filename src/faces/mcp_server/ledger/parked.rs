//! Calls that wait for their client to come back with answers (MCP 2026-07-28, multi round-trip requests).
//!
//! The client is not trusted: the request state is an unguessable name of the call, the call must have the same tool and
//! arguments, and it can be resumed once.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::CallToolRequestParams;

use super::CallLedger;
use super::awaited::AwaitedCall;
use super::call::{CallState, ParkedCall};
use crate::faces::mcp_server::questions::{SentSheets, unguessable};

/// A call that its client has taken up.
pub(in crate::faces::mcp_server) struct ResumedCall {
    pub(in crate::faces::mcp_server) call: AwaitedCall,
    /// The questions that its client was sent.
    pub(in crate::faces::mcp_server) sent: SentSheets,
    /// The number of rounds that it has been asked.
    pub(in crate::faces::mcp_server) rounds: u32,
}

impl AwaitedCall {
    /// Has the call wait until its client comes back with answers to the questions that it is sent. Returns the request state.
    pub(in crate::faces::mcp_server) fn park(
        mut self,
        sent: SentSheets,
        rounds: u32,
        request: &CallToolRequestParams,
    ) -> String {
        // The client receives nothing before it comes back, if it does.
        self.handle.attend(false);
        self.handle.send_progress_to(None);
        self.release();
        let tool = request.name.to_string();
        let arguments = request.arguments.clone();
        let parked = ParkedCall { token: unguessable(), tool, arguments, rounds };
        let token = parked.token.clone();
        self.ledger.change(|state| {
            if let Some(call) = state.call(self.number) {
                call.state = CallState::Parked(parked);
                call.sent = sent;
            }
            state.give_up_surplus()
        });
        token
    }
}

impl CallLedger {
    /// Takes up a parked call.
    ///
    /// # Errors
    /// None waits under this token, or it is of another tool or has other arguments.
    pub(in crate::faces::mcp_server) fn resume(
        self: &Arc<Self>,
        token: &str,
        request: &CallToolRequestParams,
    ) -> Result<ResumedCall, ErrorData> {
        let mut state = self.state.lock();
        let parked = state.calls.iter_mut().find_map(|call| match &call.state {
            CallState::Parked(parked) if parked.token == token => {
                let is_same = parked.tool == request.name && parked.arguments == request.arguments;
                Some((is_same, parked.rounds, call))
            }
            _ => None,
        });
        let Some((is_same, rounds, call)) = parked else {
            let message = "no call waits under this `requestState`: it was taken up already, or given up";
            return Err(ErrorData::invalid_params(message, None));
        };
        if !is_same {
            let message = "`requestState` belongs to a call of another tool or with other arguments";
            return Err(ErrorData::invalid_params(message, None));
        }
        call.state = CallState::Awaited { given_up: None, asks_together: false };
        let sent = std::mem::take(&mut call.sent);
        Ok(ResumedCall { call: AwaitedCall::new(self, call.number, Arc::clone(&call.handle)), sent, rounds })
    }
}
