//! The one place where a decision is made.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::action::Action;
use super::desk::{Approver, Desk};
use super::policy::{Effect, Policy};
use super::request::{Answer, ApprovalRequest};
use super::standing::Standing;

/// Decides about actions, one way for all of a session.
#[derive(Debug)]
pub(crate) struct Gate {
    policy: Policy,
    standing: Standing,
    timeout: Duration,
    /// Who answers for what the kernel asks now.
    on_duty: Mutex<Approver>,
}

/// The permission to do one thing. Only the gate makes it, and what it permits cannot be changed.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Action>);

/// A decision and how it came about.
#[derive(Debug)]
pub(crate) struct Ruling {
    /// The permission, or why there is none.
    pub(crate) outcome: Result<Permit, Denied>,
    /// Who decided.
    pub(crate) by: By,
    /// How long the decision took.
    pub(crate) waited: Duration,
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// The policy: a rule in words, or its default.
    Policy(Option<Arc<str>>),
    /// Somebody, just now.
    Answer(Answer),
    /// Somebody, earlier.
    Standing(Answer),
    /// Whoever started the work agreed to everything beforehand.
    Consent,
    /// Nobody answered in time.
    Expiry,
    /// There was nobody to ask, or they went away.
    Nobody,
}

/// Why an action may not run, in words for who wrote the code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// The policy denies it.
    #[error("`{call}` is denied by the approval policy{}", rule.as_deref().map(|rule| format!(": {rule}")).unwrap_or_default())]
    Policy {
        /// `server.tool`.
        call: String,
        /// The rule that denies it.
        rule: Option<Arc<str>>,
    },
    /// Somebody said no.
    #[error("the call of `{call}` was rejected")]
    Rejected {
        /// `server.tool`.
        call: String,
    },
    /// Nobody answered in time.
    #[error("the call of `{call}` was not approved within {} s", after.as_secs_f64())]
    Expired {
        /// `server.tool`.
        call: String,
        /// How long was waited.
        after: Duration,
    },
    /// Nobody can be asked.
    #[error("the call of `{call}` needs approval, and nobody can be asked: {why}")]
    Nobody {
        /// `server.tool`.
        call: String,
        /// Why, and what to do about it.
        why: &'static str,
    },
    /// An answer that was to hold for good could not be saved, so it does not count.
    #[error("the answer to `{call}` cannot be saved: {why}")]
    NotSaved {
        /// `server.tool`.
        call: String,
        /// Why.
        why: String,
    },
}

/// Said when code calls a tool and no cell runs: a thread that an earlier one left behind, say.
const NO_CELL: &str = "no cell is running";

impl Permit {
    /// What may be done.
    pub(crate) fn action(&self) -> &Action {
        &self.0
    }
}

impl Gate {
    /// Decides by `policy`; what has to be asked must be answered within `timeout`.
    pub(crate) fn new(policy: Policy, standing: Standing, timeout: Duration) -> Self {
        Self { policy, standing, timeout, on_duty: Mutex::new(Approver::Nobody(NO_CELL)) }
    }

    /// From now on `approver` answers for what the kernel asks.
    pub(crate) fn put_on_duty(&self, approver: Approver) {
        *self.on_duty.lock().unwrap_or_else(PoisonError::into_inner) = approver;
    }

    /// From now on nobody answers for what the kernel asks.
    pub(crate) fn end_duty(&self) {
        self.put_on_duty(Approver::Nobody(NO_CELL));
    }

    /// Who answers for what the kernel asks now.
    pub(crate) fn on_duty(&self) -> Approver {
        self.on_duty.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Decides about `action`. If somebody has to be asked, `approver` is.
    ///
    /// Dropping the future withdraws the question.
    pub(crate) async fn decide(&self, action: Action, approver: &Approver) -> Ruling {
        let begun = Instant::now();
        let action = Arc::new(action);
        let (outcome, by) = self.rule(&action, approver).await;
        let outcome = outcome.map(|()| Permit(action));
        Ruling { outcome, by, waited: begun.elapsed() }
    }

    async fn rule(&self, action: &Arc<Action>, approver: &Approver) -> (Result<(), Denied>, By) {
        let judgement = self.policy.judge(action);
        match judgement.effect {
            Effect::Allow => return (Ok(()), By::Policy(judgement.rule)),
            Effect::Deny => {
                let denied = Denied::Policy { call: call_of(action), rule: judgement.rule.clone() };
                return (Err(denied), By::Policy(judgement.rule));
            }
            Effect::Ask => {}
        }
        if let Some(answer) = self.standing.find(action) {
            return (Ok(()), By::Standing(answer));
        }
        let desk = match approver {
            Approver::Consent => return (Ok(()), By::Consent),
            Approver::Nobody(why) => {
                return (Err(Denied::Nobody { call: call_of(action), why }), By::Nobody);
            }
            Approver::Desk(desk) => desk,
        };
        let Some(answer) = self.ask(action, desk).await else {
            return (Err(Denied::Expired { call: call_of(action), after: self.timeout }), By::Expiry);
        };
        match answer {
            None => (Err(Denied::Rejected { call: call_of(action) }), By::Nobody),
            Some(Answer::No) => (Err(Denied::Rejected { call: call_of(action) }), By::Answer(Answer::No)),
            Some(answer) => match self.standing.remember(action, answer) {
                Ok(()) => (Ok(()), By::Answer(answer)),
                Err(error) => {
                    let denied = Denied::NotSaved { call: call_of(action), why: error.to_string() };
                    (Err(denied), By::Answer(answer))
                }
            },
        }
    }

    /// The answer; `Some(None)` if the question was dropped, `None` if it has expired.
    async fn ask(&self, action: &Arc<Action>, desk: &Desk) -> Option<Option<Answer>> {
        let _counted = desk.count();
        let (request, mut waiting) = ApprovalRequest::new(Arc::clone(action));
        if desk.questions.send(request).await.is_err() {
            return Some(None);
        }
        // Both end by an error if the request is dropped.
        tokio::select! {
            biased;
            answer = &mut waiting.answer => return Some(answer.ok()),
            Ok(()) = &mut waiting.handed_out => {}
        }
        tokio::time::timeout(self.timeout, waiting.answer).await.ok().map(Result::ok)
    }
}

fn call_of(action: &Action) -> String {
    format!("{}.{}", action.server_name, action.tool_name)
}
