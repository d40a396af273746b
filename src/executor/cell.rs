//! One cell in the kernel: from sending its code to knowing how it ended.
//!
//! The bounds on stubborn code are set here. What becomes of a kernel that has to be given up is the
//! session's business.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::kernel::{self, Event, Fold, Kernel, Output, PythonError, Text, TextLimit};

/// How long code gets to react to an interrupt request before it is sent a signal.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);
/// How long code gets to react to the signal before its kernel is killed.
const SIGNAL_GRACE: Duration = Duration::from_secs(3);

/// Code to run.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The code, as a user would type it into IPython.
    pub(crate) code: String,
    /// How long it may run. Waiting for its turn and for the kernel does not count.
    pub(crate) timeout: Duration,
    /// How much of its text is kept.
    pub(crate) limit: TextLimit,
    /// Ends the cell: at once if it waits, by an interrupt if it runs.
    pub(crate) cancel: CancellationToken,
    /// Where text goes while it is produced.
    pub(crate) chunks: Option<mpsc::Sender<String>>,
}

/// How a cell ended, and what it had produced by then.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Streams and shown objects, in order.
    pub(crate) text: Text,
    /// Paths of saved images, in order.
    pub(crate) images: Vec<PathBuf>,
    /// How it ended.
    pub(crate) end: End,
    /// What the caller must know beyond this cell: that variables were lost before it, that an image was.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    /// Of a cell that ended before its code ran.
    pub(super) fn not_run(end: End) -> Self {
        Self { text: Text::default(), images: Vec::new(), end, notes: Vec::new() }
    }
}

/// How a cell ended.
#[derive(Debug)]
pub(crate) enum End {
    /// All of the code ran.
    Completed,
    /// The code raised an exception.
    Raised(PythonError),
    /// The code took too long.
    TimedOut {
        /// How long it was given.
        after: Duration,
        /// What became of the variables.
        state: State,
    },
    /// The caller gave up.
    Cancelled(State),
    /// The kernel was reset while the cell ran or waited.
    Reset,
    /// The kernel could not be spoken to any more.
    Unreachable(kernel::Error),
    /// The kernel's process ended.
    Died {
        /// How.
        status: ExitStatus,
        /// The last lines of its real stderr.
        stderr: String,
    },
}

/// What became of the kernel's variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// They are still there.
    Kept,
    /// They are gone: the code did not react to interrupts and its kernel was killed.
    Lost,
}

impl State {
    pub(super) fn of(end: &End) -> Self {
        match end {
            End::TimedOut { state, .. } | End::Cancelled(state) => *state,
            End::Reset | End::Unreachable(_) | End::Died { .. } => Self::Lost,
            End::Completed | End::Raised(_) => Self::Kept,
        }
    }
}

/// How far we have gone to stop the code.
#[derive(Clone, Copy)]
enum Pressure {
    None,
    Requested(Reason),
    Signalled(Reason),
}

/// Why we stop the code.
#[derive(Clone, Copy)]
enum Reason {
    Timeout,
    Cancel,
}

/// Follows a cell, sent as `request`, to its end, which comes at the latest 5 seconds after its timeout or
/// cancellation.
///
/// If the state is [`State::Lost`], the kernel is of no more use.
pub(super) async fn follow(
    kernel: &mut Kernel,
    request: String,
    cell: &Cell,
    generation: &CancellationToken,
) -> (Output, End) {
    let mut fold = Fold::new(request, cell.limit);
    let stopped = follow_until_stopped(kernel, &mut fold, cell, generation).await;
    let mut output = fold.into_output();
    let end = match (stopped, output.error.take()) {
        (Err(error), _) => End::Unreachable(error),
        (Ok(Some(end)), _) => end,
        (Ok(None), Some(error)) => End::Raised(error),
        (Ok(None), None) => End::Completed,
    };
    (output, end)
}

/// `None` if the cell ended of its own accord.
async fn follow_until_stopped(
    kernel: &mut Kernel,
    fold: &mut Fold,
    cell: &Cell,
    generation: &CancellationToken,
) -> Result<Option<End>, kernel::Error> {
    let mut deadline = Instant::now() + cell.timeout;
    let mut pressure = Pressure::None;
    loop {
        tokio::select! {
            event = kernel.next() => match event? {
                Event::Message(message) => {
                    let text = fold.take(message);
                    if let (Some(text), Some(chunks)) = (text, &cell.chunks) {
                        // Nobody listens any more: the outcome still has it all.
                        drop(chunks.send(text).await);
                    }
                    if fold.is_complete() {
                        return Ok(stopped_by(cell, pressure, State::Kept));
                    }
                }
                Event::Died { status, stderr } => return Ok(Some(End::Died { status, stderr })),
            },
            () = generation.cancelled() => return Ok(Some(End::Reset)),
            () = cell.cancel.cancelled(), if matches!(pressure, Pressure::None) => {
                (pressure, deadline) = press(kernel, pressure, Reason::Cancel).await?;
            }
            () = tokio::time::sleep_until(deadline) => match pressure {
                Pressure::Signalled(_) => return Ok(stopped_by(cell, pressure, State::Lost)),
                _ => (pressure, deadline) = press(kernel, pressure, Reason::Timeout).await?,
            },
        }
    }
}

/// Goes one step further to stop the code.
async fn press(
    kernel: &mut Kernel,
    pressure: Pressure,
    reason: Reason,
) -> Result<(Pressure, Instant), kernel::Error> {
    let now = Instant::now();
    match pressure {
        Pressure::None => {
            kernel.request_interrupt().await?;
            Ok((Pressure::Requested(reason), now + INTERRUPT_GRACE))
        }
        Pressure::Requested(reason) | Pressure::Signalled(reason) => {
            kernel.signal_interrupt();
            Ok((Pressure::Signalled(reason), now + SIGNAL_GRACE))
        }
    }
}

/// How a cell ended that we stopped; `None` if we did not.
fn stopped_by(cell: &Cell, pressure: Pressure, state: State) -> Option<End> {
    match pressure {
        Pressure::None => None,
        Pressure::Requested(Reason::Timeout) | Pressure::Signalled(Reason::Timeout) => {
            Some(End::TimedOut { after: cell.timeout, state })
        }
        Pressure::Requested(Reason::Cancel) | Pressure::Signalled(Reason::Cancel) => {
            Some(End::Cancelled(state))
        }
    }
}
