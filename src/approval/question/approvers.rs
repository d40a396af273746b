//! Questions to the approvers that a rule names: other people than the session's user, whom a server for teams asks.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::approval::action::Action;
use crate::approval::policy::NamedApprovers;

/// The number of questions that wait for the line to the server; more wait for room.
pub(crate) const APPROVER_QUESTIONS: usize = 64;

/// Takes the questions of a session to approvers.
pub(crate) type ApproverLine = mpsc::Sender<ApproverQuestion>;

/// A question to approvers. It is withdrawn when the receiver of its answer is dropped.
pub(crate) struct ApproverQuestion {
    pub(crate) action: Arc<Action>,
    pub(crate) approvers: Arc<NamedApprovers>,
    /// The rule, in words.
    pub(crate) rule: Option<Arc<str>>,
    /// The end of the wait.
    pub(crate) until: Instant,
    pub(crate) answer: oneshot::Sender<ApproverReply>,
}

/// The reply to such a question.
#[derive(Debug)]
pub(crate) enum ApproverReply {
    /// An approver has decided.
    Decided { is_allowed: bool, decision: ApproverDecision },
    /// Nobody can be asked, for this reason.
    Unasked(String),
}

/// An approver's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApproverDecision {
    /// The approver: the issuer's subject, and the issuer.
    pub(crate) by: String,
    /// The id of the question, by which the server has recorded the decision.
    pub(crate) question: String,
    /// Why the server has not done its part of what is allowed.
    pub(crate) undone: Option<String>,
}
