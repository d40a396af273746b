//! The thread that writes a recording. Cells and calls never wait for it.
//!
//! A recording with a gap could not be replayed: after the first line that cannot be written, none is.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::file::RecordingFile;
use super::line::RecordingLine;
use super::{LINE_BYTES, RecordingError};

/// The bytes of lines that may wait for the disk.
const WAITING_BYTES: usize = 4 * LINE_BYTES;

/// The time that the end of a session waits for its last lines.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The queue to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct RecordingWriter {
    queue: Arc<LineQueue>,
}

#[derive(Debug, Default)]
struct LineQueue {
    waiting: Mutex<WaitingLines>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct WaitingLines {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    is_closing: bool,
    closed: Option<oneshot::Sender<()>>,
    /// Whether a line is lost.
    has_ended: bool,
    /// Why, until that is reported.
    trouble: Option<String>,
}

impl RecordingWriter {
    /// Makes the file, writes its first line, and starts the thread.
    pub(super) fn start(path: &Path, first: &RecordingLine) -> Result<Self, RecordingError> {
        let not_made = |source| RecordingError::Create { path: path.to_owned(), source };
        let mut file = RecordingFile::create(path)?;
        file.append(&written(first).map_err(io::Error::other).map_err(not_made)?).map_err(not_made)?;
        let queue = Arc::new(LineQueue::default());
        let work = RecordingThread { queue: Arc::clone(&queue), file, path: path.to_owned() };
        let thread = std::thread::Builder::new().name("recording".to_owned()).spawn(move || work.run());
        thread.map_err(not_made)?;
        Ok(Self { queue })
    }

    /// Has a line written.
    pub(super) fn put(&self, line: &RecordingLine) {
        let written = written(line);
        let mut waiting = self.queue.waiting.lock();
        if waiting.is_closing || waiting.has_ended {
            return;
        }
        match written {
            Ok(line) if waiting.bytes + line.len() <= WAITING_BYTES => {
                waiting.bytes += line.len();
                waiting.lines.push_back(line);
            }
            Ok(_) => waiting.lose("its disk is too slow"),
            Err(error) => waiting.lose(&error.to_string()),
        }
        drop(waiting);
        self.queue.came.notify_one();
    }

    /// Why the recording has ended before its session; once.
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
            tracing::warn!("the recording has no end: its disk does not answer");
        }
    }
}

impl Drop for RecordingWriter {
    fn drop(&mut self) {
        self.queue.waiting.lock().is_closing = true;
        self.queue.came.notify_one();
    }
}

impl WaitingLines {
    fn lose(&mut self, why: &str) {
        self.has_ended = true;
        tracing::warn!(why, "the recording of the session has ended");
        self.trouble =
            Some(format!("The recording of this session has ended: {why}. The session goes on without it."));
    }
}

/// The state of the thread.
struct RecordingThread {
    queue: Arc<LineQueue>,
    file: RecordingFile,
    path: PathBuf,
}

impl RecordingThread {
    fn run(mut self) {
        loop {
            let (lines, is_closing) = self.next();
            if !lines.is_empty()
                && let Err(error) = self.file.append(&lines)
            {
                let why = format!("`{}` cannot be written: {error}", self.path.display());
                let mut waiting = self.queue.waiting.lock();
                waiting.lines.clear();
                waiting.bytes = 0;
                waiting.lose(&why);
            }
            if is_closing {
                break;
            }
        }
        let closed = self.queue.waiting.lock().closed.take();
        // The session may have given up.
        closed.map(|closed| closed.send(()));
    }

    /// The lines that wait, as soon as there is one or the session ends.
    fn next(&self) -> (Vec<u8>, bool) {
        let mut waiting = self.queue.waiting.lock();
        while waiting.lines.is_empty() && !waiting.is_closing {
            self.queue.came.wait(&mut waiting);
        }
        waiting.bytes = 0;
        let lines: Vec<Vec<u8>> = std::mem::take(&mut waiting.lines).into();
        (lines.concat(), waiting.is_closing)
    }
}

/// A line with its newline.
pub(super) fn written(line: &RecordingLine) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}
