//! Approval: the host decides about every tool call before it reaches an MCP server.
//!
//! ```text
//! action → policy ┬ allow ────────────────────────────────→ permit
//!                 ├ deny ─────────────────────────────────→ denied
//!                 ├ ask → standing answers → grants → queue → answer → permit or denied
//!                 └ ask approvers → answer of one ──────────────────→ permit or denied
//! ```
//!
//! Its rooms, the top one first: each uses those below it, never one above.
//!
//! ```text
//! review      an audit log, read: whether it is whole; calls of the past, judged by a policy
//! gate        all decisions, and the permits that they yield
//! audit       the log, and its records
//! decision    who has decided, and why an action may not run
//! standing    answers that hold for the session, or for good
//! question    requests that wait for an answer, and the words in which people are asked
//! grant       answers to many calls, within bounds
//! policy      rules
//! action      a call with its target; how it is written
//! provenance  the origins of data
//! ```
//!
//! Only the [`Gate`] decides; code in the kernel cannot reach it. A [`Permit`] holds the very action that was
//! decided about, and is made from a recorded decision. It becomes a [`CheckedCall`] at the moment of the call, if the labels
//! and rules of that moment do not speak against it.
//!
//! Reasons: `docs/decisions/approval.md`.

mod action;
mod audit;
mod decision;
mod gate;
mod grant;
mod policy;
pub(crate) mod provenance;
mod question;
mod review;
mod standing;

pub(crate) use self::action::{
    Action, ELICITATION, InBatch, LOGIN, OURSELVES, REGISTER, TooLong, argument, question, question_of_ours,
};
pub use self::action::{ApprovalBatch, Target, ToolAnnotations};
pub(crate) use self::audit::{
    Audit, CallNotes, CellCalls, CellOutput, LogBegin, LogSettings, OpenCall, PastDecision, SessionFace,
};
pub use self::audit::{AuditContents, CommandLog, Error as AuditError, SettleAction, SettledFiles};
pub(crate) use self::decision::{ChosenBy, DenialReason};
pub(crate) use self::gate::{AllowedAction, CallAttempt, CheckedCall, ExpectedResult, Gate, OnPage, Permit};
pub use self::grant::{GivenGrant, Grant, GrantLife, GrantPattern, OutsideGrant};
pub(crate) use self::policy::NamedApprovers;
pub use self::policy::{ApprovalEffect, ApprovalPolicy, PolicyError};
pub(crate) use self::provenance::Label;
pub(crate) use self::question::{
    APPROVER_QUESTIONS, AnswerVia, ApprovalQueue, Approver, ApproverDecision, ApproverLine, ApproverQuestion,
    ApproverReply, EXPIRED, MOST_ROWS, OriginInWords, QuestionNotice, RequestFate, UserReply,
    choice as grant_choice, covered as grant_covers, next_question, offer as grant_offer, origins_in_words,
    provenance, read_in_words, table, words as answer_in_words,
};
pub use self::question::{ApprovalRequest, UserAnswer, named_rows};
pub use self::review::{AuditFilter, AuditReport, AuditReview, NoHead as NoAuditHead, rfc3339_seconds};
pub(crate) use self::review::{JudgedCall, LoggedDecision, PastJudgement};
pub(crate) use self::standing::StandingAnswers;
