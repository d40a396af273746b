//! The queue of one kernel: work is put here, and a task does it, one thing at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::audience::SessionAudience;
use super::cell::{Cell, Outcome};
use super::command::QueuedCommand;
use super::exit::KernelExit;
use super::idle::SessionIdleness;
use super::permissions::{ClientObedience, ToldPermissions};
use super::phase::StartPhase;
use super::undo::{CellEffect, UndoError, UndoHistory, UndoResult, UndoTarget};
use super::worker::{CellTools, KernelWorker};
use crate::approval::Gate;
use crate::ground::telemetry::Context;
use crate::kernels::kernel::{CodeInquiry, CodeInsight, Kernel};
use crate::kernels::output::{LateOutput, OutputPlaces};
use crate::session::site::SiteKernels;

/// The number of requests that may wait for the kernel. Clients send one at a time; a runaway one must not fill memory.
const CAPACITY: usize = 1024;

/// The time that a person waits for what the kernel says of their code.
const INQUIRY_TIMEOUT: Duration = Duration::from_secs(4);

/// Runs code in an IPython kernel, one cell at a time, in the order of arrival.
///
/// The kernel starts at once, in the background.
pub(super) struct CellQueue {
    commands: mpsc::Sender<QueuedCommand>,
    phase: watch::Receiver<StartPhase>,
    /// Cancelled by a reset: ends the cells that were queued before it.
    generation: Mutex<CancellationToken>,
    /// Cancelled to end the running and queued cells, and replaced then.
    cells: Mutex<CancellationToken>,
    /// The number of cells that run or wait.
    cells_open: Arc<AtomicUsize>,
    /// The last cells, which can be undone.
    history: Arc<UndoHistory>,
    stop: CancellationToken,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    /// Receives the result of the kernel's first start.
    started: Mutex<Option<oneshot::Receiver<Result<(), Error>>>>,
}

/// The kernel of a branch, which runs already, and the starter of further kernels.
pub(super) struct SessionKernels {
    pub(super) running: Option<Kernel>,
    pub(super) kernels: SiteKernels,
}

impl CellQueue {
    /// Runs code in the running kernel, or starts the first one, in the background. A reset closes the connections of `tools`,
    /// if there are any.
    pub(super) fn start(
        SessionKernels { running: kernel, kernels }: SessionKernels,
        gate: Arc<Gate>,
        tools: Option<CellTools>,
        places: OutputPlaces,
        audience: Arc<SessionAudience>,
        obedience: ClientObedience,
        history: Arc<UndoHistory>,
    ) -> Self {
        let (commands, queue) = mpsc::channel(CAPACITY);
        let (phase_sender, phase) = watch::channel(StartPhase::Preparing("starting".to_owned()));
        let stop = CancellationToken::new();
        let cells_open = Arc::new(AtomicUsize::new(0));
        let worker = KernelWorker {
            kernel,
            lost: None,
            queue,
            phase: phase_sender,
            kernels,
            gate,
            tools,
            late: LateOutput::new(places),
            audience,
            cells_open: Arc::clone(&cells_open),
            failed_starts: None,
            exit: KernelExit::Complete,
            template_due: None,
            idleness: SessionIdleness::new(obedience.config.kernel.idle_timeout),
            obedience,
            history: Arc::clone(&history),
        };
        let (started_sender, started) = oneshot::channel();
        let task = tokio::spawn(worker.run(stop.clone(), started_sender));
        Self {
            commands,
            phase,
            generation: Mutex::default(),
            cells: Mutex::default(),
            cells_open,
            history,
            stop,
            task: tokio::sync::Mutex::new(Some(task)),
            started: Mutex::new(Some(started)),
        }
    }

    /// Waits until the first kernel is ready or has failed to start.
    pub(super) async fn started(&self) -> Result<(), Error> {
        let started = self.started.lock().take();
        let Some(started) = started else { return Ok(()) };
        started.await.unwrap_or(Err(Error::Crashed))
    }

    /// The progress of starting, until the first cell can run.
    pub(super) fn phase(&self) -> watch::Receiver<StartPhase> {
        self.phase.clone()
    }

    /// Queues a cell. Its outcome comes from the returned [`PendingWork`]; the order of calls is the order of execution.
    pub(super) async fn submit(&self, cell: Cell) -> PendingWork<Outcome> {
        let generation = self.generation.lock().clone();
        self.cells_open.fetch_add(1, Ordering::Relaxed);
        let context = Context::current();
        self.send(|reply| QueuedCommand::Execute { cell, generation, context, reply }).await
    }

    /// Asks the kernel about code; `None` if it is busy, or does not answer soon.
    pub(super) async fn inquire(&self, inquiry: CodeInquiry) -> Option<CodeInsight> {
        if self.cells_open.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let (reply, insight) = oneshot::channel();
        // A full queue is a busy one.
        self.commands.try_send(QueuedCommand::Inquire { inquiry, reply }).ok()?;
        tokio::time::timeout(INQUIRY_TIMEOUT, insight).await.ok()?.ok()?
    }

    /// Queues the replacement of the kernel by a fresh one and the closing of the connections to MCP servers.
    ///
    /// The running cell and those queued before end at once; those queued later run in the fresh kernel.
    pub(super) async fn submit_reset(&self, client: ToldPermissions) -> PendingWork<KernelExit> {
        {
            let mut generation = self.generation.lock();
            std::mem::take(&mut *generation).cancel();
        }
        self.send(|reply| QueuedCommand::Reset { client, reply }).await
    }

    /// Queues that cells are undone. The running cell and those queued before end at once.
    ///
    /// # Errors
    /// They cannot be undone; everything goes on as before.
    pub(super) async fn submit_undo(&self, target: UndoTarget) -> Result<PendingWork<UndoResult>, UndoError> {
        let claim = {
            let mut generation = self.generation.lock();
            let claim = self.history.claim(target)?;
            std::mem::take(&mut *generation).cancel();
            Box::new(claim)
        };
        Ok(self.send(|reply| QueuedCommand::Undo { claim, reply }).await)
    }

    pub(super) async fn send<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> QueuedCommand,
    ) -> PendingWork<T> {
        let (reply, outcome) = oneshot::channel();
        // A closed queue drops `reply`, which the waiting side reports as `Stopped`.
        self.commands.send(command(reply)).await.ok();
        PendingWork { outcome, stop: self.stop.clone() }
    }

    /// Lets code that runs from now on find newly installed or generated packages. Modules of
    /// `mcptools.<changed>` that it has imported before are imported again.
    pub(super) async fn refresh_imports(&self, changed: Option<&str>) {
        let changed = changed.map(str::to_owned);
        // A closed queue has no kernel to refresh.
        self.commands.send(QueuedCommand::RefreshImports { changed }).await.ok();
    }

    /// Has an undo answer that this was done.
    pub(super) fn note(&self, effect: CellEffect) {
        self.history.note(effect);
    }

    /// A token that ends a cell: cancelled by [`cancel`](Self::cancel) too.
    pub(super) fn cell_token(&self) -> CancellationToken {
        self.cells.lock().child_token()
    }

    /// Interrupts the running cell and cancels the queued ones.
    pub(super) fn cancel(&self) {
        std::mem::take(&mut *self.cells.lock()).cancel();
    }

    /// Whether the queue is stopping or stopped.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Begins to stop, and does not wait.
    pub(super) fn abandon(&self) {
        self.stop.cancel();
    }

    /// Ends the kernel, and waits until nothing is left of it.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        // Kept until the task has ended: the first caller that waited may have been dropped.
        let mut task = self.task.lock().await;
        if let Some(running) = task.as_mut() {
            if let Err(error) = running.await {
                tracing::error!(%error, "the task that owns the kernel has failed");
            }
            *task = None;
        }
    }
}

impl Drop for CellQueue {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Work that is queued or under way.
pub(crate) struct PendingWork<T> {
    outcome: oneshot::Receiver<Result<T, Error>>,
    stop: CancellationToken,
}

impl<T> PendingWork<T> {
    /// Waits for the outcome. To give up on a cell, cancel its token: dropping this does not end it.
    pub(crate) async fn outcome(self) -> Result<T, Error> {
        let is_stopped = || if self.stop.is_cancelled() { Error::Stopped } else { Error::Crashed };
        self.outcome.await.unwrap_or_else(|_| Err(is_stopped()))
    }
}
