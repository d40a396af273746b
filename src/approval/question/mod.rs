//! Questions: actions that wait for an answer, and the words in which people are asked.

mod notice;
mod offer;
mod origins;
mod queue;
mod request;
mod rows;
mod table;

pub(crate) use self::notice::{EXPIRED, Notice, next_question, words};
pub(super) use self::notice::{Noticed, Watcher, how};
pub(crate) use self::offer::{choice, offer};
pub(crate) use self::origins::{OriginInWords, origins_in_words, provenance, read_in_words};
pub(super) use self::queue::Counted;
pub(crate) use self::queue::{ApprovalQueue, Approver};
pub use self::request::{Answer, ApprovalRequest};
pub(crate) use self::request::{AnswerVia, Fate, Reply};
pub(super) use self::request::{Response, held_for};
pub use self::rows::named_rows;
pub(crate) use self::table::{MOST_ROWS, table};
