//! Answers that may not have reached the client. The next answer repeats them.
//!
//! MCP has no receipt for an answer. A client that cancels a request certainly ignores its answer. A client
//! that gives up without a cancellation (the Python SDK 1.x does after its timeout) looks like one that
//! waits, but for two signs: it sends another call while the first is still running, or it has waited long.
//! Both are also true of clients that do get their answers. After the first sign a short excerpt is repeated,
//! after the second a line names the file with the answer. [`Deliveries::judge`] has the signs of a client that
//! waits. For all other cases, a cell without code returns the last answers again.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{ProtocolVersion, RequestId};
use rmcp::service::RequestContext;
use tokio_util::sync::CancellationToken;

use super::unfetched_answers::{RepeatedAnswer, UndeliveredReason};
use crate::faces::mcp_server::arrivals::CallArrival;
use crate::faces::mcp_server::queue::SessionQueue;

/// A call that arrives this long after another one means that the client may have given up on the first:
/// parallel calls are sent at once, and no client gives up as fast.
const OVERTAKEN_AFTER: Duration = Duration::from_secs(1);

/// The answer to a call that takes longer is in doubt for that alone. It is a common timeout of clients.
const LONG: Duration = Duration::from_secs(60);

/// A request that comes so soon after an answer was caused by it: nobody who has given up on that answer would
/// meet the moment by chance. Programs are that fast, models are not.
const AT_ONCE: Duration = Duration::from_millis(250);

/// The number of answers, the newest, that are kept for the next one. A client that cancels calls by the hundred must
/// not make it huge.
const KEPT: usize = 8;

/// The number of sent answers that are remembered, in case a cancellation crosses its answer.
const REMEMBERED: usize = 4;

/// An answer that was sent so long before the end of a connection was probably read: it is repeated in short.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// A call: requests of different connections may have the same id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::faces::mcp_server) struct CallId {
    pub(in crate::faces::mcp_server) connection: u64,
    pub(in crate::faces::mcp_server) id: RequestId,
}

/// The requests under way, and the answers of a session that may not have reached its clients.
#[derive(Default)]
pub(super) struct Deliveries {
    under_way: HashMap<CallId, UnderWay>,
    /// The answers that the next one repeats, oldest first.
    kept: VecDeque<KeptAnswer>,
    /// The newest answers that were sent.
    sent: VecDeque<SentAnswer>,
    /// When the newest request came: its client has read what was sent before.
    newest: Option<Instant>,
    /// The time that the client of a connection has waited before it cancelled a call: it does not give up sooner.
    patience: HashMap<u64, Duration>,
}

/// An answer that the next one repeats.
struct KeptAnswer {
    earlier: RepeatedAnswer,
    /// The call and the time, if the answer was sent nevertheless.
    sent: Option<(CallId, Instant)>,
}

/// A request that is being worked on.
pub(in crate::faces::mcp_server) struct UnderWay {
    arrival: CallArrival,
    /// The queue in which it waits for the cells before it, if it does.
    queue: Option<SessionQueue>,
    /// Cancelled with the request.
    cancelled: CancellationToken,
    /// Whether the protocol obliges the client to cancel requests that it gives up on.
    must_cancel: bool,
    /// Whether the client gets progress notifications for it.
    has_progress: bool,
    is_overtaken: bool,
}

/// An answer that was sent, with the earlier ones that it repeated.
pub(super) struct SentAnswer {
    pub(super) id: CallId,
    pub(super) at: Instant,
    pub(super) own: RepeatedAnswer,
    pub(super) carried: Vec<RepeatedAnswer>,
    /// Whether its model requested the last answers again.
    pub(super) is_recall: bool,
}

impl UnderWay {
    /// The request with this context, in its queue, if it has one.
    pub(in crate::faces::mcp_server) fn new(
        queue: Option<SessionQueue>,
        context: &RequestContext<RoleServer>,
    ) -> Self {
        let version = context.protocol_version();
        Self {
            arrival: CallArrival::of(&context.extensions),
            queue,
            cancelled: context.ct.clone(),
            must_cancel: version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28),
            has_progress: context.meta.get_progress_token().is_some(),
            is_overtaken: false,
        }
    }
}

impl Deliveries {
    /// Whether there has been a call.
    pub(super) fn has_begun(&self) -> bool {
        self.newest.is_some()
    }

    /// Removes a request that is answered with something else than a result.
    pub(super) fn forget(&mut self, id: &CallId) {
        self.under_way.remove(id);
    }

    /// Ends a connection: unless all `was_read`, what was sent on it after the last request may not have been. Its client
    /// may have been stopped long before its end, as by a sleeping machine.
    pub(super) fn disconnected(&mut self, connection: u64, was_read: bool, now: Instant) {
        self.under_way.retain(|call, _| call.connection != connection);
        self.patience.remove(&connection);
        if was_read {
            return;
        }
        let newest = self.newest;
        for kept in &mut self.kept {
            let is_own = |(call, at): &(CallId, Instant)| call.connection == connection && Some(*at) > newest;
            if kept.sent.as_ref().is_some_and(is_own) {
                kept.earlier.lose();
            }
        }
        let is_last = |sent: &SentAnswer| sent.id.connection == connection && Some(sent.at) > newest;
        let last: Vec<CallId> =
            self.sent.iter().filter(|sent| is_last(sent)).map(|sent| sent.id.clone()).collect();
        for sent in self.sent.iter_mut().filter(|sent| last.contains(&sent.id)) {
            let was_probably_read = now.duration_since(sent.at) > LAST_MOMENT;
            sent.own.doubt(was_probably_read);
            if was_probably_read {
                sent.carried.retain_mut(RepeatedAnswer::is_to_be_repeated);
            }
        }
        for id in last {
            self.take_back(&id);
        }
    }

    /// Keeps an answer whose client has not come back for it.
    pub(super) fn keep(&mut self, earlier: RepeatedAnswer) {
        self.keep_for_next(KeptAnswer { earlier, sent: None });
    }

    pub(super) fn begin(&mut self, id: CallId, call: UnderWay) {
        // Agents beside each other have cells in different sessions at the same time.
        let is_beside = |earlier: &UnderWay| {
            earlier.queue.as_ref().zip(call.queue.as_ref()).is_some_and(|(earlier, own)| earlier != own)
        };
        for earlier in self.under_way.values_mut().filter(|earlier| !is_beside(earlier)) {
            earlier.is_overtaken |= call.arrival.at.duration_since(earlier.arrival.at) > OVERTAKEN_AFTER;
        }
        self.newest = Some(call.arrival.at);
        self.settle_doubts(id.connection, call.arrival.at);
        self.under_way.insert(id, call);
    }

    /// Believes that answers in doubt have arrived, if a request on their connection follows them at once.
    fn settle_doubts(&mut self, connection: u64, arrived: Instant) {
        for KeptAnswer { earlier, sent } in std::mem::take(&mut self.kept) {
            let is_followed = |(call, at): &(CallId, Instant)| {
                let after = arrived.checked_duration_since(*at);
                call.connection == connection && after.is_some_and(|after| after < AT_ONCE)
            };
            match sent {
                Some(sent) if earlier.is_line() && is_followed(&sent) => {
                    self.remember_alone(sent.0, sent.1, earlier);
                }
                sent => self.kept.push_back(KeptAnswer { earlier, sent }),
            }
        }
    }

    /// Whether an earlier cell whose answer may be lost is still under way.
    pub(super) fn has_to_wait(&self, id: &CallId) -> bool {
        let Some(own) = self.under_way.get(id) else { return false };
        let is_lost = |call: &UnderWay| call.cancelled.is_cancelled() || call.is_overtaken;
        let is_before =
            |call: &&UnderWay| call.queue == own.queue && call.arrival.number < own.arrival.number;
        own.queue.is_some() && self.under_way.values().filter(is_before).any(is_lost)
    }

    /// Why the answer to a request may not reach the client, and how long it took. A client waits if it has to cancel
    /// what it gives up on, or has waited longer for another call before it cancelled that. One that gets progress
    /// notifications probably waits.
    pub(super) fn judge(&self, id: &CallId, now: Instant) -> (UndeliveredReason, Duration) {
        let Some(call) = self.under_way.get(id) else { return (UndeliveredReason::Sent, Duration::ZERO) };
        let after = now.duration_since(call.arrival.at);
        let has_patience = self.patience.get(&id.connection).is_some_and(|patience| *patience >= after);
        let why = if call.cancelled.is_cancelled() {
            UndeliveredReason::Cancelled
        } else if call.must_cancel || has_patience {
            UndeliveredReason::Sent
        } else if call.is_overtaken && !call.has_progress {
            UndeliveredReason::Overtaken
        } else if call.is_overtaken || after > LONG && !call.has_progress {
            UndeliveredReason::InDoubt
        } else {
            UndeliveredReason::Sent
        };
        (why, after)
    }

    /// Records an answer that is sent now, unless its request was cancelled. Returns the texts of earlier
    /// answers to send with it.
    pub(super) fn send(&mut self, why: UndeliveredReason, mut answer: SentAnswer) -> Vec<String> {
        let call = self.under_way.remove(&answer.id);
        // It may have been cancelled since `judge`; later cancellations go to `take_back`.
        if why == UndeliveredReason::Cancelled || call.is_some_and(|call| call.cancelled.is_cancelled()) {
            self.keep_for_next(KeptAnswer { earlier: answer.own, sent: None });
            return Vec::new();
        }
        let carried = std::mem::take(&mut self.kept);
        let earlier = carried.iter().map(|kept| &kept.earlier);
        let repeated: Vec<String> = if answer.is_recall {
            self.last().chain(earlier).map(RepeatedAnswer::short_text).collect()
        } else {
            earlier.map(RepeatedAnswer::text).collect()
        };
        if why == UndeliveredReason::Sent {
            answer.carried.extend(carried.into_iter().map(|kept| kept.earlier));
            self.remember(answer);
            return repeated;
        }
        // This answer may be lost, and the earlier ones in it.
        for mut kept in carried {
            if kept.earlier.is_to_be_repeated() {
                self.kept.push_back(kept);
            } else if let Some(sent) = kept.sent {
                self.remember_alone(sent.0, sent.1, kept.earlier);
            }
        }
        self.keep_for_next(KeptAnswer { earlier: answer.own, sent: Some((answer.id, answer.at)) });
        repeated
    }

    /// Remembers an answer that has probably arrived.
    fn remember(&mut self, sent: SentAnswer) {
        self.sent.push_back(sent);
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
    }

    fn remember_alone(&mut self, id: CallId, at: Instant, own: RepeatedAnswer) {
        self.remember(SentAnswer { id, at, own, carried: Vec::new(), is_recall: false });
    }

    /// The last answers that were sent, with those that they repeated, for a recall.
    fn last(&self) -> impl Iterator<Item = &RepeatedAnswer> {
        let sent = self.sent.iter().filter(|sent| !sent.is_recall);
        sent.flat_map(|sent| sent.carried.iter().chain([&sent.own]))
    }

    /// Handles a cancellation, which may come after the answer.
    pub(super) fn cancelled(&mut self, id: &CallId, now: Instant) {
        if let Some(call) = self.under_way.get(id) {
            let waited = now.duration_since(call.arrival.at);
            let patience = self.patience.entry(id.connection).or_default();
            *patience = waited.max(*patience);
        }
        let is_own = |kept: &&mut KeptAnswer| kept.sent.as_ref().is_some_and(|(sent, _)| sent == id);
        if let Some(kept) = self.kept.iter_mut().find(is_own) {
            kept.earlier.lose();
        }
        self.take_back(id);
    }

    /// Keeps an answer that was sent in vain, and those that it repeated.
    fn take_back(&mut self, id: &CallId) {
        let place = self.sent.iter().position(|sent| sent.id == *id);
        let Some(SentAnswer { mut own, carried, .. }) = place.and_then(|place| self.sent.remove(place))
        else {
            return;
        };
        own.lose();
        for earlier in carried.into_iter().rev() {
            self.kept.push_front(KeptAnswer { earlier, sent: None });
        }
        self.keep_for_next(KeptAnswer { earlier: own, sent: None });
    }

    fn keep_for_next(&mut self, kept: KeptAnswer) {
        self.kept.push_back(kept);
        while self.kept.len() > KEPT {
            self.kept.pop_front();
            tracing::warn!("too many answers were not taken by the client; the oldest is given up");
        }
    }
}

#[cfg(test)]
mod tests;
