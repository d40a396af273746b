//! The notebook of a session: each cell with what it has shown and called is appended to a file that Jupyter shows.
//!
//! ```text
//! messages of the kernel → tape ┐
//! calls of its code → approval ─┼→ record ── the writer's thread → text of a cell → place: another file, renamed
//! how it ended → session ───────┘
//! ```
//!
//! A cell never waits for its notebook, and goes on if there is none.
//!
//! Reasons: `docs/decisions/notebook.md`.

mod document;
mod place;
mod record;
mod stream;
mod tape;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use self::place::NotebookFile;
pub(crate) use self::record::CellEnd;
use self::record::CellRecord;
pub(super) use self::tape::{OutputTape, TapedOutput};
use self::writer::NotebookWriter;
use crate::approval::CallNotes;
use crate::ground::text::Redactor;
use crate::kernels::kernel::{MessageContent, PythonError};

/// The notebook of a session.
pub(crate) struct Notebook {
    writer: NotebookWriter,
    path: PathBuf,
    redactor: Redactor,
    calls: Arc<CallNotes>,
    kernel: Mutex<KernelChange>,
}

/// A change of the kernel since the last cell.
enum KernelChange {
    /// None has started yet.
    None,
    Same,
    /// Another one has started.
    Fresh,
    /// It is as it was before this cell.
    SetBack(String),
}

/// A cell that runs. If dropped before its end is known, it was stopped with its session.
pub(crate) struct NotebookCell {
    notebook: Arc<Notebook>,
    begun: (SystemTime, Instant),
    author: &'static str,
    number: Option<u64>,
    /// The output of the cell, and its code; `None` if it has ended.
    running: Mutex<Option<(OutputTape, String)>>,
}

impl Notebook {
    /// A notebook in the file that a user has named, relative to the workspace; `secrets` are replaced in it. The session is a
    /// branch of the one with the notebook `origin`, if there is one.
    pub(crate) fn named(
        workspace: &Path,
        file: &Path,
        session: &str,
        secrets: Redactor,
        origin: Option<&Path>,
    ) -> io::Result<Arc<Self>> {
        Self::start(NotebookFile::named(workspace, file), session, secrets, origin)
    }

    /// A notebook in a directory of ipybox, which is made if it is missing.
    pub(crate) fn private(
        directory: PathBuf,
        session: &str,
        secrets: Redactor,
        origin: Option<&Path>,
    ) -> io::Result<Arc<Self>> {
        let time = DateTime::<Utc>::from(SystemTime::now()).format("%Y-%m-%d-%H%M%S");
        let file = NotebookFile::private(directory, &format!("{time}-{session}.ipynb"));
        Self::start(file, session, secrets, origin)
    }

    fn start(
        place: NotebookFile,
        session: &str,
        secrets: Redactor,
        origin: Option<&Path>,
    ) -> io::Result<Arc<Self>> {
        let path = place.path();
        let origin = origin.map(Path::to_owned);
        let writer = NotebookWriter::start(place, session.to_owned(), secrets.clone(), origin)?;
        let calls = Arc::new(CallNotes::new(secrets.clone()));
        Ok(Arc::new(Self { writer, path, redactor: secrets, calls, kernel: Mutex::new(KernelChange::None) }))
    }

    /// Its file, which may not be there yet.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The notes about the calls of code.
    pub(crate) fn calls(&self) -> &Arc<CallNotes> {
        &self.calls
    }

    /// A kernel has started: the variables of cells before are gone.
    pub(crate) fn kernel_started(&self) {
        let mut kernel = self.kernel.lock();
        *kernel = match *kernel {
            KernelChange::None => KernelChange::Same,
            _ => KernelChange::Fresh,
        };
    }

    /// The kernel is as it was before this cell.
    pub(crate) fn kernel_set_back(&self, cell: &str) {
        *self.kernel.lock() = KernelChange::SetBack(cell.to_owned());
    }

    /// The heading of the next cell: the change of its kernel.
    fn take_heading(&self) -> Option<String> {
        let mut kernel = self.kernel.lock();
        match std::mem::replace(&mut *kernel, KernelChange::Same) {
            KernelChange::None => {
                *kernel = KernelChange::None;
                None
            }
            KernelChange::Same => None,
            KernelChange::Fresh => {
                Some("A fresh kernel: the variables of the cells above are gone.".to_owned())
            }
            KernelChange::SetBack(cell) => {
                Some(format!("Undone: the variables are as they were before {cell}."))
            }
        }
    }

    /// A cell is given to the kernel.
    pub(crate) fn begin(
        self: &Arc<Self>,
        code: &str,
        number: Option<u64>,
        author: &'static str,
    ) -> NotebookCell {
        let running = Some((OutputTape::new(self.redactor.clone()), code.to_owned()));
        NotebookCell {
            notebook: Arc::clone(self),
            begun: (SystemTime::now(), Instant::now()),
            author,
            number,
            running: Mutex::new(running),
        }
    }

    /// Why it cannot be written, in words for the user; once.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.writer.trouble()
    }

    /// Writes the last cells.
    pub(crate) async fn close(&self) {
        self.writer.close().await;
    }
}

impl NotebookCell {
    /// Adds what a message of the kernel shows.
    pub(crate) fn shown(&self, content: &MessageContent) {
        self.with_tape(|tape| tape.take(content));
    }

    /// An image of what was shown last is in this file.
    pub(crate) fn saved(&self, file: &Path) {
        self.with_tape(|tape| tape.saved(file));
    }

    /// It has ended.
    pub(crate) fn ended(&self, end: Arc<CellEnd>, error: Option<&PythonError>) {
        let running = self.running.lock().take();
        let Some((tape, code)) = running else { return };
        let notebook = &self.notebook;
        notebook.writer.put(CellRecord {
            code,
            number: self.number,
            author: self.author,
            begun: self.begun.0,
            took: self.begun.1.elapsed(),
            end,
            shown: tape.finish(error),
            calls: notebook.calls.take(),
            heading: notebook.take_heading(),
        });
    }

    fn with_tape(&self, work: impl FnOnce(&mut OutputTape)) {
        let mut running = self.running.lock();
        if let Some((tape, _)) = running.as_mut() {
            work(tape);
        }
    }
}

impl Drop for NotebookCell {
    fn drop(&mut self) {
        let words = "The cell was stopped with its session.".to_owned();
        self.ended(Arc::new(CellEnd { word: "stopped", words, ..CellEnd::default() }), None);
    }
}
