//! Actions that only the user can do: log in on a page, and answer what a server asks.
//!
//! Neither a standing answer nor consent replaces it, and the policy can only deny it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::Gate;
use crate::approval::action::Action;
use crate::approval::audit::OpenCall;
use crate::approval::decision::{AskedUsers, DecidedBy, Decision, DenialReason};
use crate::approval::policy::{ApprovalEffect, PolicyJudgement};
use crate::approval::question::{ApprovalQueue, Approver, CountedRequest, RequestEnd, UserAnswer, UserReply};

/// A user who was sent to a page, as long as it takes.
pub(crate) struct OnPage {
    _away: CountedRequest,
    /// The decision, whose end is to be recorded.
    pub(crate) on_record: OpenCall,
}

impl Gate {
    /// Sends the user who reads `queue` to the page that `action` shows. The user counts as waiting as long as the result
    /// lives.
    ///
    /// # Errors
    /// The user did not go there.
    pub(crate) async fn send_to_page(
        &self,
        action: Action,
        queue: &Arc<ApprovalQueue>,
    ) -> Result<OnPage, DenialReason> {
        let (_, on_record) = self.ask_user(action, queue).await?;
        Ok(OnPage { _away: queue.count(), on_record })
    }

    /// Has an answer offer the page that `action` shows, where nobody can be asked: the user decides by going there.
    ///
    /// # Errors
    /// The policy denies it, or has other people decide.
    pub(crate) async fn offer_page(&self, action: Action) -> Result<OpenCall, DenialReason> {
        let action = self.with_known(action).await;
        let question = self.audit.question(Arc::clone(&action));
        let (outcome, by) = match denied(&self.policy.judge(&action), &action) {
            Some((reason, by)) => (Err(reason), by),
            None => (Ok(()), DecidedBy::Nobody),
        };
        let reason = outcome.clone();
        let consulted = AskedUsers::Nobody;
        let decision = Decision { outcome, by, waited: Duration::ZERO, consulted };
        let (_, on_record) = question.decided(&decision).await?.into_parts();
        reason.map(|()| on_record)
    }

    /// Has the user of the current cell fill in the form that `action` shows, or open its page. Returns what was filled in.
    ///
    /// # Errors
    /// The user did not, or nobody can be asked.
    pub(crate) async fn elicit(&self, action: Action) -> Result<Map<String, Value>, DenialReason> {
        let queue = match self.approver() {
            Approver::User(queue) => queue,
            Approver::Nobody(why) | Approver::Attached(_, why) => return Err(nobody(&action, why)),
            Approver::Consent => return Err(nobody(&action, "the application reads no requests")),
        };
        let (reply, on_record) = self.ask_user(action, &queue).await?;
        let content = reply.content.unwrap_or_default();
        // The values are the user's, and go to the server alone.
        on_record.result(|| Value::from("answered"));
        Ok(content)
    }

    async fn ask_user(
        &self,
        action: Action,
        queue: &Arc<ApprovalQueue>,
    ) -> Result<(UserReply, OpenCall), DenialReason> {
        let action = self.with_known(action).await;
        let question = self.audit.question(Arc::clone(&action));
        let begun = Instant::now();
        let judgement = self.policy.judge(&action);
        let rejected = || DenialReason::Rejected { call: action.name() };
        let (replied, by) = match denied(&judgement, &action) {
            Some((reason, by)) => (Err(reason), by),
            None => match self.announce_and_ask(&action, queue).await {
                RequestEnd::Expired => (
                    Err(DenialReason::Expired { call: action.name(), after: self.timeout }),
                    DecidedBy::Expiry,
                ),
                RequestEnd::Dropped => (Err(rejected()), DecidedBy::Nobody),
                RequestEnd::Reply(UserReply { answer: UserAnswer::No, .. }) => {
                    (Err(rejected()), DecidedBy::Answer(UserAnswer::No))
                }
                RequestEnd::Reply(reply) => self.allowed_now(&action).await.map_or_else(
                    |(denied, by)| (Err(denied), by),
                    |()| (Ok(reply), DecidedBy::Answer(UserAnswer::Once)),
                ),
            },
        };
        let outcome = replied.as_ref().map(drop).map_err(DenialReason::clone);
        let decision = Decision { outcome, by, waited: begun.elapsed(), consulted: AskedUsers::Users(None) };
        let (_, on_record) = question.decided(&decision).await?.into_parts();
        Ok((replied?, on_record))
    }

    /// The policy may deny what it did not when the question began to wait: the session has gone on to read.
    async fn allowed_now(&self, action: &Arc<Action>) -> Result<(), (DenialReason, DecidedBy)> {
        let now = self.with_known(Action::clone(action)).await;
        let judgement = self.policy.judge(&now);
        if judgement.effect != ApprovalEffect::Deny {
            return Ok(());
        }
        let denied = DenialReason::Policy { call: action.name(), rule: judgement.rule.clone() };
        Err((denied, DecidedBy::Policy(judgement.rule)))
    }
}

/// The reason for which the policy lets no user do what the user alone can.
fn denied(judgement: &PolicyJudgement, action: &Action) -> Option<(DenialReason, DecidedBy)> {
    match (judgement.effect, &judgement.approvers) {
        (ApprovalEffect::Deny, _) => {
            let rule = judgement.rule.clone();
            let reason = DenialReason::Policy { call: action.name(), rule: rule.clone() };
            Some((reason, DecidedBy::Policy(rule)))
        }
        (ApprovalEffect::Ask, Some(approvers)) => {
            let why = "its user alone can answer this, and the rule names approvers".to_owned();
            let approvers = approvers.to_string();
            Some((DenialReason::NoApprover { call: action.name(), approvers, why }, DecidedBy::Nobody))
        }
        (ApprovalEffect::Allow | ApprovalEffect::Ask, _) => None,
    }
}

fn nobody(action: &Action, why: &'static str) -> DenialReason {
    DenialReason::Nobody { call: action.name(), why }
}
