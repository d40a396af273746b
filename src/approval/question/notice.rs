//! Notifies whoever watches a session of the questions that its user is asked, and of how they were decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::queue::ApprovalQueue;
use super::request::{RequestEnd, UserAnswer};
use crate::approval::action::Action;

/// A question that somebody else is asked, or its end.
#[derive(Debug, Clone)]
pub(crate) enum QuestionNotice {
    /// A user is asked about this action.
    Asked { question: u64, action: Arc<Action> },
    /// The question is over.
    Decided { question: u64, how: &'static str },
    /// It was decided about this action without a question, in words.
    Ruled { action: Arc<Action>, how: String },
}

/// Gets the notices of a gate.
pub(crate) type QuestionWatcher = Box<dyn Fn(QuestionNotice) + Send + Sync>;

/// A question that is under way. Its end is announced when this is dropped.
pub(in crate::approval) struct NoticedQuestion<'a> {
    /// `None` if those who watch are asked themselves.
    watcher: Option<&'a QuestionWatcher>,
    question: u64,
    how: &'static str,
}

/// The number of the next question.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl<'a> NoticedQuestion<'a> {
    /// Announces that the user who reads `queue` is asked about `action`.
    pub(in crate::approval) fn begin(
        watcher: Option<&'a QuestionWatcher>,
        action: &Arc<Action>,
        queue: &ApprovalQueue,
    ) -> Self {
        let watcher = watcher.filter(|_| !queue.asks_people(action));
        let question = next_question();
        if let Some(watcher) = watcher {
            watcher(QuestionNotice::Asked { question, action: Arc::clone(action) });
        }
        Self { watcher, question, how: "taken back" }
    }

    /// Announces that approvers are asked about `action`.
    pub(in crate::approval) fn to_approvers(
        watcher: Option<&'a QuestionWatcher>,
        action: &Arc<Action>,
    ) -> Self {
        let question = next_question();
        if let Some(watcher) = watcher {
            watcher(QuestionNotice::Asked { question, action: Arc::clone(action) });
        }
        Self { watcher, question, how: "taken back" }
    }

    /// Records an approver's decision, or that there was none in time.
    pub(in crate::approval) fn decided_by_approver(&mut self, is_allowed: Option<bool>) {
        self.how = match is_allowed {
            Some(true) => "allowed by an approver",
            Some(false) => "denied by an approver",
            None => EXPIRED,
        };
    }

    /// Records the decision.
    pub(in crate::approval) fn decided(&mut self, response: &RequestEnd) {
        self.how = how(response);
    }
}

impl Drop for NoticedQuestion<'_> {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher {
            watcher(QuestionNotice::Decided { question: self.question, how: self.how });
        }
    }
}

/// The decision about a question that nobody has answered in time.
pub(crate) const EXPIRED: &str = "not answered in time";

/// The way a question was decided, in words.
pub(in crate::approval) fn how(response: &RequestEnd) -> &'static str {
    match response {
        RequestEnd::Expired => EXPIRED,
        RequestEnd::Dropped => "taken back",
        RequestEnd::Reply(reply) => words(reply.answer),
    }
}

/// A number that no other question has.
pub(crate) fn next_question() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// An answer in words.
pub(crate) fn words(answer: UserAnswer) -> &'static str {
    match answer {
        UserAnswer::Once => "allowed once",
        UserAnswer::Session => "allowed for this session",
        UserAnswer::Always => "allowed always",
        UserAnswer::Grant => "allowed by a grant",
        UserAnswer::No => "denied",
    }
}
