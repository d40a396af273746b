//! Host side of tool calls from a remote kernel; `ipybox_carrier.py` is the kernel side.
//!
//! A call comes in parts, on iopub; its answer goes in parts, on control. Each part of an answer is
//! acknowledged. Parts that a broken connection has lost are sent again when the kernel reports that a call
//! still waits. No call runs twice.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};

use super::parts::{KernelChannel, MessageParts};
use crate::ground::budget::{ANSWERS, Budget, BudgetExcess, CALLS, Lease, MESSAGE_BYTES};

/// The number of calls that a kernel may have at the same time: as many as come over a network.
const CALLS_MAX: usize = 1024;

/// The longest id, in bytes; ours have 32.
const ID_BYTES_MAX: usize = 64;

/// The most parts of a call. A part has 256 Ki characters, of one byte at least.
const PARTS_MAX: usize = 1024;

/// The longest text in one message, in bytes. Servers refuse messages of more than 10 MiB.
const PART_BYTES: usize = 512 * 1024;

/// The number of ids of finished calls that are remembered.
const REMEMBERED: usize = 4096;

/// Answers the calls of a kernel's code.
pub(crate) trait CallHandler: Send + Sync {
    /// Answers a call of `path`, with a status and a text as in HTTP. Dropping the future cancels the call.
    fn handle(&self, path: String, body: String) -> BoxFuture<'static, (u16, Bytes)>;
}

/// The memory budgets of calls and their answers.
#[derive(Clone, Copy)]
struct Budgets {
    calls: &'static Budget,
    answers: &'static Budget,
}

/// A kernel's message about a call.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum CallMessage {
    /// A part of it.
    Part { path: String, part: usize, parts: usize, text: String },
    /// The call still waits, after a long time.
    Waiting { is_waiting: bool },
    /// The call was cancelled.
    Cancelled { is_cancelled: bool },
}

/// The calls of one kernel.
pub(super) struct RemoteCalls {
    handler: Arc<dyn CallHandler>,
    budgets: Budgets,
    by_id: HashMap<String, RemoteCall>,
    running: JoinSet<(String, u16, Bytes)>,
    /// The ids of finished calls, the oldest first.
    over: VecDeque<String>,
}

/// A call, with the memory lease for its parts.
struct RemoteCall {
    state: RemoteCallState,
    bytes: usize,
    lease: Lease,
}

enum RemoteCallState {
    /// Some parts are missing.
    Incomplete(Vec<Option<String>>),
    Running(AbortHandle),
    /// It is answered; these parts of the answer are not acknowledged yet.
    Answered(Vec<(usize, MessageParts)>),
}

impl RemoteCalls {
    pub(super) fn new(handler: Arc<dyn CallHandler>) -> Self {
        Self::within(Budgets { calls: &CALLS, answers: &ANSWERS }, handler)
    }

    fn within(budgets: Budgets, handler: Arc<dyn CallHandler>) -> Self {
        Self { handler, budgets, by_id: HashMap::new(), running: JoinSet::new(), over: VecDeque::new() }
    }

    /// Handles a message about the call `id`, and returns the messages to send back.
    pub(super) fn take(&mut self, id: String, message: CallMessage) -> Vec<MessageParts> {
        if id.len() > ID_BYTES_MAX {
            return Vec::new();
        }
        match message {
            CallMessage::Part { path, part, parts, text } => self.take_part(id, path, part, parts, text),
            CallMessage::Waiting { is_waiting: true } => self.remind(&id),
            CallMessage::Cancelled { is_cancelled: true } => {
                self.forget(&id);
                Vec::new()
            }
            CallMessage::Waiting { .. } | CallMessage::Cancelled { .. } => Vec::new(),
        }
    }

    fn take_part(
        &mut self,
        id: String,
        path: String,
        part: usize,
        parts: usize,
        text: String,
    ) -> Vec<MessageParts> {
        let is_new = !self.by_id.contains_key(&id);
        if is_new && self.is_over(&id) {
            return Vec::new();
        }
        if is_new && self.by_id.len() >= CALLS_MAX {
            // The call is not remembered; the kernel reports it again in a while.
            return Vec::new();
        }
        let lease = self.budgets.calls.lease();
        let call = self.by_id.entry(id.clone()).or_insert_with(|| RemoteCall {
            state: RemoteCallState::Incomplete(vec![None; parts.clamp(1, PARTS_MAX)]),
            bytes: 0,
            lease,
        });
        let RemoteCallState::Incomplete(texts) = &mut call.state else { return Vec::new() };
        let bytes = call.bytes + text.len();
        if parts > PARTS_MAX || bytes > MESSAGE_BYTES {
            return self.answer(id, 413, &format!("the call is refused: {}", BudgetExcess::Long));
        }
        // While it is assembled, the text is held twice.
        if let Err(excess) = call.lease.grow(2 * bytes) {
            return self.answer(id, 503, &format!("the call is refused: {excess}"));
        }
        let Some(place) = texts.get_mut(part).filter(|place| place.is_none()) else { return Vec::new() };
        call.bytes = bytes;
        *place = Some(text);
        if texts.iter().all(Option::is_some) {
            let body: String = texts.drain(..).flatten().collect();
            // The handler takes its own lease.
            call.lease = self.budgets.calls.lease();
            let handling = AssertUnwindSafe(self.handler.handle(path, body)).catch_unwind();
            let task = self.running.spawn(async move {
                // The panic hook has logged what happened.
                let bug = |_| (500, Bytes::from("ipybox has a bug: the call made it panic; see its log"));
                let (status, text) = handling.await.unwrap_or_else(bug);
                (id, status, text)
            });
            call.state = RemoteCallState::Running(task);
        }
        Vec::new()
    }

    /// The messages for the next answered call. Without calls it never resolves. Cancellation safe.
    pub(super) async fn answered(&mut self) -> Vec<MessageParts> {
        loop {
            match self.running.join_next().await {
                Some(Ok((id, status, text))) => {
                    return self.answer(id, status, &String::from_utf8_lossy(&text));
                }
                // It was cancelled.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    fn answer(&mut self, id: String, status: u16, text: &str) -> Vec<MessageParts> {
        // It was cancelled after it was answered.
        let Some(call) = self.by_id.get_mut(&id) else { return Vec::new() };
        // As a text within JSON it may be twice as long.
        let mut lease = self.budgets.answers.lease();
        if let Err(excess) = lease.grow(2 * text.len()) {
            return self.answer(id, 503, &format!("the answer is refused: {excess}"));
        }
        let texts = cut(text);
        let count = texts.len();
        let parts: Vec<(usize, MessageParts)> = texts
            .into_iter()
            .enumerate()
            .map(|(part, text)| {
                let content =
                    json!({ "call": id, "part": part, "parts": count, "status": status, "text": text });
                (part, MessageParts::request(KernelChannel::Control, "ipybox_answer", &content).1)
            })
            .collect();
        let said = parts.iter().map(|(_, part)| part.clone()).collect();
        *call = RemoteCall { state: RemoteCallState::Answered(parts), bytes: text.len(), lease };
        said
    }

    /// Records that the kernel has received a part of an answer.
    pub(super) fn acknowledge(&mut self, id: &str, part: usize) {
        if let Some(RemoteCall { state: RemoteCallState::Answered(parts), .. }) = self.by_id.get_mut(id) {
            parts.retain(|(number, _)| *number != part);
            if parts.is_empty() {
                self.forget(id);
            }
        }
    }

    fn remind(&mut self, id: &str) -> Vec<MessageParts> {
        match self.by_id.get(id).map(|call| &call.state) {
            Some(RemoteCallState::Running(_)) => Vec::new(),
            Some(RemoteCallState::Answered(parts)) => parts.iter().map(|(_, part)| part.clone()).collect(),
            None if self.is_over(id) => Vec::new(),
            // The call never arrived, or not completely.
            Some(RemoteCallState::Incomplete(_)) | None => {
                vec![MessageParts::request(KernelChannel::Control, "ipybox_again", &json!({ "call": id })).1]
            }
        }
    }

    fn is_over(&self, id: &str) -> bool {
        self.over.iter().any(|over| over == id)
    }

    fn forget(&mut self, id: &str) {
        let Some(call) = self.by_id.remove(id) else { return };
        if let RemoteCallState::Running(task) = call.state {
            task.abort();
        }
        if self.over.len() >= REMEMBERED {
            self.over.pop_front();
        }
        self.over.push_back(id.to_owned());
    }
}

/// Splits a text into pieces of at most [`PART_BYTES`], at least one.
fn cut(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > PART_BYTES {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Echoes each call, and counts them.
    struct Echo;

    impl CallHandler for Echo {
        fn handle(&self, path: String, body: String) -> BoxFuture<'static, (u16, Bytes)> {
            Box::pin(async move { (200, format!("{path} {body}").into()) })
        }
    }

    fn part(part: usize, parts: usize, text: &str) -> CallMessage {
        CallMessage::Part { path: "/run".to_owned(), part, parts, text: text.to_owned() }
    }

    fn content(parts: &MessageParts) -> Value {
        serde_json::from_slice(parts.content()).unwrap()
    }

    fn calls() -> RemoteCalls {
        RemoteCalls::new(Arc::new(Echo))
    }

    const WAITING: CallMessage = CallMessage::Waiting { is_waiting: true };
    const CANCELLED: CallMessage = CallMessage::Cancelled { is_cancelled: true };

    #[tokio::test]
    async fn a_call_is_put_together_in_any_order_and_answered() {
        let mut calls = calls();
        for message in [part(1, 2, "b"), part(0, 2, "a")] {
            assert!(calls.take("1".to_owned(), message).is_empty());
        }
        let said = calls.answered().await;
        assert_eq!(content(&said[0])["text"], "/run ab");
    }

    #[tokio::test]
    async fn a_lost_answer_is_said_again_until_it_has_come() {
        let mut calls = calls();
        calls.take("1".to_owned(), part(0, 1, "a"));
        assert!(calls.take("1".to_owned(), WAITING).is_empty(), "it runs");
        let said = calls.answered().await;
        let again = calls.take("1".to_owned(), WAITING);
        assert_eq!(content(&said[0]), content(&again[0]));
        calls.acknowledge("1", 0);
        assert!(calls.take("1".to_owned(), WAITING).is_empty(), "it has come");
    }

    #[tokio::test]
    async fn a_lost_call_is_asked_for_again_and_none_runs_twice() {
        let mut calls = calls();
        calls.take("1".to_owned(), part(0, 2, "a"));
        for id in ["1", "2"] {
            let said = calls.take(id.to_owned(), WAITING);
            assert_eq!(content(&said[0])["call"], id);
        }
        calls.take("1".to_owned(), part(0, 2, "a"));
        calls.take("1".to_owned(), part(1, 2, "b"));
        calls.answered().await;
        calls.acknowledge("1", 0);
        calls.take("1".to_owned(), part(0, 1, "a"));
        assert!(calls.running.is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_call_does_not_run_on() {
        let mut calls = calls();
        calls.take("1".to_owned(), part(0, 1, "a"));
        calls.take("1".to_owned(), CANCELLED);
        let answered = tokio::time::timeout(std::time::Duration::from_millis(50), calls.answered()).await;
        assert!(answered.map_or(true, |said| said.is_empty()));
    }

    #[tokio::test]
    async fn no_more_is_held_than_is_meant_to_be() {
        static BUDGETS: [Budget; 2] = [Budget::new("others"), Budget::new("others")];
        let budgets = Budgets { calls: &BUDGETS[0], answers: &BUDGETS[1] };
        let mut calls = RemoteCalls::within(budgets, Arc::new(Echo));
        let long = "x".repeat(MESSAGE_BYTES);
        assert!(calls.take("1".to_owned(), part(0, 2, &long)).is_empty());
        let refusal = calls.take("2".to_owned(), part(0, 2, &long));
        assert_eq!(content(&refusal[0])["status"], 503);
        assert_eq!(calls.take("2".to_owned(), WAITING), refusal, "it may have been lost");
        assert_eq!(content(&calls.take("3".to_owned(), part(0, usize::MAX, ""))[0])["status"], 413);
        assert_eq!(content(&calls.take("1".to_owned(), part(1, 2, "x"))[0])["status"], 413);
        calls.take("1".to_owned(), CANCELLED);
        assert!(calls.take("4".to_owned(), part(0, 2, "x")).is_empty());
        for id in 0..2 * CALLS_MAX {
            calls.take(format!("many {id}"), part(0, 2, ""));
        }
        assert_eq!(calls.by_id.len(), CALLS_MAX);
        for id in 0..2 * CALLS_MAX {
            calls.take(format!("{id} of which nothing was known"), CANCELLED);
            calls.take("x".repeat(100 + id), part(0, 1, ""));
        }
        assert_eq!((calls.over.len(), calls.by_id.len()), (1, CALLS_MAX));
    }

    /// Panics at each call.
    struct Bug;

    impl CallHandler for Bug {
        fn handle(&self, _: String, _: String) -> BoxFuture<'static, (u16, Bytes)> {
            Box::pin(async { panic!("on purpose") })
        }
    }

    #[tokio::test]
    async fn a_panic_is_answered() {
        let mut calls = RemoteCalls::new(Arc::new(Bug));
        calls.take("1".to_owned(), part(0, 1, "a"));
        assert_eq!(content(&calls.answered().await[0])["status"], 500);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for text in [String::new(), "ü".repeat(PART_BYTES), "x".repeat(PART_BYTES)] {
            let pieces = cut(&text);
            assert!(pieces.iter().all(|piece| piece.len() <= PART_BYTES));
            assert_eq!(pieces.concat(), text);
        }
    }
}
