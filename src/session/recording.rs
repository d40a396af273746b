//! Follows the cells of a session for its recording.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::notebook::{OutputTape, TapedOutput};
use crate::kernels::kernel::{MessageContent, PythonError};
use crate::tools::recording::{CellItem, RecordedCell, RecordedFailure, SessionRecorder};

/// A cell that runs. If dropped before its end is known, it was stopped with its session.
pub(super) struct RecordingCell {
    recorder: Arc<SessionRecorder>,
    cell: u64,
    author: &'static str,
    begun: Instant,
    /// The output of the cell, and its code; `None` if it has ended.
    running: Mutex<Option<(OutputTape, String)>>,
}

impl RecordingCell {
    /// A cell is given to the kernel.
    pub(super) fn begin(recorder: &Arc<SessionRecorder>, code: &str, author: &'static str) -> Self {
        Self {
            recorder: Arc::clone(recorder),
            cell: recorder.cell_begins(),
            author,
            begun: Instant::now(),
            running: Mutex::new(Some((OutputTape::new(recorder.redactor().clone()), code.to_owned()))),
        }
    }

    /// Adds what a message of the kernel shows.
    pub(super) fn shown(&self, content: &MessageContent) {
        if let Some((tape, _)) = self.running.lock().as_mut() {
            tape.take(content);
        }
    }

    /// It has ended.
    pub(super) fn ended(&self, end: &'static str, error: Option<&PythonError>) {
        let Some((tape, code)) = self.running.lock().take() else { return };
        let shown = tape.finish(error);
        self.recorder.cell_ended(RecordedCell {
            cell: self.cell,
            author: self.author.to_owned(),
            code,
            end: end.to_owned(),
            is_cut: shown.is_cut || shown.left_out > 0,
            outputs: shown.outputs.into_iter().map(item).collect(),
            duration_ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }
}

impl Drop for RecordingCell {
    fn drop(&mut self) {
        self.ended("stopped", None);
    }
}

fn item(output: TapedOutput) -> CellItem {
    match output {
        TapedOutput::Text(text) => CellItem::Text(text),
        TapedOutput::Object(object) => CellItem::object(object.bundle),
        TapedOutput::Error(PythonError { name, value, traceback }) => {
            CellItem::Error(RecordedFailure { name, value, traceback })
        }
    }
}
