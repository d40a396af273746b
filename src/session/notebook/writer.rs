//! The thread that writes a notebook, and the cells that wait for it.
//!
//! A cell is put here when it ends, and nobody waits until it is written. Cells that cannot be written are tried again
//! with the next one, as long as there are not too many.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::place::NotebookFile;
use super::record::{CellRecord, CellSetting, heading, relative};
use crate::ground::text::Redactor;

/// The bytes of cells that may wait to be written. Those that come then are left out.
const WAITING_BYTES: usize = 32 * 1024 * 1024;

/// The time that the end of a session waits for its last cells.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// After a write that has taken a while, the next one waits for so many times as long, so that cells that end together
/// are written together.
const PAUSE_FACTOR: u32 = 4;

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The queue to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct NotebookWriter {
    queue: Arc<RecordQueue>,
}

#[derive(Debug, Default)]
struct RecordQueue {
    waiting: Mutex<WaitingRecords>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct WaitingRecords {
    records: VecDeque<CellRecord>,
    bytes: usize,
    /// The number of cells that there was no room for.
    left_out: usize,
    is_closing: bool,
    closed: Option<oneshot::Sender<()>>,
    /// Why cells cannot be written, until that is reported.
    trouble: Option<String>,
}

/// The state of the thread.
struct NotebookThread {
    queue: Arc<RecordQueue>,
    place: NotebookFile,
    session: String,
    /// The notebook of the session that this one is a branch of.
    origin: Option<PathBuf>,
    redactor: Redactor,
    /// The texts of cells that are not written yet.
    texts: Vec<String>,
    has_heading: bool,
    is_failing: bool,
}

impl NotebookWriter {
    /// Starts the thread, which looks at first whether the file can be written.
    pub(super) fn start(
        place: NotebookFile,
        session: String,
        redactor: Redactor,
        origin: Option<PathBuf>,
    ) -> io::Result<Self> {
        let queue = Arc::new(RecordQueue::default());
        let work = NotebookThread {
            queue: Arc::clone(&queue),
            place,
            session,
            origin,
            redactor,
            texts: Vec::new(),
            has_heading: false,
            is_failing: false,
        };
        std::thread::Builder::new().name("notebook".to_owned()).spawn(move || work.run())?;
        Ok(Self { queue })
    }

    /// Has a cell written.
    pub(super) fn put(&self, record: CellRecord) {
        let mut waiting = self.queue.waiting.lock();
        let bytes = record.bytes();
        if waiting.is_closing || waiting.bytes + bytes > WAITING_BYTES {
            waiting.left_out += 1;
            return;
        }
        waiting.bytes += bytes;
        waiting.records.push_back(record);
        drop(waiting);
        self.queue.came.notify_one();
    }

    /// Why cells cannot be written; once.
    pub(super) fn trouble(&self) -> Option<String> {
        self.queue.waiting.lock().trouble.take()
    }

    /// Writes what waits, and nothing from then on. Takes at most 3 seconds.
    pub(super) async fn close(&self) {
        let (sender, closed) = oneshot::channel();
        {
            let mut waiting = self.queue.waiting.lock();
            if waiting.is_closing {
                return;
            }
            (waiting.is_closing, waiting.closed) = (true, Some(sender));
        }
        self.queue.came.notify_one();
        if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
            tracing::warn!("the last cells are not in the notebook: its disk does not answer");
        }
    }
}

impl Drop for NotebookWriter {
    fn drop(&mut self) {
        self.queue.waiting.lock().is_closing = true;
        self.queue.came.notify_one();
    }
}

impl NotebookThread {
    fn run(mut self) {
        if let Err(error) = self.place.check() {
            self.complain(&error);
        }
        loop {
            let (records, is_closing) = self.next();
            let begun = Instant::now();
            self.write(records);
            if is_closing {
                break;
            }
            self.pause(begun.elapsed() * PAUSE_FACTOR);
        }
        let closed = self.queue.waiting.lock().closed.take();
        // The session may have given up.
        closed.map(|closed| closed.send(()));
    }

    /// The cells that wait, as soon as there is one or the session ends.
    fn next(&self) -> (VecDeque<CellRecord>, bool) {
        let mut waiting = self.queue.waiting.lock();
        while waiting.records.is_empty() && !waiting.is_closing {
            self.queue.came.wait(&mut waiting);
        }
        (std::mem::take(&mut waiting.records), waiting.is_closing)
    }

    fn pause(&self, time: Duration) {
        let deadline = Instant::now() + time.min(LONGEST_PAUSE);
        let mut waiting = self.queue.waiting.lock();
        while !waiting.is_closing {
            if self.queue.came.wait_until(&mut waiting, deadline).timed_out() {
                return;
            }
        }
    }

    fn write(&mut self, records: VecDeque<CellRecord>) {
        let links_from = self.place.links_from();
        if let (false, Some(first)) = (self.has_heading, records.front()) {
            let origin = self.origin.as_deref().map(|origin| relative(origin, links_from.as_deref()));
            self.texts.push(heading(&self.session, first.begun, origin.as_deref()));
            self.has_heading = true;
        }
        let setting = CellSetting {
            session: &self.session,
            redactor: &self.redactor,
            directory: links_from.as_deref(),
        };
        let texts = records.into_iter().flat_map(|record| record.cells(&setting));
        self.texts.extend(texts);
        if self.texts.is_empty() {
            return;
        }
        match self.place.append(&self.texts) {
            Ok(()) => {
                self.texts.clear();
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(path = %self.place.path().display(), "the notebook is written again");
                }
            }
            Err(error) => self.complain(&error),
        }
        let mut waiting = self.queue.waiting.lock();
        waiting.bytes = self.texts.iter().map(String::len).sum::<usize>()
            + waiting.records.iter().map(CellRecord::bytes).sum::<usize>();
        let left_out = std::mem::take(&mut waiting.left_out);
        if left_out > 0 {
            tracing::warn!(left_out, "cells are missing in the notebook: too many waited for its disk");
        }
    }

    /// Reports an error once, until writing works again.
    fn complain(&mut self, error: &io::Error) {
        if std::mem::replace(&mut self.is_failing, true) {
            return;
        }
        let words = not_written(&self.place.path(), error);
        tracing::warn!("{words}");
        self.queue.waiting.lock().trouble = Some(words);
    }
}

fn not_written(path: &Path, error: &io::Error) -> String {
    format!("The notebook `{}` cannot be written: {error}. The session goes on without it.", path.display())
}
