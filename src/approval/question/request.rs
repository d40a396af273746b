//! An approval request: an action that waits for a user's answer.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::approval::action::{Action, ApprovalBatch, InBatch, Target, ToolAnnotations, as_python};
use crate::approval::grant::{Grant, GrantEffect, GrantProposal, OutsideGrant, PlannedCall, SessionGrants};
use crate::approval::provenance::{Label, Provenance};

/// A user's answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "there are no other ones")]
pub enum UserAnswer {
    /// This one may run.
    Once,
    /// This one, and its like as long as the session lasts.
    Session,
    /// This one, and its like from now on.
    Always,
    /// This one, and those that the proposed grant covers.
    Grant,
    /// It may not run.
    No,
}

/// By which face for people an answer was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerVia {
    /// The approval page.
    Page,
    /// A prompt of `ipybox attach`.
    Prompt,
    /// The page of a server for teams, on which approvers decide.
    Approvals,
}

impl AnswerVia {
    /// The face as a word, as in the audit log.
    pub(in crate::approval) fn word(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Prompt => "attach",
            Self::Approvals => "approvals",
        }
    }
}

/// An answer, with what the user has filled in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UserReply {
    pub(crate) answer: UserAnswer,
    /// The values of a form, by their names.
    pub(crate) content: Option<Map<String, Value>>,
    /// The grant that the answer gives, or uses.
    pub(in crate::approval) granting: Option<GrantEffect>,
    /// The label for the data of the server that is registered.
    pub(in crate::approval) label: Option<Label>,
    /// By which face for people it was given; `None` by the session's own.
    pub(in crate::approval) via: Option<AnswerVia>,
}

impl UserReply {
    pub(in crate::approval) fn granting(granting: GrantEffect) -> Self {
        Self { granting: Some(granting), ..Self::from(UserAnswer::Grant) }
    }

    /// A form that the user has filled in.
    pub(crate) fn filled(content: Map<String, Value>) -> Self {
        Self { content: Some(content), ..Self::from(UserAnswer::Once) }
    }
}

impl From<UserAnswer> for UserReply {
    fn from(answer: UserAnswer) -> Self {
        Self { answer, content: None, granting: None, label: None, via: None }
    }
}

/// The end of an approval request.
pub(in crate::approval) enum RequestEnd {
    /// By a reply.
    Reply(UserReply),
    /// All who were asked have dropped it.
    Dropped,
    /// Nobody has replied in time.
    Expired,
}

/// A tool call that waits for permission. Dropped without an answer, it is rejected.
///
/// The shown action is the one that will run: it cannot change between the answer and the call. `Display`
/// writes the call as Python would, `server.tool(name='value')`, and escapes characters that could mislead a
/// reader on a terminal.
///
/// The approval timeout begins when the request is handed out. Each answer returns whether it came in time:
/// it is too late if the request has expired, or its code no longer waits. Then the call does not run,
/// whatever the answer.
#[must_use = "a request that is dropped is rejected"]
pub struct ApprovalRequest {
    action: Arc<Action>,
    answer: oneshot::Sender<UserReply>,
    handed_out: watch::Sender<Option<Instant>>,
    /// `None` for a request of another process.
    grants: Option<Arc<SessionGrants>>,
    /// The proposal that somebody saw first: the answer is about that.
    proposed: OnceLock<Option<GrantProposal>>,
    /// Whether the user of a client is asked the same.
    is_shared: bool,
    /// The decision, for those whose answer did not count.
    fate: RequestFate,
    /// By which face for people it is answered.
    via: Option<AnswerVia>,
}

/// The decision about a request, in words, once there is one.
pub(crate) type RequestFate = Arc<OnceLock<&'static str>>;

/// The gate's side of an [`ApprovalRequest`].
pub(in crate::approval) struct PendingRequest {
    /// One for each of those who are asked. The first answer counts.
    answers: Vec<oneshot::Receiver<UserReply>>,
    /// Whether somebody has it.
    pub(in crate::approval) handed_out: watch::Receiver<Option<Instant>>,
    fate: RequestFate,
}

impl ApprovalRequest {
    pub(in crate::approval) fn new(
        action: Arc<Action>,
        grants: Arc<SessionGrants>,
    ) -> (Self, PendingRequest) {
        let (answer, answer_receiver) = oneshot::channel();
        let (handed_out, handed_out_receiver) = watch::channel(None);
        let fate = RequestFate::default();
        let waiting = PendingRequest {
            answers: vec![answer_receiver],
            handed_out: handed_out_receiver,
            fate: Arc::clone(&fate),
        };
        let grants = Some(grants);
        let proposed = OnceLock::new();
        (Self { action, answer, handed_out, grants, proposed, is_shared: false, fate, via: None }, waiting)
    }

    /// The same request for somebody else, who is asked too. Handing out either hands out both.
    pub(in crate::approval) fn beside(&self, waiting: &mut PendingRequest) -> Self {
        let (answer, receiver) = oneshot::channel();
        waiting.answers.push(receiver);
        let action = Arc::clone(&self.action);
        let handed_out = self.handed_out.clone();
        let grants = self.grants.clone();
        let proposed = OnceLock::new();
        let fate = Arc::clone(&self.fate);
        Self { action, answer, handed_out, grants, proposed, is_shared: true, fate, via: None }
    }

    /// A request whose gate waits for ever.
    #[cfg(test)]
    pub(crate) fn for_tests(action: Action) -> Self {
        let (request, waiting) = Self::new(Arc::new(action), Arc::default());
        std::mem::forget(waiting);
        request
    }

    /// A request of another process, and the receiver of its answer.
    pub(crate) fn of_another_process(action: Action) -> (Self, oneshot::Receiver<UserReply>) {
        let (answer, receiver) = oneshot::channel();
        let action = Arc::new(action);
        let handed_out = watch::Sender::new(None);
        let grants = None;
        let proposed = OnceLock::new();
        let fate = Arc::default();
        (Self { action, answer, handed_out, grants, proposed, is_shared: false, fate, via: None }, receiver)
    }

    /// Starts the approval timeout, or starts it anew.
    pub(crate) fn hand_out(&self) {
        self.handed_out.send_replace(Some(Instant::now()));
    }

    /// Ends the approval timeout, which begins anew when the request is handed out again.
    pub(crate) fn take_back(&self) {
        self.handed_out.send_replace(None);
    }

    /// The name under which the MCP server is registered. `ipybox` is ipybox itself: its tools are `shell`
    /// and `shell_magic` (`!command`, `%%bash` and `%%sh` cells, with the argument `cmd`).
    pub fn server_name(&self) -> &str {
        &self.action.server_name
    }

    /// The tool's name on its server.
    pub fn tool_name(&self) -> &str {
        &self.action.tool_name
    }

    /// The arguments that the tool will get.
    pub fn tool_args(&self) -> &Map<String, Value> {
        &self.action.tool_args
    }

    /// The target that the server's name refers to.
    pub fn target(&self) -> &Target {
        &self.action.target
    }

    /// The change of the tool's description and schemas since an answer that was to hold longer, as a diff: that
    /// answer holds no more.
    pub fn changes(&self) -> Option<&str> {
        self.action.changes.as_deref()
    }

    /// The server's hints on what the tool does; `None` if they are not known.
    pub fn annotations(&self) -> Option<&ToolAnnotations> {
        self.action.annotations.as_ref()
    }

    /// The batch in which its code has announced it, with others.
    pub fn batch(&self) -> Option<&ApprovalBatch> {
        self.shared_batch().map(|batch| &**batch)
    }

    /// The origins of its data, and what the session has read; `None` if the policy lets every call run.
    pub fn provenance(&self) -> Option<&Provenance> {
        self.action.known.as_deref()
    }

    pub(crate) fn shared_batch(&self) -> Option<&Arc<ApprovalBatch>> {
        self.action.batch.as_ref().map(InBatch::batch)
    }

    /// A grant that fits this call. It is for those that the cell's code has announced before it ran ([`Grant::also`]), in the
    /// first question about one of them; or for those that the user has permitted in this cell, one by one: from the fourth
    /// such call on, if they have enough in common. It does not change from the first look on. Requests of an
    /// [`ApprovalClient`](crate::ApprovalClient) have none.
    pub fn proposed_grant(&self) -> Option<&Grant> {
        self.proposal().map(|proposal| &proposal.grant)
    }

    pub(super) fn proposal(&self) -> Option<&GrantProposal> {
        let propose = || self.grants.as_ref()?.propose(&self.action);
        self.proposed.get_or_init(propose).as_ref()
    }

    /// The announced calls that `grant` is for beside this one.
    fn planned(&self, grant: &Grant) -> Result<Vec<PlannedCall>, OutsideGrant> {
        let mut offered = self.proposal().map(|proposal| proposal.planned.clone()).unwrap_or_default();
        let of = |also: &Grant| {
            let found = offered.iter().position(|call| call.grant() == also);
            found.map(|index| offered.swap_remove(index)).ok_or_else(|| OutsideGrant::not_proposed(also))
        };
        grant.also().iter().map(of).collect()
    }

    /// Why the call is outside of the grants that there are for its tool; `None` if there are none.
    pub fn outside_of_grants(&self) -> Option<String> {
        self.grants.as_ref()?.outside(&self.action)
    }

    pub(crate) fn action(&self) -> &Action {
        &self.action
    }

    pub(crate) fn shared_action(&self) -> Arc<Action> {
        Arc::clone(&self.action)
    }

    /// The decision, if it was not by this one's answer.
    pub(crate) fn fate(&self) -> RequestFate {
        Arc::clone(&self.fate)
    }

    /// Whether the user of a client is asked the same; then this one was made for people beside them.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Lets the call run. Returns whether the answer came in time.
    pub fn accept(self) -> bool {
        self.answer(UserAnswer::Once)
    }

    /// Lets the call run, and its like as long as the session lasts: every call of the same tool of the same
    /// server, whatever its arguments, as long as the server's name refers to the same target; of a shell
    /// command, the same command. Returns whether the answer came in time.
    pub fn accept_for_session(self) -> bool {
        self.answer(UserAnswer::Session)
    }

    /// As [`accept_for_session`](Self::accept_for_session), and in later sessions in the same workspace too: the answer is
    /// saved in the state directory.
    pub fn accept_always(self) -> bool {
        self.answer(UserAnswer::Always)
    }

    /// Makes the call fail with `ApprovalRejectedError`. Returns whether the answer came in time.
    pub fn reject(self) -> bool {
        self.answer(UserAnswer::No)
    }

    /// Answers a question of a server (`elicitation/create`) with the values that its `requestedSchema` asks for, by their
    /// names; those that have defaults may be left out. Returns whether the answer came in time.
    pub fn accept_with(self, content: Map<String, Value>) -> bool {
        self.reply(UserReply::filled(content))
    }

    /// Lets the call run, and those that `grant` covers: as many as it says, this one among them. The grant needs not be the
    /// proposed one, but [`Grant::also`] has none that the request does not propose. Returns whether the answer came in time.
    ///
    /// # Errors
    /// The grant does not cover this call, or cannot be given. Then the call is rejected.
    pub fn grant(self, grant: Grant) -> Result<bool, OutsideGrant> {
        if self.grants.is_none() {
            return Err(OutsideGrant::of_another_process());
        }
        grant.check(&self.action)?;
        let planned = self.planned(&grant)?;
        Ok(self.reply(UserReply::granting(GrantEffect::New(Box::new(GrantProposal { grant, planned })))))
    }

    /// Answers. Without a proposed grant [`UserAnswer::Grant`] is a no.
    pub(crate) fn answer(self, answer: UserAnswer) -> bool {
        match answer {
            UserAnswer::Grant => match self.proposed_grant().cloned() {
                Some(grant) => self.grant(grant).unwrap_or(false),
                None => self.reject(),
            },
            answer => self.reply(answer.into()),
        }
    }

    /// Answers a registration; the data of the server has this label, if there is one, from now on.
    pub(crate) fn answer_with_label(self, answer: UserAnswer, label: Option<Label>) -> bool {
        match label {
            Some(_) => self.reply(UserReply { label, ..UserReply::from(answer) }),
            None => self.answer(answer),
        }
    }

    /// Has its answer be one that was given by this face.
    pub(crate) fn answered_via(self, via: AnswerVia) -> Self {
        Self { via: Some(via), ..self }
    }

    pub(crate) fn reply(self, reply: UserReply) -> bool {
        self.answer.send(UserReply { via: self.via, ..reply }).is_ok()
    }

    /// Whether an answer would be too late.
    pub(crate) fn is_closed(&self) -> bool {
        self.answer.is_closed()
    }

    /// Resolves when an answer would be too late.
    pub(crate) fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.answer.poll_closed(context)
    }

    /// Waits until an answer would be too late.
    pub(crate) async fn closed(&mut self) {
        self.answer.closed().await;
    }
}

impl std::fmt::Display for ApprovalRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        as_python::call(&self.action, formatter)
    }
}

impl std::fmt::Debug for ApprovalRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ApprovalRequest").field("action", &self.action).finish_non_exhaustive()
    }
}

impl PendingRequest {
    /// The first answer; `None` once all who were asked have dropped the request. Cancellation safe.
    pub(in crate::approval) async fn answer(&mut self) -> Option<UserReply> {
        while !self.answers.is_empty() {
            let (answer, index, _) = futures::future::select_all(self.answers.iter_mut()).await;
            match answer {
                Ok(reply) => return Some(reply),
                Err(_) => drop(self.answers.swap_remove(index)),
            }
        }
        None
    }

    /// Has those whose answer does not count know how it was decided.
    pub(in crate::approval) fn decided(&self, how: &'static str) {
        // There is one decision.
        self.fate.set(how).ok();
    }

    /// Takes no further answer. Returns one that was accepted at the last moment.
    pub(in crate::approval) fn close(&mut self) -> Option<UserReply> {
        self.answers.iter_mut().for_each(oneshot::Receiver::close);
        self.answers.iter_mut().find_map(|answer| answer.try_recv().ok())
    }
}

/// Waits until somebody has had the request for all of `time`. Never resolves once the request is dropped.
pub(in crate::approval) async fn held_for(handed_out: &mut watch::Receiver<Option<Instant>>, time: Duration) {
    loop {
        let since = *handed_out.borrow_and_update();
        let over = async {
            match since {
                Some(since) => tokio::time::sleep(time.saturating_sub(since.elapsed())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => return,
            changed = handed_out.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_taken_back_has_its_time_again() {
        const TIME: Duration = Duration::from_secs(60);
        let (holder, mut handed_out) = watch::channel(None);
        let mut held = std::pin::pin!(held_for(&mut handed_out, TIME));
        for is_handed_out in [true, false, true, true] {
            holder.send_replace(is_handed_out.then(Instant::now));
            let almost = tokio::time::timeout(TIME - Duration::from_secs(1), held.as_mut());
            almost.await.unwrap_err();
        }
        tokio::time::timeout(Duration::from_secs(2), held).await.unwrap();
    }
}
