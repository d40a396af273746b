//! The use of a permit: labels and rules are compared once more each time that its action is about to run.
//!
//! ```text
//! permit ─▶ are the labels those that were decided about? ┬ yes, or the policy permits it now too ─▶ checked call
//!              ▲                                          └ no ─▶ decided anew ┬ denied
//!              └──────────────────────── new permit ◀──────────────────────────┘
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::Gate;
use super::permit::Permit;
use crate::approval::action::Action;
use crate::approval::audit::OpenCall;
use crate::approval::decision::{ChosenBy, DenialReason};
use crate::approval::policy::ApprovalEffect;
use crate::approval::provenance::{Label, Provenance};
use crate::approval::question::Approver;

/// The age up to which a permit holds. Two logins and the calls of a usual batch fit in; whoever allowed a call longer ago may not
/// remember it, and the servers' data may have become another.
const PERMIT_AGE: Duration = Duration::from_secs(60 * 60);

/// The time that a call which brings data waits for those that could not be made afterwards.
const LANDING_TIMEOUT: Duration = Duration::from_secs(60);

/// The times that one call is decided about anew before it is given up. The labels of what was read only grow, and there are three.
const ANEW: usize = 3;

/// A call that may be made now, once.
#[derive(Debug)]
#[must_use = "what is checked may be made now, and not later"]
pub(crate) struct CheckedCall {
    tool_name: String,
    tool_args: Map<String, Value>,
}

/// Whether a call may have to be made once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallAttempt {
    /// It may: the permit keeps the arguments.
    Repeatable,
    /// It is made once only: the arguments are not copied.
    Last,
}

impl CheckedCall {
    /// The name of the tool, and the arguments.
    pub(crate) fn into_parts(self) -> (String, Map<String, Value>) {
        (self.tool_name, self.tool_args)
    }
}

impl Gate {
    /// Decides about an action of ipybox itself that begins at once.
    ///
    /// # Errors
    /// As for [`decide_about`](Self::decide_about).
    pub(crate) async fn decide_at_once(
        &self,
        action: Action,
        approver: &Approver,
        chosen_by: ChosenBy,
    ) -> Result<OpenCall, DenialReason> {
        let (permit, on_record) = self.decide_about(action, approver, chosen_by).await?;
        self.used_at_once(permit, on_record, approver).await
    }

    /// Decides about an action that the kernel begins at once.
    ///
    /// # Errors
    /// As for [`decide_about`](Self::decide_about).
    pub(crate) async fn decide_at_once_for_code(&self, action: Action) -> Result<OpenCall, DenialReason> {
        let (permit, on_record) = self.decide_for_code(action).await?;
        let approver = self.approver();
        let context = permit.context();
        context.around(self.used_at_once(permit, on_record, &approver)).await
    }

    /// Uses a permit for an action that is no call of a server. Returns the record of the action.
    ///
    /// # Errors
    /// It is denied now.
    pub(crate) async fn used_at_once(
        &self,
        mut permit: Permit,
        mut on_record: OpenCall,
        approver: &Approver,
    ) -> Result<OpenCall, DenialReason> {
        let _begins_now = self.attempt(&mut permit, &mut on_record, approver, CallAttempt::Last).await?;
        Ok(on_record)
    }

    /// The action may begin unless what is known now speaks against it. Its server's label counts from now on.
    ///
    /// # Errors
    /// It is denied now.
    pub(crate) async fn begin(
        &self,
        permit: &mut Permit,
        on_record: &mut OpenCall,
        approver: &Approver,
    ) -> Result<(), DenialReason> {
        self.renew(permit, on_record, approver).await?;
        permit.expected = self.expects(permit.action());
        self.let_others_land(permit.action()).await
    }

    /// Waits for the calls in flight that could not be made any more once this one has brought its data: their tools may read what
    /// code writes into a file meanwhile.
    ///
    /// # Errors
    /// One of them does not end.
    async fn let_others_land(&self, action: &Action) -> Result<(), DenialReason> {
        let Some(label) = self.memory().and_then(|memory| memory.label_of(&action.server_name)) else {
            return Ok(());
        };
        let is_stopped_by_it = |other: &Arc<Action>| {
            let judge = |known: &Provenance| {
                let known = Some(Arc::new(known.clone()));
                self.judgement(&Action { known, ..Action::clone(other) }, ChosenBy::Trusted).effect
            };
            let mut known = other.known.as_deref().cloned().unwrap_or_default();
            let before = judge(&known);
            known.read.entry(label).or_default().insert(action.server_name.clone());
            before != ApprovalEffect::Deny && judge(&known) == ApprovalEffect::Deny
        };
        let last = Mutex::new(None);
        let landing = self.in_flight.none_is(is_stopped_by_it, &last);
        tokio::time::timeout(LANDING_TIMEOUT, landing).await.map_err(|_| DenialReason::Overtakes {
            call: action.name(),
            other: last.lock().take().unwrap_or_default(),
            label: label.word(),
        })
    }

    /// The permitted call, to be made now.
    ///
    /// # Errors
    /// It is denied now: what the session has read since the decision, the age of the permit, or an earlier attempt that was to
    /// be the last speaks against it.
    pub(crate) async fn attempt(
        &self,
        permit: &mut Permit,
        on_record: &mut OpenCall,
        approver: &Approver,
        attempt: CallAttempt,
    ) -> Result<CheckedCall, DenialReason> {
        if permit.is_spent {
            return Err(DenialReason::Spent { call: permit.action().name() });
        }
        // Before the labels are looked at: a call that brings one looks for this one afterwards.
        let in_flight = self.in_flight.enter(&permit.action);
        self.renew(permit, on_record, approver).await?;
        on_record.flies(in_flight);
        if let Some(known) = &permit.action().known {
            on_record.runs_with(&known.read);
        }
        let tool_name = permit.action().tool_name.clone();
        let tool_args = match attempt {
            CallAttempt::Repeatable => permit.action().tool_args.clone(),
            CallAttempt::Last => permit.spend(),
        };
        Ok(CheckedCall { tool_name, tool_args })
    }

    /// Decides anew, if the permit does not hold for what is known now.
    async fn renew(
        &self,
        permit: &mut Permit,
        on_record: &mut OpenCall,
        approver: &Approver,
    ) -> Result<(), DenialReason> {
        let mut times = 0;
        loop {
            self.look_again(permit).await;
            let Some(why) = self.objection(permit) else { return Ok(()) };
            if times == ANEW {
                return Err(DenialReason::Unsettled { call: permit.action().name(), times });
            }
            times += 1;
            permit.note_objection(why);
            let action = Arc::clone(&permit.action);
            let decided = self.decide_known(action, approver, permit.chosen_by).await;
            std::mem::take(on_record).decided_anew();
            let (mut renewed, record) = decided?;
            *on_record = record;
            renewed.expected = permit.expected.take();
            *permit = renewed;
        }
    }

    /// Why the permit does not hold for what is known now, in words that follow what the session has read.
    fn objection(&self, permit: &Permit) -> Option<String> {
        let now = permit.action().known.as_deref();
        let before = permit.decided_about.as_deref();
        let more = match (before, now) {
            (Some(before), Some(now)) => before.lacks(now),
            _ => BTreeSet::new(),
        };
        let is_old = permit.decided.elapsed() > PERMIT_AGE;
        let judgement = self.judgement(permit.action(), permit.chosen_by);
        let lacks_approver = judgement.approvers.is_some() && !permit.is_by_approver;
        let holds = match judgement.effect {
            ApprovalEffect::Allow => true,
            ApprovalEffect::Deny => false,
            // Somebody was asked about no less than this, or has consented to it.
            ApprovalEffect::Ask => !permit.is_by_policy && !lacks_approver && more.is_empty() && !is_old,
        };
        (!holds).then(|| why_again(&more, is_old))
    }
}

/// Why a call is decided about again.
fn why_again(more: &BTreeSet<Label>, is_old: bool) -> String {
    let labels: Vec<&str> = more.iter().map(|label| label.word()).collect();
    match (labels.as_slice(), is_old) {
        ([], true) => "it was allowed more than an hour ago".to_owned(),
        ([], false) => "a rule of the policy holds now that did not before".to_owned(),
        (labels, _) => format!("{} data has come in since it was allowed", labels.join(" and ")),
    }
}

#[cfg(test)]
mod tests;
