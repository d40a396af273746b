//! The task that owns the kernel and does what is queued, one thing at a time.
//!
//! Between cells it keeps reading what the kernel says, so that the kernel never waits for us, and
//! notices its death.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::cell::{self, Cell, Followed, Outcome};
use super::end::{End, KernelState};
use super::phase::Phase;
use crate::approval::Gate;
use crate::kernel::{self, Death, Event, Kernel};
use crate::output::Late;
use crate::servers::Pool;
use crate::site::{self, Kernels};
use crate::text::describe;

/// How long the kernel may take for our own housekeeping; it takes a few milliseconds.
const HOUSEKEEPING_TIMEOUT: Duration = Duration::from_secs(5);

/// Something to do with the kernel.
pub(super) enum Command {
    Execute { cell: Cell, generation: CancellationToken, reply: oneshot::Sender<Result<Outcome, Error>> },
    RefreshImports { changed: Option<String> },
    Reset { reply: oneshot::Sender<Result<(), Error>> },
}

/// The state of the task.
pub(super) struct Worker {
    pub(super) kernel: Option<Kernel>,
    /// Why the variables of earlier cells are gone, until a cell has been told.
    pub(super) lost: Option<String>,
    pub(super) queue: mpsc::Receiver<Command>,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) kernels: Kernels,
    /// Decides about what the kernel's code calls, and records its cells.
    pub(super) gate: Arc<Gate>,
    /// The connections of its tools; none if it has no tools.
    pub(super) pool: Option<Arc<Pool>>,
    /// What earlier cells have shown since the last outcome.
    pub(super) late: Late,
    /// How often in a row the kernel has not started, and when it last did not.
    pub(super) failed_starts: Option<(u32, Instant)>,
}

impl Worker {
    /// Works until `stop` is cancelled, then kills the kernel.
    ///
    /// Tells `started` how the first start of the kernel went.
    pub(super) async fn run(mut self, stop: CancellationToken, started: oneshot::Sender<Result<(), Error>>) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work(started) => {}
        }
        self.kernels.end(self.kernel.take()).await;
    }

    async fn work(&mut self, started: oneshot::Sender<Result<(), Error>>) {
        let first = self.start_kernel().await;
        if let Err(error) = &first {
            // The first cell tries again, and tells its caller.
            tracing::error!(error = %describe(error), "the kernel did not start");
        }
        // An MCP server does not wait for it.
        started.send(first).ok();
        loop {
            tokio::select! {
                command = self.queue.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                event = next_event(&mut self.kernel) => self.overhear(event).await,
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Execute { cell, generation, reply } => {
                let on_record = self.gate.audit().cell_started(&cell.code);
                self.gate.set_approver(Some(cell.approver.clone()));
                let outcome = self.execute(&cell, &generation).await;
                self.gate.set_approver(None);
                if let Ok(outcome) = &outcome {
                    on_record.ended(outcome.word(), outcome.output());
                }
                let was_reset = outcome.as_ref().is_ok_and(|outcome| matches!(outcome.end, End::Reset));
                // The caller gave up; there is nobody to tell.
                reply.send(outcome).ok();
                // A reset starts the next kernel itself. One that does not start is left to the next cell.
                if self.kernel.is_none()
                    && !was_reset
                    && self.failed_starts.is_none()
                    && let Err(error) = self.start_kernel().await
                {
                    tracing::error!(error = %describe(&error), "the kernel did not start again");
                }
            }
            Command::RefreshImports { changed } => self.refresh_imports(changed.as_deref()).await,
            Command::Reset { reply } => drop(reply.send(self.reset().await)),
        }
    }

    async fn execute(&mut self, cell: &Cell, generation: &CancellationToken) -> Result<Outcome, Error> {
        let (mut notes, mut spent, mut has_failed) = (Vec::new(), Duration::ZERO, false);
        let Followed { recorded, error, end, .. } = loop {
            let request = tokio::select! {
                // What was cancelled while it waited must not run.
                biased;
                () = cell.cancel.cancelled() => return Ok(Outcome::not_run(End::NotRun)),
                () = generation.cancelled() => return Ok(Outcome::not_run(End::Reset)),
                request = self.send(&cell.code) => request?,
            };
            notes.extend(self.lost.take());
            let Some(kernel) = self.kernel.as_mut() else { return Err(Error::Stopped) };
            let begun = Instant::now();
            let followed = cell::follow(kernel, request, cell, generation, spent, &mut self.late).await;
            spent += begun.elapsed();
            match &followed.end {
                // It had ended before, and its end was not known yet.
                End::Died(death) if followed.is_untouched && !has_failed && kernel.has_said_all() => {
                    has_failed = true;
                    let why = ended_with(death);
                    tracing::warn!(%why, "the kernel ended before the cell began; starting it anew");
                    self.give_up_kernel().await;
                    self.lost = Some(lost_note(&why));
                }
                _ => break followed,
            }
        };
        if KernelState::of(&end) == KernelState::Lost {
            self.give_up_kernel().await;
            // The next caller need not be this one, and a caller who cancelled hears nothing.
            self.lost = match &end {
                End::Reset => None,
                End::Died(death) => {
                    Some(lost_note(&format!("it died while running an earlier cell ({})", death.manner)))
                }
                End::Unreachable(_) => Some(lost_note("the connection to it failed during an earlier cell")),
                _ => Some(lost_note("an earlier cell did not react to its interruption")),
            };
        }
        let late = self.late.tell().await;
        notes.extend(late.troubles);
        notes.extend(recorded.troubles);
        let images = late.images.into_iter().chain(recorded.images).collect();
        Ok(Outcome { text: recorded.text, late: late.text, images, error, end, notes })
    }

    /// Sends code to the kernel, to a fresh one if it has died since the last cell.
    async fn send(&mut self, code: &str) -> Result<String, Error> {
        if let Some(kernel) = self.kernel.as_mut() {
            match kernel.execute(code.to_owned()).await {
                Ok(request) => return Ok(request),
                // It runs on, and can be reached again perhaps.
                Err(error @ kernel::Error::Disconnected(_)) => return Err(site::Error::Kernel(error).into()),
                Err(error) => {
                    let end = tokio::time::timeout(HOUSEKEEPING_TIMEOUT, self.last_words_of_kernel()).await;
                    let why = match (error, end.ok().flatten()) {
                        (kernel::Error::Ended(death), _) | (_, Some(death)) => ended_with(&death),
                        (error, None) => format!("the connection to it failed ({})", describe(&error)),
                    };
                    tracing::warn!(%why, "the kernel is gone; starting it anew");
                    self.give_up_kernel().await;
                    self.lost = Some(lost_note(&why));
                }
            }
        }
        self.start_kernel().await?;
        let Some(kernel) = self.kernel.as_mut() else { return Err(Error::Stopped) };
        Ok(kernel.execute(code.to_owned()).await.map_err(site::Error::Kernel)?)
    }

    /// Takes in what a kernel that cannot be spoken to any more has said. Returns how it ended, if that can be told: its
    /// connection may break before its end is known.
    async fn last_words_of_kernel(&mut self) -> Option<Death> {
        loop {
            match self.kernel.as_mut()?.next().await {
                Ok(Event::Message(message)) => self.late.take(message.content).await,
                Ok(Event::Torn | Event::Disconnected(_)) => {}
                Ok(Event::Died(death)) => return Some(death),
                Err(_) => return None,
            }
        }
    }

    async fn reset(&mut self) -> Result<(), Error> {
        if let Some(kernel) = self.kernel.take() {
            self.kernels.replace(kernel).await;
        }
        self.lost = None;
        self.failed_starts = None;
        let pool = self.pool.clone();
        let closing = async {
            if let Some(pool) = pool {
                pool.close_all().await;
            }
        };
        let (started, ()) = tokio::join!(self.start_kernel(), closing);
        if started.is_err() {
            // The caller of the next cell need not be this one.
            self.lost = Some(lost_note("the earlier one was reset"));
        }
        started
    }

    async fn refresh_imports(&mut self, changed: Option<&str>) {
        let Some(kernel) = self.kernel.as_mut() else { return };
        let said = match tokio::time::timeout(HOUSEKEEPING_TIMEOUT, kernel.refresh_imports(changed)).await {
            Ok(Ok(said)) => said,
            // A death is noticed by the next cell, which tells its caller.
            Ok(Err(error)) => return tracing::warn!(%error, "could not refresh the kernel's imports"),
            Err(_) => return tracing::warn!("the kernel was too busy to refresh its imports"),
        };
        for message in said {
            self.late.take(message.content).await;
        }
    }

    /// Starts a kernel. After failures it waits a while before.
    async fn start_kernel(&mut self) -> Result<(), Error> {
        if let Some((count, last)) = self.failed_starts {
            let pause = pause_after(count).saturating_sub(last.elapsed());
            if !pause.is_zero() {
                let words = format!(
                    "waiting {} s, since the kernel did not start {count} times",
                    pause.as_secs() + 1
                );
                self.phase.send_replace(Phase::Preparing(words));
                tokio::time::sleep(pause).await;
            }
        }
        let mut started = self.try_to_start().await;
        if let Err(site::Error::Kernel(kernel::Error::Spawn { .. })) = started {
            // The interpreter is gone: find or make another.
            self.kernels.forget().await;
            started = self.try_to_start().await;
        }
        match &started {
            Ok(()) => self.failed_starts = None,
            Err(_) => {
                self.kernels.forget().await;
                let count = self.failed_starts.map_or(0, |(count, _)| count);
                self.failed_starts = Some((count + 1, Instant::now()));
            }
        }
        Ok(started?)
    }

    async fn try_to_start(&mut self) -> Result<(), site::Error> {
        let phase = &self.phase;
        let report = |words: &str| drop(phase.send_replace(Phase::Preparing(words.to_owned())));
        self.kernel = Some(self.kernels.start(&report).await?);
        self.phase.send_replace(Phase::Ready);
        Ok(())
    }

    /// Takes in what the kernel says between cells.
    async fn overhear(&mut self, event: Result<Event, kernel::Error>) {
        let why = match event {
            Ok(Event::Message(message)) => return self.late.take(message.content).await,
            Ok(Event::Torn) => return,
            // The next cell finds out whether it is back.
            Ok(Event::Disconnected(why)) => {
                return tracing::warn!(why, "the remote kernel cannot be reached");
            }
            Ok(Event::Died(death)) => ended_with(&death),
            Err(error) => format!("the connection to it failed ({})", describe(&error)),
        };
        tracing::warn!(%why, "the kernel ended between cells");
        self.give_up_kernel().await;
        self.lost = Some(lost_note(&why));
    }

    async fn give_up_kernel(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            self.kernels.kill(kernel).await;
        }
    }
}

/// What the kernel says between cells. Cancellation safe; never ends without a kernel.
async fn next_event(kernel: &mut Option<Kernel>) -> Result<Event, kernel::Error> {
    match kernel {
        Some(kernel) => kernel.next().await,
        None => std::future::pending().await,
    }
}

/// How long to wait before a kernel that has not started `count` times is started again: not at all at first, since
/// the cause may have been mended, then 1, 2, 4, 8 seconds.
fn pause_after(count: u32) -> Duration {
    match count {
        0 | 1 => Duration::ZERO,
        _ => Duration::from_secs(1 << (count - 2).min(3)),
    }
}

fn ended_with(death: &Death) -> String {
    let Death { manner, stderr, .. } = death;
    let causes = death.causes();
    let causes = causes.trim_end_matches('.').trim_start();
    let causes = if causes.is_empty() { String::new() } else { format!(": {causes}") };
    if stderr.is_empty() {
        format!("it had ended ({manner}{causes})")
    } else {
        format!("it had ended ({manner}{causes}):\n{stderr}\n")
    }
}

fn lost_note(why: &str) -> String {
    format!("The kernel was started anew, since {why}. All variables and imports of earlier cells are gone.")
}
