//! Why code has no result.

use std::time::Duration;

use super::result::CodeExecutionResult;
use crate::session::{CellEnding, KernelState, Outcome};

/// Why code did not run to its end. Its output until then is in [`output`](Self::output).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeExecutionError {
    /// The code raised an exception: its own, a syntax error, a failed or rejected tool call.
    #[error("{traceback}")]
    #[non_exhaustive]
    Raised {
        /// The exception's class, `ZeroDivisionError`.
        name: String,
        /// Its text, `division by zero`.
        value: String,
        /// The traceback as IPython formats it, without colours.
        traceback: String,
        /// The output before.
        output: Box<CodeExecutionResult>,
    },
    /// The code ran longer than it was allowed to and was interrupted.
    #[error("{words}")]
    #[non_exhaustive]
    TimedOut {
        /// The time that it was allowed to run.
        after: Duration,
        /// The state of the variables.
        kernel: KernelState,
        /// The full report, with the position of the code.
        words: String,
        /// The output before.
        output: Box<CodeExecutionResult>,
    },
    /// The code was cancelled, or never begun because it was cancelled.
    #[error("{words}")]
    #[non_exhaustive]
    Cancelled {
        /// The state of the variables.
        kernel: KernelState,
        /// All that there is to say.
        words: String,
        /// The output before.
        output: Box<CodeExecutionResult>,
    },
    /// The kernel was lost while the code ran: it was reset, it died, the connection to it failed. The next
    /// code runs in a fresh kernel. Or the kernel did not report how the code ended.
    #[error("{words}")]
    #[non_exhaustive]
    Lost {
        /// The state of the variables.
        kernel: KernelState,
        /// All that there is to say.
        words: String,
        /// The output before.
        output: Box<CodeExecutionResult>,
    },
    /// The code could not be run at all: there is no kernel, and none can be started.
    #[error(transparent)]
    Unavailable(Box<dyn std::error::Error + Send + Sync>),
}

impl CodeExecutionError {
    /// The output until then; `None` if the code was not run at all.
    pub fn output(&self) -> Option<&CodeExecutionResult> {
        match self {
            Self::Raised { output, .. }
            | Self::TimedOut { output, .. }
            | Self::Cancelled { output, .. }
            | Self::Lost { output, .. } => Some(output),
            Self::Unavailable(_) => None,
        }
    }

    pub(super) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

/// Converts the outcome of the cell with this id to a result for the application.
pub(super) fn result_of(outcome: Outcome, cell: String) -> Result<CodeExecutionResult, CodeExecutionError> {
    let kernel = KernelState::of(&outcome.end);
    let end_words = outcome.words();
    let Outcome { shown, late, end, error, notes, offer: _ } = outcome;
    let output = CodeExecutionResult::new(cell, shown, late, notes);
    let traceback = error.as_ref().map(|error| error.text());
    let words = match &traceback {
        Some(traceback) if !end_words.is_empty() => format!("{end_words}\n\n{traceback}"),
        _ => end_words,
    };
    match (end, error) {
        (CellEnding::Finished, None) => Ok(output),
        (CellEnding::Finished, Some(error)) => Err(CodeExecutionError::Raised {
            traceback: error.text(),
            name: error.name,
            value: error.value,
            output: Box::new(output),
        }),
        (CellEnding::TimedOut { after, .. }, _) => {
            Err(CodeExecutionError::TimedOut { after, kernel, words, output: Box::new(output) })
        }
        (CellEnding::Cancelled(_) | CellEnding::NotRun, _) => {
            Err(CodeExecutionError::Cancelled { kernel, words, output: Box::new(output) })
        }
        (
            CellEnding::Reset | CellEnding::Unanswered | CellEnding::Unreachable(_) | CellEnding::Died(_),
            _,
        ) => Err(CodeExecutionError::Lost { kernel, words, output: Box::new(output) }),
    }
}
