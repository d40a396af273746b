//! A cell in the audit log, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::event::{AuditEvent, millis};
use super::handle::{Audit, OpenAuditLog};
use super::redacted;

/// The output of a cell.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CellOutput<'a> {
    /// Its text, or an excerpt of it.
    pub(crate) excerpt: &'a str,
    /// The length of the text, in characters.
    pub(crate) chars: usize,
    /// The number of images.
    pub(crate) images: usize,
}

/// A running cell. If dropped before its end is recorded, it is recorded as stopped.
#[must_use = "a cell that is dropped before its end is recorded as stopped"]
pub(crate) struct AuditedCell(Option<RunningCell>);

struct RunningCell {
    log: Arc<OpenAuditLog>,
    cell: u64,
    begun: Instant,
}

impl Audit {
    /// Records the start of a cell. Tool calls are recorded as that cell's until it ends.
    pub(crate) fn cell_started(&self, code: &str) -> AuditedCell {
        AuditedCell(self.log().map(|log| {
            let cell = log.cells.fetch_add(1, Ordering::Relaxed) + 1;
            log.running.store(cell, Ordering::Relaxed);
            let logged = log.has_everything().then(|| redacted::text(&log.redactor, code));
            log.note(&AuditEvent::CellStarted { cell, chars: code.chars().count(), code: logged });
            RunningCell { log: Arc::clone(log), cell, begun: Instant::now() }
        }))
    }
}

impl AuditedCell {
    /// The number of the cell, if there is a log.
    pub(crate) fn number(&self) -> Option<u64> {
        self.0.as_ref().map(|running| running.cell)
    }

    /// Records how the cell ended, in a word.
    pub(crate) fn ended(mut self, end: &'static str, output: CellOutput<'_>) {
        self.end(end, output);
    }

    fn end(&mut self, end: &'static str, output: CellOutput<'_>) {
        let Some(RunningCell { log, cell, begun }) = self.0.take() else { return };
        log.running.store(0, Ordering::Relaxed);
        log.note(&AuditEvent::CellEnded {
            cell,
            end,
            duration_ms: millis(begun.elapsed()),
            output_chars: output.chars,
            images: output.images,
            output: log.has_everything().then(|| redacted::text(&log.redactor, output.excerpt)),
        });
    }
}

impl Drop for AuditedCell {
    fn drop(&mut self) {
        self.end("stopped", CellOutput::default());
    }
}
