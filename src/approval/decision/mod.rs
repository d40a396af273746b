//! A decision about an action, and who made it.

mod denied;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::denied::DenialReason;
use crate::approval::grant::{GivenGrant, UsedGrant};
use crate::approval::question::{AnswerVia, ApproverDecision, UserAnswer};

/// A decision and how it came about.
#[derive(Debug)]
pub(super) struct Decision {
    /// Why the action may not run, if it may not.
    pub(super) outcome: Result<(), DenialReason>,
    /// The deciding party.
    pub(super) by: DecidedBy,
    /// The time that the decision took.
    pub(super) waited: Duration,
    /// Whether users were asked.
    pub(super) consulted: AskedUsers,
}

/// The party that has chosen an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChosenBy {
    /// The user, an application or a model.
    Trusted,
    /// Maybe code in the sandbox, for the host to do: that the policy allows everything by default is not enough.
    Code,
    /// A model whose client confines its own commands, for the host to do outside of that sandbox. It is not enough either.
    Confined,
}

/// Whether users were asked about an action, who may not have answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedUsers {
    /// It was decided without a question.
    Nobody,
    /// By which face for people; `None` by the session's own.
    Users(Option<AnswerVia>),
}

/// The party that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DecidedBy {
    /// The policy: a rule in words, or its default.
    Policy(Option<Arc<str>>),
    /// A user's answer to this request.
    Answer(UserAnswer),
    /// A standing answer.
    Standing(UserAnswer),
    /// A user's answer, which gave this grant.
    Granted(GivenGrant),
    /// A grant that was given earlier.
    Grant(UsedGrant),
    /// An approver whom a rule names.
    Approver(ApproverDecision),
    /// The caller agreed to everything beforehand.
    Consent,
    /// Nobody answered in time.
    Expiry,
    /// No user could be asked, or the user's client went away.
    Nobody,
}

impl DecidedBy {
    /// The decider as a word, as in the audit log.
    pub(in crate::approval) fn word(&self) -> &'static str {
        match self {
            Self::Policy(None) => "policy",
            Self::Policy(Some(_)) => "rule",
            Self::Answer(answer) | Self::Standing(answer) => match answer {
                UserAnswer::Once => "once",
                UserAnswer::Session => "session",
                UserAnswer::Always => "always",
                UserAnswer::Grant => "grant",
                UserAnswer::No => "no",
            },
            Self::Granted(_) | Self::Grant(_) => "grant",
            Self::Approver(_) => "approver",
            Self::Consent => "consent",
            Self::Expiry => "expiry",
            Self::Nobody => "nobody",
        }
    }

    /// Whether something that was decided earlier has decided.
    pub(super) fn is_earlier(&self) -> bool {
        matches!(self, Self::Standing(_) | Self::Grant(_))
    }

    /// Whether a user was asked who was there to answer, maybe in vain.
    pub(super) fn was_asked(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::Granted(_) | Self::Approver(_) | Self::Expiry)
    }

    /// The rule of the policy that decided, in words.
    pub(super) fn rule(&self) -> Option<&str> {
        match self {
            Self::Policy(rule) => rule.as_deref(),
            _ => None,
        }
    }

    /// The approver who decided.
    pub(super) fn approver(&self) -> Option<&ApproverDecision> {
        match self {
            Self::Approver(decision) => Some(decision),
            _ => None,
        }
    }
}
