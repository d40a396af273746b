//! Answers that hold for more than one question. They replace questions, never a denial.

use super::action::Action;
use super::request::Answer;

/// The answers of this session, and those that hold for good.
#[derive(Debug, Default)]
pub(crate) struct Standing {}

impl Standing {
    /// The answer that holds for `action`, if there is one.
    pub(super) fn find(&self, _action: &Action) -> Option<Answer> {
        None
    }

    /// Remembers `answer`, if it holds for more than this action.
    pub(super) fn remember(&self, _action: &Action, _answer: Answer) -> std::io::Result<()> {
        Ok(())
    }
}
