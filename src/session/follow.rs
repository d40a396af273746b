//! One cell in the kernel: from the code that `worker` has sent to how it ended.
//!
//! The grace periods for code that does not react to interrupts are set here. The worker replaces a kernel
//! that is lost.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::CENTURY;
use super::audience::LiveCell;
use super::cell::Cell;
use super::end::{CellEnding, KernelState};
use crate::kernels::kernel::{
    self, AttachmentId, CellFold, Kernel, KernelEvent, KernelMessage, LostOutput, MessageContent,
    PythonError, RateLimit,
};
use crate::kernels::output::{LateOutput, OutputRecorder, RecordedOutput};

/// The time that code that is to be stopped gets to begin, before it is interrupted anyway.
const BEGIN_GRACE: Duration = Duration::from_secs(1);
/// The time to wait for the reply, and for the replies to interrupts, once the kernel is idle. They come within
/// milliseconds, or never: ipykernel sends no reply if an interrupt hits it outside of the cell's code, or if the cell
/// broke `sys.stdout`.
const LAST_CALL: Duration = Duration::from_secs(1);
/// The time that code gets to react to an interrupt request before it is sent a signal.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);
/// The time that code gets to react to the signal before its kernel is killed.
const SIGNAL_GRACE: Duration = Duration::from_secs(3);

/// The time to read the remaining messages of a killed kernel. They have arrived already.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The result of a cell in one kernel.
pub(super) struct FollowedCell {
    /// Its output.
    pub(super) recorded: RecordedOutput,
    /// The exception that ended its code.
    pub(super) error: Option<PythonError>,
    /// The end of the cell.
    pub(super) end: CellEnding,
    /// Whether the code has not begun, as far as the kernel has reported, and no timeout or cancellation was under way.
    pub(super) is_untouched: bool,
}

/// The step of the escalation to stop the code.
#[derive(Clone, Copy)]
enum Escalation {
    None,
    /// The code has not begun to run: an interrupt would be lost.
    Waiting(StopReason),
    Requested(StopReason),
    Signalled(StopReason),
}

impl Escalation {
    /// Why the code is stopped, if it is.
    const fn reason(self) -> Option<StopReason> {
        match self {
            Self::None => None,
            Self::Waiting(reason) | Self::Requested(reason) | Self::Signalled(reason) => Some(reason),
        }
    }
}

/// Why the code is stopped.
#[derive(Clone, Copy)]
enum StopReason {
    Timeout,
    Cancel,
}

/// Follows a cell, sent as `request`, to its end, which comes at the latest 6 seconds after its timeout or cancellation, or 5
/// after a beginning that is later. `spent` is the part of its time that an earlier kernel took. Messages of other cells go to
/// `late`.
///
/// If the state is [`KernelState::Lost`], the caller must replace the kernel.
pub(super) async fn follow(
    kernel: &mut Kernel,
    request: String,
    cell: &Cell,
    generation: &CancellationToken,
    spent: Duration,
    late: &mut LateOutput,
    live: &LiveCell,
) -> FollowedCell {
    if let Some(unread) = &cell.unread {
        unread.begin();
    }
    let mut questions = cell.approver.waiting();
    // The code may have called a tool already: it was sent before.
    questions.mark_changed();
    let mut course = Course {
        fold: CellFold::new(request),
        record: OutputRecorder::new(late.places(), cell.max_output_chars),
        late,
        live,
        escalation: Escalation::None,
        deadline: Instant::now() + cell.timeout.min(CENTURY).saturating_sub(spent),
        questions,
        expired: 0,
        expired_before: cell.approver.expired(),
        paused_since: None,
        last_call: None,
        unanswered_interrupts: 0,
        is_torn: false,
        unsent: None,
    };
    let stopped = course.run(kernel, cell, generation).await;
    let missing = course.fold.missing().map(missing_note);
    let is_untouched = !course.fold.has_begun() && matches!(course.escalation, Escalation::None);
    let (rest, error) = course.fold.finish();
    let end = stopped.map_or_else(CellEnding::Unreachable, |end| end.unwrap_or(CellEnding::Finished));
    let mut recorded = course.record.finish(rest).await;
    recorded.troubles.extend(missing);
    FollowedCell { recorded, error, end, is_untouched }
}

/// The note about output that was lost in transit.
fn missing_note(LostOutput { messages, limit }: LostOutput) -> String {
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
    fold: CellFold,
    record: OutputRecorder,
    late: &'a mut LateOutput,
    /// Those who watch it.
    live: &'a LiveCell,
    escalation: Escalation,
    /// When the next step is due to stop the code.
    deadline: Instant,
    /// The number of its approval requests that wait.
    questions: watch::Receiver<usize>,
    /// The number of its approval requests that had expired when the timeout was last paused.
    expired: usize,
    /// The number of requests of earlier cells that had expired before.
    expired_before: usize,
    /// Since when the timeout is paused.
    paused_since: Option<Instant>,
    /// When to stop waiting for replies, once the kernel is idle.
    last_call: Option<Instant>,
    /// Interrupt requests without a reply yet: one of them could hit the next cell.
    unanswered_interrupts: u32,
    /// Whether a message was torn by an interrupt, of this cell or the one before: it may have been the reply.
    is_torn: bool,
    /// Text for which `chunks` had no room. Until it is sent, the kernel is not read.
    unsent: Option<String>,
}

impl Course<'_> {
    /// `None` if the cell ended by itself.
    async fn run(
        &mut self,
        kernel: &mut Kernel,
        cell: &Cell,
        generation: &CancellationToken,
    ) -> Result<Option<CellEnding>, kernel::Error> {
        loop {
            let last_call = self.last_call;
            tokio::select! {
                event = kernel.next(), if self.unsent.is_none() => match event? {
                    KernelEvent::Message(message) => self.take(message, kernel, cell).await?,
                    KernelEvent::Torn => self.is_torn = true,
                    KernelEvent::Disconnected(why) => return Err(kernel::Error::Disconnected(why)),
                    KernelEvent::Died(death) => return Ok(Some(CellEnding::Died(death))),
                },
                sent = send(cell.chunks.as_ref(), &mut self.unsent), if self.unsent.is_some() => sent,
                Ok(()) = self.questions.changed() => {
                    self.pause(cell.approver.expired() - self.expired_before);
                }
                () = generation.cancelled() => return Ok(Some(CellEnding::Reset)),
                () = cell.cancel.cancelled(), if matches!(self.escalation, Escalation::None) => {
                    self.escalate(kernel, StopReason::Cancel).await?;
                }
                () = tokio::time::sleep_until(last_call.unwrap_or(self.deadline)),
                    if last_call.is_some() || self.is_time_running() => {
                    match self.escalation {
                        _ if last_call.is_some() => {
                            let end = stopped_by(cell, self.escalation, KernelState::Kept);
                            return Ok(end.or_else(|| self.unanswered()));
                        }
                        Escalation::Signalled(_) => {
                            self.kill(kernel, cell).await;
                            return Ok(stopped_by(cell, self.escalation, KernelState::Lost));
                        }
                        _ => self.escalate(kernel, StopReason::Timeout).await?,
                    }
                }
            }
            if self.fold.is_complete() && self.unanswered_interrupts == 0 && self.unsent.is_none() {
                return Ok(stopped_by(cell, self.escalation, KernelState::Kept));
            }
        }
    }

    /// The time in which approval requests wait does not count as run time. But code that keeps calling when nobody
    /// answers would never time out: once a request has expired, the waits of further ones that expire count, also if
    /// others always wait beside them.
    fn pause(&mut self, expired: usize) {
        let is_asking = *self.questions.borrow_and_update() > 0;
        let has_expired = expired > self.expired;
        if let Some(since) = self.paused_since
            && (has_expired || !is_asking)
        {
            self.paused_since = None;
            if has_expired && self.expired > 0 {
                return;
            }
            // Code that is being stopped gets no more time.
            if matches!(self.escalation, Escalation::None) {
                self.deadline += since.elapsed();
            }
        }
        if is_asking && self.paused_since.is_none() {
            self.paused_since = Some(Instant::now());
            self.expired = expired;
        }
    }

    fn is_time_running(&self) -> bool {
        self.paused_since.is_none() || !matches!(self.escalation, Escalation::None)
    }

    async fn take(
        &mut self,
        message: KernelMessage,
        kernel: &mut Kernel,
        cell: &Cell,
    ) -> Result<(), kernel::Error> {
        if matches!(message.content, MessageContent::InterruptReply) {
            self.unanswered_interrupts = self.unanswered_interrupts.saturating_sub(1);
        }
        if !self.fold.is_parent_of(&message) {
            self.late.take(message.content).await;
            return Ok(());
        }
        let had_begun = self.fold.has_begun();
        let text = self.keep(message.content, cell).await;
        if cell.chunks.is_some() && matches!(self.escalation, Escalation::None) {
            self.unsent = text;
        }
        if self.fold.is_idle() && self.last_call.is_none() {
            self.last_call = Some(Instant::now() + LAST_CALL);
        }
        if !had_begun
            && self.fold.has_begun()
            && let Some(reason) = self.escalation.reason()
        {
            // Interrupts that came before have hit nothing.
            self.escalation = Escalation::Waiting(reason);
            self.escalate(kernel, reason).await?;
        }
        Ok(())
    }

    /// Records what the cell shows. Returns its text.
    async fn keep(&mut self, content: MessageContent, cell: &Cell) -> Option<String> {
        self.live.came(&content);
        let taken = self.fold.take(content);
        let images: Vec<AttachmentId> = taken.images.iter().map(|(id, _)| *id).collect();
        let text = self.record.keep(taken).await;
        images.into_iter().filter_map(|id| self.record.file_of(id)).for_each(|file| self.live.saved(file));
        if let (Some(unread), Some(text)) = (&cell.unread, &text) {
            unread.push(text);
        }
        if let Some(text) = &text {
            self.live.text(text);
        }
        text
    }

    /// Kills the kernel and reads what the code had printed: code that never releases the GIL keeps it from
    /// being sent before.
    async fn kill(&mut self, kernel: &mut Kernel, cell: &Cell) {
        kernel.signal_kill();
        let last_words = async {
            while let Ok(KernelEvent::Message(message)) = kernel.next().await {
                if self.fold.is_parent_of(&message) {
                    drop(self.keep(message.content, cell).await)
                } else {
                    self.late.take(message.content).await
                }
            }
        };
        if tokio::time::timeout(LAST_WORDS, last_words).await.is_err() {
            tracing::warn!("a killed kernel takes long to end");
        }
    }

    /// The end of a cell without a reply. If the reply was torn, nothing else is lost: output and exceptions
    /// come in other messages.
    fn unanswered(&self) -> Option<CellEnding> {
        (!self.fold.is_complete() && !self.is_torn).then_some(CellEnding::Unanswered)
    }

    /// Takes the next step to stop the code.
    async fn escalate(&mut self, kernel: &mut Kernel, reason: StopReason) -> Result<(), kernel::Error> {
        // A full `chunks` must not keep us from reading how the code reacts.
        self.unsent = None;
        let grace = match self.escalation {
            Escalation::None if !self.fold.has_begun() => {
                self.escalation = Escalation::Waiting(reason);
                BEGIN_GRACE
            }
            Escalation::None | Escalation::Waiting(_) => {
                kernel.request_interrupt()?;
                self.unanswered_interrupts += 1;
                self.escalation = Escalation::Requested(self.escalation.reason().unwrap_or(reason));
                INTERRUPT_GRACE
            }
            Escalation::Requested(first) | Escalation::Signalled(first) => {
                kernel.signal_interrupt();
                self.escalation = Escalation::Signalled(first);
                SIGNAL_GRACE
            }
        };
        self.deadline = Instant::now() + grace;
        Ok(())
    }
}

/// Sends the unsent text as soon as `chunks` has room for it. Cancellation safe.
async fn send(chunks: Option<&mpsc::Sender<String>>, unsent: &mut Option<String>) {
    let Some(chunks) = chunks else { return };
    // An error means that the receiver is gone: the outcome still has all text.
    let permit = chunks.reserve().await;
    if let (Some(text), Ok(permit)) = (unsent.take(), permit) {
        permit.send(text);
    }
}

/// The end of a stopped cell; `None` if it was not stopped.
fn stopped_by(cell: &Cell, escalation: Escalation, state: KernelState) -> Option<CellEnding> {
    escalation.reason().map(|reason| match reason {
        StopReason::Timeout => CellEnding::TimedOut { after: cell.timeout, state },
        StopReason::Cancel => CellEnding::Cancelled(state),
    })
}
