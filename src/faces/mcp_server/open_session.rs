//! A session of a server that is open, and its cells that have not ended.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::session::Session;

/// A session, with what it is doing.
#[derive(Clone)]
pub(super) struct OpenSession {
    pub(super) session: Arc<Session>,
    /// The cells that have not ended.
    cells: TaskTracker,
    /// When a cell came or ended last.
    used: Arc<Mutex<Instant>>,
    /// Cancelled when it is taken out of the sessions.
    pub(super) taken_out: CancellationToken,
}

/// A cell that has not ended, as long as this lives.
pub(super) struct OpenCell {
    used: Arc<Mutex<Instant>>,
    _token: TaskTrackerToken,
}

impl Drop for OpenCell {
    fn drop(&mut self) {
        *self.used.lock() = Instant::now();
    }
}

impl OpenSession {
    pub(super) fn new(session: Arc<Session>, taken_out: CancellationToken) -> Self {
        let used = Arc::new(Mutex::new(Instant::now()));
        Self { session, cells: TaskTracker::new(), used, taken_out }
    }

    /// A cell begins.
    pub(super) fn begin_cell(&self) -> OpenCell {
        self.note_use();
        OpenCell { used: Arc::clone(&self.used), _token: self.cells.token() }
    }

    /// The number of cells that have not ended.
    pub(super) fn open_cells(&self) -> usize {
        self.cells.len()
    }

    /// Somebody uses it now.
    pub(super) fn note_use(&self) {
        *self.used.lock() = Instant::now();
    }

    /// The time since somebody has used it.
    pub(super) fn idle_for(&self) -> Duration {
        if self.cells.is_empty() { self.used.lock().elapsed() } else { Duration::ZERO }
    }
}
