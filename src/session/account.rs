//! Writes a cell's end to the audit log.

use super::Error;
use super::cell::Outcome;
use super::end::End;
use crate::approval::{CellEnd, CellOutput, OpenCell};
use crate::output::Text;

/// Records how a cell ended and how much it showed.
pub(super) fn record_end(on_record: OpenCell, outcome: Result<&Outcome, &Error>) {
    let Ok(outcome) = outcome else { return on_record.ended(CellEnd::Stopped, CellOutput::default()) };
    let output = CellOutput {
        excerpt: &outcome.text.excerpt,
        chars: chars(&outcome.text),
        images: outcome.images.len(),
    };
    on_record.ended(end(outcome), output);
}

fn end(outcome: &Outcome) -> CellEnd {
    match &outcome.end {
        End::Finished if outcome.error.is_some() => CellEnd::Error,
        End::Finished => CellEnd::Finished,
        End::TimedOut { .. } => CellEnd::TimedOut,
        End::Cancelled(_) => CellEnd::Cancelled,
        End::NotRun => CellEnd::NotRun,
        End::Reset => CellEnd::Reset,
        End::Died(_) => CellEnd::Died,
        End::Unanswered | End::Unreachable(_) => CellEnd::Unknown,
    }
}

fn chars(text: &Text) -> usize {
    text.cut.as_ref().map_or_else(|| text.excerpt.chars().count(), |cut| cut.chars)
}
