//! The queue of one kernel: work is put here, and a task does it, one thing at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::audience::Audience;
use super::cell::{Cell, Outcome};
use super::exit::Exit;
use super::phase::Phase;
use super::worker::{CellTools, QueuedCommand, Worker};
use crate::approval::Gate;
use crate::ground::telemetry::Context;
use crate::kernels::kernel::{Inquiry, Insight};
use crate::kernels::output::{Late, Places};
use crate::session::site::Kernels;

/// The number of requests that may wait for the kernel. Clients send one at a time; a runaway one must not fill memory.
const CAPACITY: usize = 1024;

/// The time that a person waits for what the kernel says of their code.
const INQUIRY_TIMEOUT: Duration = Duration::from_secs(4);

/// Runs code in an IPython kernel, one cell at a time, in the order of arrival.
///
/// The kernel starts at once, in the background.
pub(super) struct Queue {
    commands: mpsc::Sender<QueuedCommand>,
    phase: watch::Receiver<Phase>,
    /// Cancelled by a reset: ends the cells that were queued before it.
    generation: Mutex<CancellationToken>,
    /// Cancelled to end the running and queued cells, and replaced then.
    cells: Mutex<CancellationToken>,
    /// The number of cells that run or wait.
    cells_open: Arc<AtomicUsize>,
    stop: CancellationToken,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    /// Receives the result of the kernel's first start.
    started: Mutex<Option<oneshot::Receiver<Result<(), Error>>>>,
}

impl Queue {
    /// Starts the first of `kernels`, in the background. A reset closes the connections of `tools`, if there are any.
    pub(super) fn start(
        kernels: Kernels,
        gate: Arc<Gate>,
        tools: Option<CellTools>,
        places: Places,
        audience: Arc<Audience>,
    ) -> Self {
        let (commands, queue) = mpsc::channel(CAPACITY);
        let (phase_sender, phase) = watch::channel(Phase::Preparing("starting".to_owned()));
        let stop = CancellationToken::new();
        let cells_open = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            kernel: None,
            lost: None,
            queue,
            phase: phase_sender,
            kernels,
            gate,
            tools,
            late: Late::new(places),
            audience,
            cells_open: Arc::clone(&cells_open),
            failed_starts: None,
            exit: Exit::Complete,
        };
        let (started_sender, started) = oneshot::channel();
        let task = tokio::spawn(worker.run(stop.clone(), started_sender));
        Self {
            commands,
            phase,
            generation: Mutex::default(),
            cells: Mutex::default(),
            cells_open,
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
    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    /// Queues a cell. Its outcome comes from the returned [`Pending`]; the order of calls is the order of execution.
    pub(super) async fn submit(&self, cell: Cell) -> Pending<Outcome> {
        let generation = self.generation.lock().clone();
        self.cells_open.fetch_add(1, Ordering::Relaxed);
        let context = Context::current();
        self.send(|reply| QueuedCommand::Execute { cell, generation, context, reply }).await
    }

    /// Asks the kernel about code; `None` if it is busy, or does not answer soon.
    pub(super) async fn inquire(&self, inquiry: Inquiry) -> Option<Insight> {
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
    pub(super) async fn submit_reset(&self) -> Pending<Exit> {
        {
            let mut generation = self.generation.lock();
            std::mem::take(&mut *generation).cancel();
        }
        self.send(|reply| QueuedCommand::Reset { reply }).await
    }

    async fn send<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> QueuedCommand,
    ) -> Pending<T> {
        let (reply, outcome) = oneshot::channel();
        // A closed queue drops `reply`, which the waiting side reports as `Stopped`.
        self.commands.send(command(reply)).await.ok();
        Pending { outcome, stop: self.stop.clone() }
    }

    /// Lets code that runs from now on find newly installed or generated packages. Modules of
    /// `mcptools.<changed>` that it has imported before are imported again.
    pub(super) async fn refresh_imports(&self, changed: Option<&str>) {
        let changed = changed.map(str::to_owned);
        // A closed queue has no kernel to refresh.
        self.commands.send(QueuedCommand::RefreshImports { changed }).await.ok();
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

impl Drop for Queue {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Work that is queued or under way.
pub(crate) struct Pending<T> {
    outcome: oneshot::Receiver<Result<T, Error>>,
    stop: CancellationToken,
}

impl<T> Pending<T> {
    /// Waits for the outcome. To give up on a cell, cancel its token: dropping this does not end it.
    pub(crate) async fn outcome(self) -> Result<T, Error> {
        let is_stopped = || if self.stop.is_cancelled() { Error::Stopped } else { Error::Crashed };
        self.outcome.await.unwrap_or_else(|_| Err(is_stopped()))
    }
}
