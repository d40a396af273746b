//! Why an action may not run.

use std::sync::Arc;
use std::time::Duration;

/// Why an action may not run, as a text for the author of the code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DenialReason {
    /// The policy denies it.
    #[error("`{call}` is denied by the approval policy{}", rule.as_deref().map(|rule| format!(": {rule}")).unwrap_or_default())]
    Policy {
        /// `server.tool`.
        call: String,
        /// The rule that denies it.
        rule: Option<Arc<str>>,
    },
    /// The user rejected it.
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
        /// The time that the gate waited.
        after: Duration,
    },
    /// An approver rejected it.
    #[error("the call of `{call}` was rejected by {by}")]
    RejectedBy {
        /// `server.tool`.
        call: String,
        /// The approver.
        by: String,
    },
    /// No approver answered in time.
    #[error("the call of `{call}` needs the approval of {approvers}, and nobody of them decided within {} s", after.as_secs_f64())]
    Unapproved {
        /// `server.tool`.
        call: String,
        /// The approvers.
        approvers: String,
        /// The time that the gate waited.
        after: Duration,
    },
    /// No approver can be asked.
    #[error("the call of `{call}` needs the approval of {approvers}, who cannot be asked: {why}")]
    NoApprover {
        /// `server.tool`.
        call: String,
        /// The approvers.
        approvers: String,
        /// Why.
        why: String,
    },
    /// No user can be asked.
    #[error("the call of `{call}` needs approval, and nobody can be asked: {why}")]
    Nobody {
        /// `server.tool`.
        call: String,
        /// Why, and what to do about it.
        why: &'static str,
    },
    /// The request is too long for a user to read.
    #[error(
        "the call of `{call}` needs approval, and is too long to be shown to a user even if long texts in it are shortened\n\
         hint: pass fewer values in one call, or hand over a file; the user can allow the call beforehand in a policy \
         file (`--approval policy --approval-policy FILE`)"
    )]
    TooLong {
        /// `server.tool`.
        call: String,
    },
    /// An answer that was to hold for good could not be saved, so it has no effect.
    #[error("the answer to `{call}` cannot be saved: {why}")]
    NotSaved {
        /// `server.tool`.
        call: String,
        /// Why.
        why: String,
    },
    /// It was permitted, and each time that its user had answered, something else had been read.
    #[error(
        "the call of `{call}` did not run: the session went on to read data with other labels while it was asked about, \
         {times} times\n\
         hint: make the call when the others have ended"
    )]
    Unsettled {
        /// `server.tool`.
        call: String,
        /// The times that it was decided about anew.
        times: usize,
    },
    /// It would bring data after which another call may not run, and that call has not ended.
    #[error(
        "the call of `{call}` did not run: it would bring {label} data while `{other}` is under way, which may not run after such data\n\
         hint: make one call after the other"
    )]
    Overtakes {
        /// `server.tool`.
        call: String,
        /// The other call.
        other: String,
        /// The label of the data.
        label: &'static str,
    },
    /// The permission has been used for a call that was to be the last.
    #[error("the permission for `{call}` has been used")]
    Spent {
        /// `server.tool`.
        call: String,
    },
    /// It was permitted, but the decision could not be recorded.
    #[error("`{call}` may not run, since the audit log cannot be written: {why}")]
    Unrecorded {
        /// `server.tool`.
        call: String,
        /// Why.
        why: String,
    },
}

impl DenialReason {
    /// The deciding party, as in the audit log.
    pub(crate) fn by(&self) -> &'static str {
        match self {
            Self::Policy { rule: Some(_), .. } => "rule",
            Self::Rejected { .. } => "no",
            Self::Expired { .. } | Self::Unapproved { .. } => "expiry",
            Self::RejectedBy { .. } => "approver",
            Self::Nobody { .. } | Self::NoApprover { .. } => "nobody",
            _ => "policy",
        }
    }
}
