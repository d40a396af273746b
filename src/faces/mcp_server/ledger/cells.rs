//! Cells that a model waits for in pieces, by their numbers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::CallToolResult;
use tokio_util::sync::CancellationToken;

use super::awaited::AwaitedCall;
use super::call::{CallState, LedgerCall};
use super::unfetched_answers::{prepend, text_of};
use super::{CallLedger, LedgerState, MOST_CALLS};
use crate::faces::mcp_server::reply;
use crate::ground::text::cell_id;

/// The time that a request may take to stop waiting for a cell.
const GIVING_WAY: Duration = Duration::from_secs(5);

/// The number of cells, the newest, whose answers can be fetched again.
const REFETCHABLE: usize = 4;

/// The numbers of cells, and the answers of those that have ended.
#[derive(Default)]
pub(super) struct CellAnswers {
    /// The number of the newest cell.
    newest: u64,
    /// The cells whose answers nobody has fetched in time.
    given_up: BTreeSet<u64>,
    /// The answers that were fetched, the newest last.
    fetched: VecDeque<(u64, CallToolResult)>,
}

impl CellAnswers {
    /// Notes that the answer of a cell cannot be fetched any more.
    pub(super) fn give_up(&mut self, cell: Option<u64>) {
        self.given_up.extend(cell);
    }
}

impl CallLedger {
    /// The number of a new cell.
    pub(in crate::faces::mcp_server) fn new_cell(&self) -> u64 {
        let cells = &mut self.state.lock().cells;
        cells.newest += 1;
        cells.newest
    }

    /// Waits for a cell that was left, until `given_up` is cancelled: the next one that wants to wait for it does that, since the
    /// client of this one may be gone without a word.
    ///
    /// # Errors
    /// Nobody can wait for it; the text says why, and which there are.
    pub(in crate::faces::mcp_server) async fn take(
        self: &Arc<Self>,
        cell: u64,
        given_up: &CancellationToken,
    ) -> Result<AwaitedCall, String> {
        let earlier = self.state.lock().request_for(cell);
        if let Some(earlier) = earlier {
            earlier.cancel();
            let left = self.until(|state| state.request_for(cell).is_none().then_some(()));
            tokio::time::timeout(GIVING_WAY, left).await.ok();
        }
        let mut state = self.state.lock();
        let is_wanted = |call: &&mut LedgerCall| call.cell() == Some(cell) && call.is_left();
        let Some(call) = state.calls.iter_mut().find(is_wanted) else { return Err(state.why_not(cell)) };
        call.state = CallState::Awaited { given_up: Some(given_up.clone()), asks_together: false };
        Ok(AwaitedCall::new(self, call.number, Arc::clone(&call.handle)))
    }

    /// Keeps what was fetched for a cell, should its client have given up on that without a word and fetch it again.
    pub(in crate::faces::mcp_server) fn note_fetched(&self, cell: u64, answer: &CallToolResult) {
        let mut again = match answer.is_error {
            Some(true) => reply::failure(text_of(answer)),
            _ => reply::success(text_of(answer)),
        };
        prepend(&[format!("[`{}` was answered before. Its answer again:]", cell_id(cell))], &mut again);
        let fetched = &mut self.state.lock().cells.fetched;
        fetched.push_back((cell, again));
        if fetched.len() > REFETCHABLE {
            fetched.pop_front();
        }
    }

    /// The answer that was fetched for a cell.
    pub(in crate::faces::mcp_server) fn fetched(&self, cell: u64) -> Option<CallToolResult> {
        let state = self.state.lock();
        state.cells.fetched.iter().find(|(number, _)| *number == cell).map(|(_, answer)| answer.clone())
    }
}

impl LedgerState {
    /// Has the request stop that waits for a cell, if another one may take its place.
    fn request_for(&self, cell: u64) -> Option<CancellationToken> {
        self.calls.iter().find_map(|call| match &call.state {
            CallState::Awaited { given_up, .. } if call.cell() == Some(cell) => given_up.clone(),
            _ => None,
        })
    }

    fn why_not(&self, cell: u64) -> String {
        let id = cell_id(cell);
        let is_awaited = |call: &LedgerCall| call.cell() == Some(cell) && call.is_awaited();
        if self.calls.iter().any(is_awaited) {
            return format!("another call waits for `{id}`");
        }
        let why = match cell {
            _ if self.cells.given_up.contains(&cell) => {
                format!("the answer of `{id}` was given up: more than {MOST_CALLS} were not fetched")
            }
            1.. if cell <= self.cells.newest => format!("`{id}` has been answered"),
            _ => format!("there is no cell `{id}`"),
        };
        let left = self.calls.iter().filter(|call| call.is_left()).filter_map(LedgerCall::cell);
        let others: Vec<String> = left.map(|cell| format!("`{}`", cell_id(cell))).collect();
        if others.is_empty() {
            format!("{why}, and none waits for its answer")
        } else {
            format!("{why}; there are {}", others.join(", "))
        }
    }
}
