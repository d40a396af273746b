//! The answers to requests: with those that may not have reached the client before.

use std::time::Instant;

use rmcp::model::CallToolResult;

use super::deliveries::{CallId, SentAnswer, UnderWay};
use super::unfetched_answers::{RepeatedAnswer, UndeliveredReason, UnfetchedAnswer, prepend, text_of};
use super::{CallLedger, CallState, LedgerState};
use crate::faces::mcp_server::queue::{SETTLING, SessionQueue};
use crate::session::Session;

/// An answer to a request, about to be sent.
pub(in crate::faces::mcp_server) struct OutgoingAnswer {
    /// The name of the call.
    pub(in crate::faces::mcp_server) call: String,
    pub(in crate::faces::mcp_server) result: CallToolResult,
    /// The news at its beginning.
    pub(in crate::faces::mcp_server) news: Vec<String>,
    /// Whether the model requests the last answers again, by a cell without code.
    pub(in crate::faces::mcp_server) is_recall: bool,
}

impl CallLedger {
    /// Records a request that has arrived.
    pub(in crate::faces::mcp_server) fn arrive(&self, id: &CallId, request: UnderWay) {
        self.state.lock().deliveries.begin(id.clone(), request);
    }

    /// Removes a request that is answered with something else than a result.
    pub(in crate::faces::mcp_server) fn forget(&self, id: &CallId) {
        self.change(|state| state.deliveries.forget(id));
    }

    /// Handles a cancellation after the answer. [`answer`](Self::answer) handles one that comes before.
    pub(in crate::faces::mcp_server) fn cancelled(&self, id: &CallId) {
        self.state.lock().deliveries.cancelled(id, Instant::now());
    }

    /// Whether there has been a call.
    pub(in crate::faces::mcp_server) fn has_begun(&self) -> bool {
        self.state.lock().deliveries.has_begun()
    }

    /// Keeps an answer whose client is not there.
    pub(in crate::faces::mcp_server) async fn keep(&self, answer: UnfetchedAnswer, session: &Session) {
        let UnfetchedAnswer { call, text, why, after } = answer;
        let earlier = RepeatedAnswer::with_file(&call, &text, why, after, session).await;
        self.state.lock().deliveries.keep(earlier);
    }

    /// Waits, not for long, until the cells are done whose answers the answer to a request should repeat: that came before it in
    /// its queue, and for which nobody waits. After that a later answer repeats them.
    pub(in crate::faces::mcp_server) async fn settle(
        &self,
        id: &CallId,
        queue: &SessionQueue,
        arrived: Instant,
    ) {
        let settled = self.until(|state| (!state.is_unsettled(id, queue, arrived)).then_some(()));
        tokio::time::timeout(SETTLING, settled).await.ok();
    }

    /// Keeps the answers of calls that no request will fetch, each once. A client that comes back later still gets its own.
    pub(in crate::faces::mcp_server) async fn keep_unfetched(&self, session: &Session) {
        let unfetched: Vec<UnfetchedAnswer> = {
            let mut state = self.state.lock();
            let unfetched = state.calls.iter_mut().filter_map(|call| call.unfetched()).collect();
            state.calls.retain(|call| !(call.is_left() && call.is_delivered));
            unfetched
        };
        for answer in unfetched {
            self.keep(answer, session).await;
        }
    }

    /// Adds the answers that may not have reached the client to the answer to a request, and keeps this one if it may not
    /// reach the client either.
    pub(in crate::faces::mcp_server) async fn answer(
        &self,
        id: &CallId,
        answer: OutgoingAnswer,
        session: &Session,
    ) -> CallToolResult {
        let OutgoingAnswer { call, mut result, news, is_recall } = answer;
        // If it is lost, so are the news.
        let own = text_of(&result);
        let text = news.iter().chain([&own]).map(String::as_str).collect::<Vec<_>>().join("\n\n");
        let (why, after) = self.state.lock().deliveries.judge(id, Instant::now());
        let mut own = match why {
            UndeliveredReason::Sent => RepeatedAnswer::new(&call, &text, why, after),
            _ => RepeatedAnswer::with_file(&call, &text, why, after, session).await,
        };
        own.has_failed = result.is_error == Some(true);
        let sent = SentAnswer { id: id.clone(), at: Instant::now(), own, carried: Vec::new(), is_recall };
        let repeated = self.change(|state| state.deliveries.send(why, sent));
        prepend(&repeated, &mut result);
        prepend(&news, &mut result);
        result
    }
}

impl LedgerState {
    /// Whether an earlier cell in a request's queue is not done whose answer that of the request should repeat.
    fn is_unsettled(&self, id: &CallId, queue: &SessionQueue, arrived: Instant) -> bool {
        let is_open = self.calls.iter().any(|call| {
            let is_before = match call.state {
                CallState::Left(_) => call.cell().is_none(),
                CallState::Parked(_) => call.about().begun < arrived && !call.is_delivered,
                CallState::Awaited { .. } | CallState::Task(_) => false,
            };
            is_before && call.is_open_in(queue)
        });
        is_open || self.deliveries.has_to_wait(id)
    }
}
