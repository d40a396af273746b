//! The questions that a client's user and the people beside them are asked: approval requests that are asked together, as
//! texts and forms, and the answers in them.

mod gathering;
mod question;
mod sent_sheets;
mod sheet;

pub(super) use self::gathering::{GATHER, complete_batches, gather_for};
pub(super) use self::question::{for_prompt, scope};
pub(super) use self::sent_sheets::{SentSheets, unguessable};
pub(super) use self::sheet::{AskedRequests, GivenAnswers, QuestionSheet, ended};
