//! Approval: the host decides about every tool call before it reaches an MCP server.
//!
//! ```text
//! action → policy ┬ allow ────────────────────────────────→ permit
//!                 ├ deny ─────────────────────────────────→ denied
//!                 └ ask → standing answers → grants → queue → answer → permit or denied
//! ```
//!
//! Only the [`Gate`] decides; code in the kernel cannot reach it. A [`Permit`] holds the very action that was
//! decided about, and is made from a recorded decision. It becomes a [`CheckedCall`] at the moment of the call, if the labels
//! and rules of that moment do not speak against it.

mod action;
mod attempt;
mod audit;
mod batch;
mod calls;
mod decision;
mod denied;
mod earlier_answers;
mod expected;
mod gate;
mod grant;
mod history;
mod known_data;
mod like;
mod notice;
mod origins;
mod permit;
mod policy;
pub(crate) mod provenance;
mod queue;
mod request;
mod review;
mod rows;
mod saved;
mod shown;
mod standing;
mod table;
mod user;

pub(crate) use self::action::Action;
pub use self::action::{Target, ToolAnnotations};
pub(crate) use self::attempt::{Attempt, CheckedCall};
pub(crate) use self::audit::{Audit, CellOutput, Face, LogSettings, OpenCall};
pub use self::audit::{Contents as AuditContents, Error as AuditError};
pub use self::batch::Batch;
pub(crate) use self::batch::InBatch;
pub(crate) use self::calls::{Calls, CellCalls};
pub(crate) use self::decision::ChosenBy;
pub(crate) use self::denied::Denied;
pub(crate) use self::expected::Expected;
pub(crate) use self::gate::Gate;
pub use self::grant::{
    GivenGrant, Grant, Life as GrantLife, Outside as OutsideGrant, Pattern as GrantPattern,
};
pub(crate) use self::grant::{choice as grant_choice, offer as grant_offer};
pub(crate) use self::history::PastDecision;
pub(crate) use self::notice::{EXPIRED, Notice, next_question, words as answer_in_words};
pub(crate) use self::origins::OriginInWords;
pub(crate) use self::origins::{origins_in_words, provenance, read_in_words};
pub(crate) use self::permit::Permit;
pub use self::policy::{Effect, Policy, PolicyError};
pub(crate) use self::provenance::Label;
pub(crate) use self::queue::{ApprovalQueue, Approver};
pub use self::request::Answer;
pub use self::request::ApprovalRequest;
pub(crate) use self::request::{AnswerVia, Fate, Reply};
pub use self::review::{
    AuditFilter, AuditReport, NoHead as NoAuditHead, Review as AuditReview, rfc3339_seconds,
};
pub use self::rows::named_rows;
pub(crate) use self::shown::{TooLong, argument, question, question_of_ours};
pub(crate) use self::standing::Standing;
pub(crate) use self::table::{MOST_ROWS, table};
pub(crate) use self::user::OnPage;

/// The server name of ipybox's own actions: shell commands, registrations, installations and logins. No MCP server
/// can be registered by it.
pub(crate) const OURSELVES: &str = "ipybox";

/// The tool name of a registration: its argument `server_name` is the name that the server is to have.
pub(crate) const REGISTER: &str = "register_mcp_server";

/// The tool name of a login: its argument `url` is the page that the user is sent to.
pub(crate) const LOGIN: &str = "login";

/// The tool name of a question that a server asks the user: MCP's method. Its argument `message` is the question;
/// `requestedSchema` says what is asked for, or `url` which page to open.
pub(crate) const ELICITATION: &str = "elicitation/create";
