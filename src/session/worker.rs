//! The task that owns the kernel and runs the queued commands, one at a time.
//!
//! Between cells it keeps reading the kernel's messages, so that the kernel never blocks on a full pipe, and
//! notices the kernel's death.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::actions::SessionActions;
use super::audience::SessionAudience;
use super::cell::{Cell, CellRequester, Outcome};
use super::command::QueuedCommand;
use super::end::{CellEnding, KernelState};
use super::exit::{ExitMoment, KernelExit};
use super::follow::{FollowedCell, follow};
use super::idle::SessionIdleness;
use super::lost::{ended_with, lost_by, lost_note};
use super::offers::ServerOffers;
use super::permissions::ClientObedience;
use super::phase::StartPhase;
use super::undo::{BegunCell, CellEffect, UndoHistory};
use crate::approval::Gate;
use crate::ground::telemetry;
use crate::ground::text::describe;
use crate::kernels::checkpoint::Checkpoint;
use crate::kernels::kernel::{self, CodeInquiry, CodeInsight, Kernel, KernelEvent, PythonError};
use crate::kernels::output::{LateOutput, RecordedOutput};
use crate::kernels::sandbox::TopLevel;
use crate::session::site::{ByteSize, SiteKernels};
use crate::tools::servers::ConnectionPool;

/// Timeout for our own requests to the kernel, which take a few milliseconds.
pub(super) const HOUSEKEEPING_TIMEOUT: Duration = Duration::from_secs(5);

/// The tools of a session that its cells use.
#[derive(Clone)]
pub(super) struct CellTools {
    /// The connections to MCP servers.
    pub(super) pool: Arc<ConnectionPool>,
    /// The servers of `--mcp-config` that cells wait for; `None` if all were registered before.
    pub(super) offers: Option<Arc<ServerOffers>>,
    /// Saves variables after each cell; `None` if they are not saved.
    pub(super) checkpoint: Option<Arc<Checkpoint>>,
    /// Saves actions, and counts the cells that call them; `None` in a replay.
    pub(super) actions: Option<Arc<SessionActions>>,
}

/// The state of the task.
pub(super) struct KernelWorker {
    pub(super) kernel: Option<Kernel>,
    /// Why the variables of earlier cells are gone, until the outcome of a cell reports it.
    pub(super) lost: Option<String>,
    pub(super) queue: mpsc::Receiver<QueuedCommand>,
    pub(super) phase: watch::Sender<StartPhase>,
    pub(super) kernels: SiteKernels,
    /// Decides about the calls of the kernel's code, and records its cells.
    pub(super) gate: Arc<Gate>,
    /// `None` if code has no tools.
    pub(super) tools: Option<CellTools>,
    /// Output of earlier cells since the last outcome.
    pub(super) late: LateOutput,
    /// Those who watch the cells.
    pub(super) audience: Arc<SessionAudience>,
    /// The number of cells that run or wait.
    pub(super) cells_open: Arc<AtomicUsize>,
    /// The number of starts of the kernel in a row that have failed, and the time of the last one.
    pub(super) failed_starts: Option<(u32, Instant)>,
    /// The exit of a kernel whose cell a reset has stopped; the reset reports it.
    pub(super) exit: KernelExit,
    /// When a template is forked from the kernel, which has run no code, if nothing comes before.
    pub(super) template_due: Option<Instant>,
    /// The place of its kernels, as its clients decide it.
    pub(super) obedience: ClientObedience,
    /// The last cells, which can be undone.
    pub(super) history: Arc<UndoHistory>,
    pub(super) idleness: SessionIdleness,
}

impl KernelWorker {
    /// Runs commands until `stop` is cancelled, then ends the kernel.
    ///
    /// Sends the result of the kernel's first start to `started`.
    pub(super) async fn run(mut self, stop: CancellationToken, started: oneshot::Sender<Result<(), Error>>) {
        let watching = tokio::spawn(Arc::clone(&self.history).watch());
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work(started) => {}
        }
        self.history.close().await;
        if let Err(error) = watching.await {
            tracing::error!(%error, "the task that watches states has failed");
        }
        self.exit_kernel(ExitMoment::SessionEnd).await;
        self.kernels.end(self.kernel.take()).await;
        if let Some(checkpoint) = self.checkpoint() {
            checkpoint.close();
        }
    }

    async fn work(&mut self, started: oneshot::Sender<Result<(), Error>>) {
        let first = self.begin().await;
        if let Err(error) = &first {
            // The first cell tries again, and its caller gets the error.
            tracing::error!(error = %describe(error), "the kernel did not start");
        }
        // The MCP server does not wait for the start, so the receiver may be gone.
        started.send(first).ok();
        loop {
            tokio::select! {
                command = self.queue.recv() => match command {
                    Some(command) => {
                        let is_use = command.is_use();
                        self.run_command(command).await;
                        if is_use {
                            self.idleness.used();
                        }
                    }
                    None => return,
                },
                event = next_event(&mut self.kernel) => self.take_event(event).await,
                () = due(self.tools.as_ref()), if self.kernel.is_some() => self.save_variables(),
                () = Self::until(self.template_due) => self.make_template().await,
                () = Self::until(self.idleness.due()), if self.kernel.is_some() || self.kernels.hold_pod() => {
                    self.rest().await;
                }
            }
        }
    }

    async fn run_command(&mut self, command: QueuedCommand) {
        self.template_due = self.template_due.filter(|_| command.runs_no_code());
        match command {
            QueuedCommand::Execute { mut cell, generation, context, reply } => {
                let on_record = self.gate.audit().cell_started(&cell.code);
                let span = telemetry::CellSpan::begin(&context, cell.author.word());
                self.gate.begin_cell(cell.approver.clone(), span.context());
                let outcome = self.execute(&cell, &generation, on_record.number()).await;
                self.gate.end_cell();
                self.cells_open.fetch_sub(1, Ordering::Relaxed);
                if let Ok(outcome) = &outcome {
                    on_record.ended(outcome.word(), outcome.output());
                    span.ended(outcome.word(), outcome.error.as_ref().map(|error| error.name.as_str()));
                }
                let was_reset =
                    outcome.as_ref().is_ok_and(|outcome| matches!(outcome.end, CellEnding::Reset));
                // The caller answers when the output has ended, not when the state has been kept.
                cell.chunks = None;
                let has_worked = outcome.as_ref().is_ok_and(|outcome| outcome.word() == "finished");
                // Fails only if the caller has given up.
                reply.send(outcome).ok();
                self.count_actions(&cell, has_worked).await;
                if let Some(checkpoint) = self.checkpoint() {
                    checkpoint.cell_ended();
                    self.save_variables();
                }
                // A reset starts the next kernel itself. After a failed start the next cell tries again.
                if self.kernel.is_none()
                    && !was_reset
                    && self.failed_starts.is_none()
                    && self.kernels.come_early()
                    && let Err(error) = self.start_kernel().await
                {
                    tracing::error!(error = %describe(&error), "the kernel did not start again");
                } else if cell.can_be_undone() {
                    self.keep_state().await;
                }
            }
            QueuedCommand::Inquire { inquiry, reply } => self.inquire(inquiry, reply).await,
            QueuedCommand::RefreshImports { changed } => {
                self.refresh_imports(changed.as_deref()).await;
                changed.into_iter().for_each(|server| self.history.note(CellEffect::Regenerated(server)));
            }
            QueuedCommand::Obey { client, reply } => self.obey_before(client, reply).await,
            QueuedCommand::Reset { client, reply } => drop(reply.send(self.reset(&client).await)),
            QueuedCommand::Undo { claim, reply } => {
                // Fails only if the caller has given up.
                reply.send(self.undo(*claim).await).ok();
                self.keep_state().await;
            }
            QueuedCommand::Branch { tool_server, reply } => self.branch(tool_server, reply).await,
        }
    }

    pub(super) async fn execute(
        &mut self,
        cell: &Cell,
        generation: &CancellationToken,
        audited: Option<u64>,
    ) -> Result<Outcome, Error> {
        let is_cancelled = cell.cancel.is_cancelled() || generation.is_cancelled();
        let wider = if is_cancelled { None } else { self.obey(&cell.client).await? };
        if let Some(end) = self.offered_servers(cell, generation).await {
            return Ok(Outcome::not_run(end));
        }
        let mut notes = self.news_of_servers(cell).await;
        notes.extend(wider);
        notes.extend(self.resume(cell, generation).await?);
        let mut spent = Duration::ZERO;
        let mut has_failed = false;
        let mut live = None;
        let mut is_after_loss = false;
        if self.tools_of(cell).is_some() {
            self.record_servers().await;
        }
        // Before its code can have made anything.
        self.kernels.top_level().iter().for_each(TopLevel::cell_begins);
        let FollowedCell { recorded, error, end, .. } = loop {
            let sent = tokio::select! {
                // What was cancelled while it waited must not run.
                biased;
                () = cell.cancel.cancelled() => return Ok(Outcome::not_run(CellEnding::NotRun)),
                () = generation.cancelled() => return Ok(Outcome::not_run(CellEnding::Reset)),
                sent = self.send(cell) => sent?,
            };
            self.obedience.has_run = true;
            let loss = self.lost.take();
            is_after_loss |= loss.is_some();
            notes.extend(loss);
            notes.extend(self.checkpoint().iter().flat_map(|checkpoint| checkpoint.notes()));
            let top_level = self.kernels.top_level();
            let Some(kernel) = self.kernel.as_mut() else { return Err(Error::Stopped) };
            let begun = Instant::now();
            let live = live.get_or_insert_with(|| {
                if cell.can_be_undone() {
                    let code = cell.code.as_str();
                    let id = cell.id;
                    let number = self.audience.last_number();
                    self.history.cell_begins(BegunCell { code, id, audited, number, begun: sent.before });
                }
                self.audience.begin(&cell.code, cell.author)
            });
            let following = follow(kernel, sent.id, cell, generation, spent, &mut self.late, live);
            let followed = match &top_level {
                None => following.await,
                Some(top_level) => top_level.watch_during(following).await,
            };
            spent += begun.elapsed();
            match &followed.end {
                // The kernel had ended before the request was sent, but the host did not know it yet.
                CellEnding::Died(death) if followed.is_untouched && !has_failed && kernel.has_said_all() => {
                    has_failed = true;
                    let why = ended_with(death);
                    tracing::warn!(%why, "the kernel ended before the cell began; starting it anew");
                    self.give_up_kernel().await;
                    self.lost = Some(lost_note(&why));
                }
                _ => break followed,
            }
        };
        // A reset wants it so.
        let is_lost = KernelState::of(&end) == KernelState::Lost && !matches!(end, CellEnding::Reset);
        if KernelState::of(&end) == KernelState::Lost {
            // The exit of a kernel that is set back would remove what its state has too.
            if matches!(end, CellEnding::Reset) && !self.history.is_claimed() {
                self.exit = self.exit_kernel(ExitMoment::Replaced).await;
            }
            self.give_up_kernel().await;
            // The next caller may be another one, and a caller that cancelled gets no outcome.
            self.lost = lost_by(&end);
        }
        if cell.author != CellRequester::Ourselves {
            notes.extend(self.kernels.take_notes().await);
            notes.extend(self.memory_note(error.as_ref()));
        }
        if let (CellEnding::Died(death), Some(checkpoint)) = (&end, self.checkpoint())
            && !death.exhausted.is_empty()
        {
            notes.extend(checkpoint.offer());
        }
        let offer = if is_lost || is_after_loss { self.history.offer() } else { None };
        let (offer, note) = if is_lost { (offer, None) } else { (None, offer) };
        notes.extend(note.filter(|_| cell.author != CellRequester::Ourselves));
        // What earlier cells have shown is for those who use the session.
        let late = match cell.author {
            CellRequester::Ourselves => RecordedOutput::default(),
            CellRequester::Agent | CellRequester::Person(_) => self.late.drain().await,
        };
        let (mut shown, late) = recorded.after(late);
        notes.append(&mut shown.troubles);
        notes.extend(self.audience.trouble(cell.author));
        if let Some(tools) = self.tools_of(cell) {
            notes.extend(tools.pool.changes().await);
            notes.extend(tools.pool.take_offers());
        }
        let outcome = Outcome { shown, late, end, error, notes, offer };
        if let Some(live) = live {
            live.ended(&outcome);
        }
        Ok(outcome)
    }

    /// The limit that code has met which got no more memory.
    fn memory_note(&self, error: Option<&PythonError>) -> Option<String> {
        error.filter(|error| error.name == "MemoryError")?;
        let size = ByteSize(self.kernels.memory_limit()?);
        Some(format!("The session's memory is limited ({size}), which `--limit-memory` sets."))
    }

    /// The tools, if the code of this cell may call them.
    fn tools_of(&self, cell: &Cell) -> Option<&CellTools> {
        self.tools.as_ref().filter(|_| cell.author.calls_tools())
    }

    /// Counts a cell that has ended for the actions that its code has called.
    async fn count_actions(&self, cell: &Cell, has_worked: bool) {
        if let Some(actions) = self.tools_of(cell).and_then(|tools| tools.actions.clone()) {
            actions.cell_ended(&cell.code, has_worked).await;
        }
    }

    /// Waits for the servers that are offered to the session. Returns how the cell has ended if it was cancelled meanwhile.
    async fn offered_servers(&self, cell: &Cell, generation: &CancellationToken) -> Option<CellEnding> {
        let offers = self.tools_of(cell)?.offers.as_ref()?;
        let before = self.phase.borrow().clone();
        let report = |words: String| drop(self.phase.send_replace(StartPhase::Preparing(words)));
        let end = tokio::select! {
            biased;
            () = cell.cancel.cancelled() => Some(CellEnding::NotRun),
            () = generation.cancelled() => Some(CellEnding::Reset),
            () = offers.come(&cell.approver, &report) => None,
        };
        if *self.phase.borrow() != before {
            self.phase.send_replace(before);
        }
        end
    }

    /// Notes about the servers that have been registered since the last cell, or have failed.
    async fn news_of_servers(&mut self, cell: &Cell) -> Vec<String> {
        let Some(offers) = self.tools_of(cell).and_then(|tools| tools.offers.as_ref()) else {
            return Vec::new();
        };
        let news = offers.news();
        if news.has_packages() {
            self.refresh_imports(None).await;
            for changed in &news.changed {
                self.refresh_imports(Some(changed)).await;
                self.history.note(CellEffect::Regenerated(changed.clone()));
            }
        }
        news.notes()
    }

    pub(super) async fn refresh_imports(&mut self, changed: Option<&str>) {
        let Some(kernel) = self.kernel.as_mut() else { return };
        let said = match tokio::time::timeout(HOUSEKEEPING_TIMEOUT, kernel.refresh_imports(changed)).await {
            Ok(Ok(said)) => said,
            // The next cell notices a death and reports it to its caller.
            Ok(Err(error)) => return tracing::warn!(%error, "could not refresh the kernel's imports"),
            Err(_) => return tracing::warn!("the kernel was too busy to refresh its imports"),
        };
        for message in said {
            self.late.take(message.content).await;
        }
    }

    /// Asks an idle kernel about code, unless nobody waits for the answer any more.
    async fn inquire(&mut self, inquiry: CodeInquiry, reply: oneshot::Sender<Option<CodeInsight>>) {
        let Some(kernel) = self.kernel.as_mut().filter(|_| !reply.is_closed()) else { return };
        let (insight, said) = kernel.inquire(inquiry).await;
        reply.send(insight).ok();
        for event in said {
            self.take_event(event).await;
        }
    }
}

/// The kernel's next event between cells. Cancellation safe; without a kernel it never resolves.
async fn next_event(kernel: &mut Option<Kernel>) -> Result<KernelEvent, kernel::Error> {
    match kernel {
        Some(kernel) => kernel.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until variables are to be saved. Cancellation safe; without a checkpoint it never resolves.
async fn due(tools: Option<&CellTools>) {
    match tools.and_then(|tools| tools.checkpoint.as_ref()) {
        Some(checkpoint) => checkpoint.due().await,
        None => std::future::pending().await,
    }
}
