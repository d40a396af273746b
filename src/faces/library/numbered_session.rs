//! A session whose code is numbered, as both faces of the library have it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::CodeExecutionError;
use crate::session::{Session, UndoError, UndoTarget};

/// A session, and the number of the last code that it has been given.
#[derive(Clone)]
pub(super) struct NumberedSession {
    session: Arc<Session>,
    /// Copies count on together, so that no id is that of code of two sessions.
    last: Arc<AtomicU64>,
}

impl NumberedSession {
    pub(super) fn new(session: Session) -> Self {
        Self { session: Arc::new(session), last: Arc::default() }
    }

    /// The number of the next code.
    pub(super) fn next_cell(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Replaces the kernel by a fresh one.
    pub(super) async fn replace_kernel(&self) -> Result<(), CodeExecutionError> {
        let reset = self.session.reset(None).await.outcome().await;
        reset.map(drop).map_err(CodeExecutionError::unavailable)
    }

    /// Undoes code. Returns what remains of it, in lines.
    pub(super) async fn undo_code(
        &self,
        target: Result<UndoTarget, UndoError>,
    ) -> Result<Vec<String>, CodeExecutionError> {
        let target = target.map_err(CodeExecutionError::unavailable)?;
        let undoing = self.session.undo(target, &None).await;
        let undone = undoing.map_err(CodeExecutionError::unavailable)?.outcome().await;
        undone.map(|undone| undone.remains).map_err(CodeExecutionError::unavailable)
    }

    /// Makes a session that begins as a copy of this one.
    pub(super) async fn copy(&self) -> Result<Self, CodeExecutionError> {
        let (session, notes) = self.session.branch().await.map_err(CodeExecutionError::unavailable)?;
        for note in notes {
            tracing::warn!("the copy differs: {note}");
        }
        Ok(Self { session: Arc::new(session), last: Arc::clone(&self.last) })
    }
}

impl Deref for NumberedSession {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.session
    }
}
