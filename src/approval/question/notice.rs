//! Notifies whoever watches a session of the questions that its user is asked, and of how they were decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::queue::ApprovalQueue;
use super::request::{Answer, Response};
use crate::approval::action::Action;

/// A question that somebody else is asked, or its end.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// A user is asked about this action.
    Asked { question: u64, action: Arc<Action> },
    /// The question is over.
    Decided { question: u64, how: &'static str },
    /// It was decided about this action without a question, in words.
    Ruled { action: Arc<Action>, how: String },
}

/// Gets the notices of a gate.
pub(crate) type Watcher = Box<dyn Fn(Notice) + Send + Sync>;

/// A question that is under way. Its end is announced when this is dropped.
pub(in crate::approval) struct Noticed<'a> {
    /// `None` if those who watch are asked themselves.
    watcher: Option<&'a Watcher>,
    question: u64,
    how: &'static str,
}

/// The number of the next question.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl<'a> Noticed<'a> {
    /// Announces that the user who reads `queue` is asked about `action`.
    pub(in crate::approval) fn begin(
        watcher: Option<&'a Watcher>,
        action: &Arc<Action>,
        queue: &ApprovalQueue,
    ) -> Self {
        let watcher = watcher.filter(|_| !queue.asks_people(action));
        let question = next_question();
        if let Some(watcher) = watcher {
            watcher(Notice::Asked { question, action: Arc::clone(action) });
        }
        Self { watcher, question, how: "taken back" }
    }

    /// Records the decision.
    pub(in crate::approval) fn decided(&mut self, response: &Response) {
        self.how = how(response);
    }
}

impl Drop for Noticed<'_> {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher {
            watcher(Notice::Decided { question: self.question, how: self.how });
        }
    }
}

/// The decision about a question that nobody has answered in time.
pub(crate) const EXPIRED: &str = "not answered in time";

/// The way a question was decided, in words.
pub(in crate::approval) fn how(response: &Response) -> &'static str {
    match response {
        Response::Expired => EXPIRED,
        Response::Dropped => "taken back",
        Response::Reply(reply) => words(reply.answer),
    }
}

/// A number that no other question has.
pub(crate) fn next_question() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// An answer in words.
pub(crate) fn words(answer: Answer) -> &'static str {
    match answer {
        Answer::Once => "allowed once",
        Answer::Session => "allowed for this session",
        Answer::Always => "allowed always",
        Answer::Grant => "allowed by a grant",
        Answer::No => "denied",
    }
}
