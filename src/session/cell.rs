//! One cell in the kernel: from sending its code to knowing how it ended.
//!
//! The bounds on stubborn code are set here. What becomes of a kernel that has to be given up is the
//! session's business.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::end::{End, KernelState};
use crate::approval::{Approver, CellOutput};
use crate::kernel::{self, Content, Event, Fold, Kernel, Message, Missing, PythonError, RateLimit};
use crate::output::{Late, Record, Recorded, SavedImage, Text};

/// How long code gets to begin before it is interrupted all the same.
const BEGIN_GRACE: Duration = Duration::from_secs(1);
/// How long to wait for the reply, and for the replies to interrupts, once the kernel is idle. They come within
/// milliseconds, or never: ipykernel sends no reply if an interrupt hits it outside of the cell's code, or if the cell
/// broke `sys.stdout`.
const LAST_CALL: Duration = Duration::from_secs(1);
/// How long code gets to react to an interrupt request before it is sent a signal.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);
/// How long code gets to react to the signal before its kernel is killed.
const SIGNAL_GRACE: Duration = Duration::from_secs(3);

/// How long to wait for what a killed kernel had said. It is there already.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Code to run.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The code, as a user would type it into IPython.
    pub(crate) code: String,
    /// How long it may run. Waiting for its turn, for the kernel and for approval does not count.
    pub(crate) timeout: Duration,
    /// How many characters of its output are told.
    pub(crate) max_output_chars: usize,
    /// Ends the cell: at once if it waits, by an interrupt if it runs.
    pub(crate) cancel: CancellationToken,
    /// Where text goes while it is produced.
    pub(crate) chunks: Option<mpsc::Sender<String>>,
    /// Who answers for the tool calls of its code. While a question waits, the timeout does not run.
    pub(crate) approver: Approver,
}

/// How a cell ended, and what it had produced by then.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Streams and shown objects, in order.
    pub(crate) text: Text,
    /// What earlier cells have shown since the last outcome, after they had ended.
    pub(crate) late: Text,
    /// Saved images, in order.
    pub(crate) images: Vec<SavedImage>,
    /// How it ended.
    pub(crate) end: End,
    /// The exception that ended its code. One that was interrupted tells where it was.
    pub(crate) error: Option<PythonError>,
    /// What the caller must know beyond this cell: that variables were lost before it, that an image was.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    /// Of a cell that ended before its code ran.
    pub(super) fn not_run(end: End) -> Self {
        Self {
            text: Text::default(),
            late: Text::default(),
            images: Vec::new(),
            end,
            error: None,
            notes: Vec::new(),
        }
    }

    /// How it ended, as the audit log says it.
    pub(super) fn word(&self) -> &'static str {
        match &self.end {
            End::Finished if self.error.is_some() => "error",
            End::Finished => "finished",
            End::TimedOut { .. } => "timed_out",
            End::Cancelled(_) => "cancelled",
            End::NotRun => "not_run",
            End::Reset => "reset",
            End::Died(_) => "died",
            End::Unanswered | End::Unreachable(_) => "unknown",
        }
    }

    /// How much it showed, for the audit log.
    pub(super) fn output(&self) -> CellOutput<'_> {
        let Text { excerpt, cut } = &self.text;
        let chars = cut.as_ref().map_or_else(|| excerpt.chars().count(), |cut| cut.chars);
        CellOutput { excerpt, chars, images: self.images.len() }
    }
}

/// What came of a cell in one kernel.
pub(super) struct Followed {
    /// What it has shown.
    pub(super) recorded: Recorded,
    /// The exception that ended its code.
    pub(super) error: Option<PythonError>,
    /// How it ended.
    pub(super) end: End,
    /// Whether the kernel has not said that the code begins, and nobody wanted to stop it.
    pub(super) is_untouched: bool,
}

/// How far we have gone to stop the code.
#[derive(Clone, Copy)]
enum Pressure {
    None,
    /// The code has not begun to run: an interrupt would be lost.
    Waiting(Reason),
    Requested(Reason),
    Signalled(Reason),
}

/// Why we stop the code.
#[derive(Clone, Copy)]
enum Reason {
    Timeout,
    Cancel,
}

/// Follows a cell, sent as `request`, to its end, which comes at the latest 6 seconds after its timeout or
/// cancellation. It has `spent` a part of its time before. What other cells say meanwhile goes to `late`.
///
/// If the state is [`KernelState::Lost`], the kernel is of no more use.
pub(super) async fn follow(
    kernel: &mut Kernel,
    request: String,
    cell: &Cell,
    generation: &CancellationToken,
    spent: Duration,
    late: &mut Late,
) -> Followed {
    let mut course = Course {
        fold: Fold::new(request),
        record: Record::new(late.places(), cell.max_output_chars),
        late,
        pressure: Pressure::None,
        deadline: after(cell.timeout.saturating_sub(spent)),
        questions: cell.approver.waiting(),
        expired: 0,
        paused_since: None,
        last_call: None,
        unanswered_interrupts: 0,
        is_torn: false,
        unsent: None,
    };
    let stopped = course.run(kernel, cell, generation).await;
    let missing = course.fold.missing().map(told);
    let is_untouched = !course.fold.has_begun() && matches!(course.pressure, Pressure::None);
    let (rest, error) = course.fold.finish();
    let end = stopped.map_or_else(End::Unreachable, |end| end.unwrap_or(End::Finished));
    let mut recorded = course.record.finish(rest).await;
    recorded.troubles.extend(missing);
    Followed { recorded, error, end, is_untouched }
}

/// What is said about output that was lost on its way.
fn told(Missing { messages, limit }: Missing) -> String {
    let what = match messages {
        0 => "Output of this cell is missing".to_owned(),
        1 => "A message with output of this cell is missing".to_owned(),
        messages => format!("{messages} messages with output of this cell are missing"),
    };
    let Some(RateLimit { setting, rate }) = limit else {
        return format!("{what}: lost on the way from the Jupyter server.");
    };
    let rate = rate.map_or_else(String::new, |rate| format!(", which is {rate} a second"));
    format!(
        "{what}: the Jupyter server drops what comes faster than its limit{rate}. Print less, write to a file, or start the \
         server with a higher limit: `--ZMQChannelsWebsocketConnection.{setting}=…` (`--ServerApp.{setting}=…` before Jupyter \
         Server 2.0)."
    )
}

/// The course of one cell.
struct Course<'a> {
    fold: Fold,
    record: Record,
    late: &'a mut Late,
    pressure: Pressure,
    /// When the next step is due to stop the code.
    deadline: Instant,
    /// How many of its calls wait for approval.
    questions: watch::Receiver<usize>,
    /// How many of its questions had expired when the time was stopped last.
    expired: usize,
    /// Since when the time does not count.
    paused_since: Option<Instant>,
    /// When to stop waiting for what should follow the kernel's being idle.
    last_call: Option<Instant>,
    /// Interrupts that the kernel has not yet said to have sent: one of them could hit the next cell.
    unanswered_interrupts: u32,
    /// Whether a message was torn by an interrupt, of this cell or the one before: it may have been the reply.
    is_torn: bool,
    /// Text that the listener has not had room for. Until it has, the kernel is not read.
    unsent: Option<String>,
}

impl Course<'_> {
    /// `None` if the cell ended of its own accord.
    async fn run(
        &mut self,
        kernel: &mut Kernel,
        cell: &Cell,
        generation: &CancellationToken,
    ) -> Result<Option<End>, kernel::Error> {
        loop {
            let last_call = self.last_call;
            tokio::select! {
                event = kernel.next(), if self.unsent.is_none() => match event? {
                    Event::Message(message) => self.take(message, kernel, cell).await?,
                    Event::Torn => self.is_torn = true,
                    Event::Disconnected(why) => return Err(kernel::Error::Disconnected(why)),
                    Event::Died(death) => return Ok(Some(End::Died(death))),
                },
                sent = send(cell.chunks.as_ref(), &mut self.unsent), if self.unsent.is_some() => sent,
                Ok(()) = self.questions.changed() => self.pause(cell.approver.expired()),
                () = generation.cancelled() => return Ok(Some(End::Reset)),
                () = cell.cancel.cancelled(), if matches!(self.pressure, Pressure::None) => {
                    self.press(kernel, Reason::Cancel).await?;
                }
                () = tokio::time::sleep_until(last_call.unwrap_or(self.deadline)),
                    if last_call.is_some() || self.is_time_running() => {
                    match self.pressure {
                        _ if last_call.is_some() => {
                            return Ok(stopped_by(cell, self.pressure, KernelState::Kept).or_else(|| self.unanswered()));
                        }
                        Pressure::Signalled(_) => {
                            self.kill(kernel).await;
                            return Ok(stopped_by(cell, self.pressure, KernelState::Lost));
                        }
                        _ => self.press(kernel, Reason::Timeout).await?,
                    }
                }
            }
            if self.fold.is_complete() && self.unanswered_interrupts == 0 && self.unsent.is_none() {
                return Ok(stopped_by(cell, self.pressure, KernelState::Kept));
            }
        }
    }

    /// The time in which a question waits for its answer is not the code's. But code that goes on asking when nobody
    /// answers would never time out: once a question has expired, the waits of further ones that expire count.
    fn pause(&mut self, expired: usize) {
        let is_asking = *self.questions.borrow_and_update() > 0;
        match (is_asking, self.paused_since) {
            (true, None) => {
                self.paused_since = Some(Instant::now());
                self.expired = expired;
            }
            (false, Some(since)) => {
                self.paused_since = None;
                let is_pestering = self.expired > 0 && expired > self.expired;
                // Code that is being stopped gets no more time.
                if matches!(self.pressure, Pressure::None) && !is_pestering {
                    self.deadline += since.elapsed();
                }
            }
            _ => {}
        }
    }

    fn is_time_running(&self) -> bool {
        self.paused_since.is_none() || !matches!(self.pressure, Pressure::None)
    }

    async fn take(
        &mut self,
        message: Message,
        kernel: &mut Kernel,
        cell: &Cell,
    ) -> Result<(), kernel::Error> {
        if matches!(message.content, Content::InterruptReply) {
            self.unanswered_interrupts = self.unanswered_interrupts.saturating_sub(1);
        }
        if !self.fold.is_parent_of(&message) {
            self.late.take(message.content).await;
            return Ok(());
        }
        let text = self.record.keep(self.fold.take(message.content)).await;
        if cell.chunks.is_some() && matches!(self.pressure, Pressure::None) {
            self.unsent = text;
        }
        if self.fold.is_idle() && self.last_call.is_none() {
            self.last_call = Some(Instant::now() + LAST_CALL);
        }
        if let Pressure::Waiting(reason) = self.pressure
            && self.fold.has_begun()
        {
            self.press(kernel, reason).await?;
        }
        Ok(())
    }

    /// Kills the kernel and takes in what the code had printed: code that never lets go of the interpreter's lock keeps
    /// it from being sent.
    async fn kill(&mut self, kernel: &mut Kernel) {
        kernel.signal_kill();
        let last_words = async {
            while let Ok(Event::Message(message)) = kernel.next().await {
                match self.fold.is_parent_of(&message) {
                    true => drop(self.record.keep(self.fold.take(message.content)).await),
                    false => self.late.take(message.content).await,
                }
            }
        };
        if tokio::time::timeout(LAST_WORDS, last_words).await.is_err() {
            tracing::warn!("a killed kernel takes long to end");
        }
    }

    /// How a cell ended whose reply has not come. If it was torn, nothing else is lost: output and exceptions come
    /// by another way.
    fn unanswered(&self) -> Option<End> {
        (!self.fold.is_complete() && !self.is_torn).then_some(End::Unanswered)
    }

    /// Goes one step further to stop the code.
    async fn press(&mut self, kernel: &mut Kernel, reason: Reason) -> Result<(), kernel::Error> {
        // A listener that does not listen must not keep us from seeing how the code reacts.
        self.unsent = None;
        let grace = match self.pressure {
            Pressure::None if !self.fold.has_begun() => {
                self.pressure = Pressure::Waiting(reason);
                BEGIN_GRACE
            }
            Pressure::None | Pressure::Waiting(_) => {
                kernel.request_interrupt()?;
                self.unanswered_interrupts += 1;
                self.pressure = Pressure::Requested(match self.pressure {
                    Pressure::Waiting(first) => first,
                    _ => reason,
                });
                INTERRUPT_GRACE
            }
            Pressure::Requested(first) | Pressure::Signalled(first) => {
                kernel.signal_interrupt();
                self.pressure = Pressure::Signalled(first);
                SIGNAL_GRACE
            }
        };
        self.deadline = Instant::now() + grace;
        Ok(())
    }
}

/// When `timeout` is over; a timeout that no clock can tell is over in a century.
fn after(timeout: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + CENTURY)
}

/// Sends what is unsent as soon as the listener has room for it. Cancellation safe.
async fn send(chunks: Option<&mpsc::Sender<String>>, unsent: &mut Option<String>) {
    let Some(chunks) = chunks else { return };
    // Nobody listens any more: the outcome still has it all.
    let permit = chunks.reserve().await;
    if let (Some(text), Ok(permit)) = (unsent.take(), permit) {
        permit.send(text);
    }
}

/// How a cell ended that we stopped; `None` if we did not.
fn stopped_by(cell: &Cell, pressure: Pressure, state: KernelState) -> Option<End> {
    match pressure {
        Pressure::None => None,
        Pressure::Waiting(reason) | Pressure::Requested(reason) | Pressure::Signalled(reason) => {
            Some(match reason {
                Reason::Timeout => End::TimedOut { after: cell.timeout, state },
                Reason::Cancel => End::Cancelled(state),
            })
        }
    }
}
