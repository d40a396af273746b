//! Questions: actions that wait for an answer, and the words in which people are asked.

mod approvers;
mod notice;
mod offer;
mod origins;
mod queue;
mod request;
mod rows;
mod table;

pub(crate) use self::approvers::{
    APPROVER_QUESTIONS, ApproverDecision, ApproverLine, ApproverQuestion, ApproverReply,
};
pub(crate) use self::notice::{EXPIRED, QuestionNotice, next_question, words};
pub(super) use self::notice::{NoticedQuestion, QuestionWatcher, how};
pub(crate) use self::offer::{choice, covered, offer};
pub(crate) use self::origins::{OriginInWords, origins_in_words, provenance, read_in_words};
pub(super) use self::queue::CountedRequest;
pub(crate) use self::queue::{ApprovalQueue, Approver};
pub(crate) use self::request::{AnswerVia, RequestFate, UserReply};
pub use self::request::{ApprovalRequest, UserAnswer};
pub(super) use self::request::{RequestEnd, held_for};
pub use self::rows::named_rows;
pub(crate) use self::table::{MOST_ROWS, table};
