//! The end of a cell, and the text that reports it.

use std::time::Duration;

use crate::ground::text::describe;
use crate::kernels::kernel::{self, KernelDeath};

/// The end of a cell.
#[derive(Debug)]
pub(crate) enum CellEnding {
    /// By itself: all of the code ran, or it raised an exception.
    Finished,
    /// The code took too long.
    TimedOut {
        /// The cell's timeout.
        after: Duration,
        /// The state of the variables.
        state: KernelState,
    },
    /// The caller gave up while the code ran.
    Cancelled(KernelState),
    /// The caller gave up before the code ran.
    NotRun,
    /// The kernel was reset while the cell ran or waited.
    Reset,
    /// The kernel became idle without a reply: the code may not have run.
    Unanswered,
    /// The connection to the kernel failed.
    Unreachable(kernel::Error),
    /// The kernel's process ended.
    Died(KernelDeath),
}

/// The state of the kernel's variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelState {
    /// They are still there.
    Kept,
    /// They are gone: the code did not react to interrupts and its kernel was killed.
    Lost,
}

impl KernelState {
    fn words(self) -> &'static str {
        match self {
            Self::Kept => "The kernel is fine: variables and imports are still there.",
            Self::Lost => {
                "The code did not react, so the kernel was killed and a fresh one takes its place: \
                 all variables and imports are gone."
            }
        }
    }

    pub(crate) fn of(end: &CellEnding) -> Self {
        match end {
            CellEnding::TimedOut { state, .. } | CellEnding::Cancelled(state) => *state,
            CellEnding::Unreachable(kernel::Error::Disconnected(_)) => Self::Kept,
            CellEnding::Reset | CellEnding::Unreachable(_) | CellEnding::Died(_) => Self::Lost,
            CellEnding::Finished | CellEnding::NotRun | CellEnding::Unanswered => Self::Kept,
        }
    }
}

impl CellEnding {
    /// The report of an end that the code did not reach by itself; empty for [`CellEnding::Finished`].
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Finished => String::new(),
            Self::TimedOut { after, state } => {
                let seconds = after.as_secs_f64();
                format!("Execution timed out after {seconds} seconds and was interrupted. {}", state.words())
            }
            Self::Cancelled(state) => format!("Execution was cancelled. {}", state.words()),
            Self::NotRun => "Execution was cancelled before it began.".to_owned(),
            Self::Reset => {
                "Execution was stopped by a reset of the kernel. All variables and imports are gone.".to_owned()
            }
            Self::Unanswered => "The IPython kernel did not say how the cell ended: its code may not have run. An earlier \
                 cell may have broken the kernel, by replacing `sys.stdout` for instance; `reset` makes a fresh one."
                .to_owned(),
            Self::Unreachable(kernel::Error::Disconnected(why)) => {
                format!(
                    "The Jupyter server cannot be reached: {why}. The kernel is kept, and the code may still be running in it: \
                     run another cell when the server can be reached again, or `reset` for a fresh kernel."
                )
            }
            Self::Unreachable(error) => {
                let why = describe(error);
                format!(
                    "The connection to the IPython kernel failed ({why}). \
                     A fresh kernel takes its place: all variables and imports are gone."
                )
            }
            Self::Died(death) => {
                let KernelDeath { manner, stderr, .. } = death;
                let causes = death.causes();
                let words = if stderr.is_empty() { String::new() } else { format!("\n\n{stderr}") };
                format!(
                    "The IPython kernel died while running the cell ({manner}). \
                     A fresh one takes its place: all variables and imports are gone.{causes}{words}"
                )
            }
        }
    }
}
