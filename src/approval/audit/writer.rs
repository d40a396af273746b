//! The thread that writes the log, and the queue to it.
//!
//! Evidence is written twice: to the log, and to a file with its own rotation, which a flood of calls does
//! not fill.
//!
//! A write to a local file takes microseconds, until the disk stalls. With a thread of its own only decisions
//! wait then (and are refused after a timeout): cells still end, and the session goes on. A dropped future
//! can queue its event too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::event::{AuditEvent, AuditedSession, LineRetention, LogBegin};
use super::file::LogFile;
use crate::ground::telemetry;

/// The number of lines that may wait for the disk: enough for a pause of it, at most some 100 MB if all are of the longest.
const QUEUE_CAPACITY: usize = 256;

/// The time that a decision waits to be written.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that the end of a session waits for its last lines.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The queue to the thread, which ends when this is dropped, or by [`close`](Self::close).
#[derive(Debug)]
pub(super) struct AuditWriter {
    session: AuditedSession,
    queue: mpsc::Sender<WriterEntry>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum WriterEntry {
    Line { record: String, keep: LineRetention, written: Option<oneshot::Sender<io::Result<()>>> },
    Close { closed: oneshot::Sender<()> },
}

impl AuditWriter {
    /// Starts the thread; the event `started` is written first.
    pub(super) fn start(
        file: LogFile,
        evidence: LogFile,
        started: &AuditEvent,
        begin: LogBegin,
    ) -> io::Result<Self> {
        let session = AuditedSession::new();
        let waiting = match begin {
            LogBegin::AtOnce => None,
            LogBegin::WithFirstEvent => Some(session.record(started)?),
        };
        let is_waiting = waiting.is_some();
        let (queue, entries) = mpsc::channel(QUEUE_CAPACITY);
        let lost = Arc::default();
        let work = AuditThread {
            file,
            evidence,
            session: session.clone(),
            lost: Arc::clone(&lost),
            waiting,
            is_failing: false,
        };
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || work.run(entries))?;
        let writer = Self { session, queue, lost };
        if !is_waiting {
            writer.note(started, LineRetention::Traffic);
        }
        Ok(writer)
    }

    /// The id of the session.
    pub(super) fn session(&self) -> &str {
        self.session.id()
    }

    /// Writes an event and waits until it is in the file.
    ///
    /// # Errors
    /// It could not be written, or not in time; after a timeout it may still be written.
    pub(super) async fn record(&self, event: &AuditEvent, keep: LineRetention) -> io::Result<()> {
        let record = self.session.record(event)?;
        let (sender, written) = oneshot::channel();
        let recorded = async {
            self.queue
                .send(WriterEntry::Line { record, keep, written: Some(sender) })
                .await
                .map_err(|_| closed())?;
            written.await.map_err(|_| closed())?
        };
        timeout(RECORD_TIMEOUT, recorded).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Queues an event. Events that cannot be queued or written are counted, and the count is logged.
    pub(super) fn note(&self, event: &AuditEvent, keep: LineRetention) {
        let queued = self.session.record(event).is_ok_and(|record| {
            self.queue.try_send(WriterEntry::Line { record, keep, written: None }).is_ok()
        });
        if !queued && self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!("the audit log cannot keep up, or is closed; events are lost");
        }
    }

    /// Writes the queued events, and nothing from then on.
    pub(super) async fn close(&self) {
        let (sender, closed) = oneshot::channel();
        let closing = async {
            // If the thread has ended already, all is written.
            if self.queue.send(WriterEntry::Close { closed: sender }).await.is_ok() {
                closed.await.ok();
            }
        };
        if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            tracing::error!("the last events are not in the audit log: its disk does not answer");
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the audit log is closed")
}

/// The state of the thread.
struct AuditThread {
    file: LogFile,
    evidence: LogFile,
    session: AuditedSession,
    lost: Arc<AtomicU64>,
    /// The first record, if it is written with the next one.
    waiting: Option<String>,
    is_failing: bool,
}

impl AuditThread {
    fn run(mut self, mut entries: mpsc::Receiver<WriterEntry>) {
        while let Some(entry) = entries.blocking_recv() {
            match entry {
                WriterEntry::Line { record, keep, written } => {
                    let appended = self.append(&record, keep);
                    if let Some(written) = written {
                        // The sender may have given up.
                        written.send(appended).ok();
                    }
                }
                WriterEntry::Close { closed } => {
                    self.end();
                    // The caller of `close` may have given up.
                    closed.send(()).ok();
                    return;
                }
            }
        }
        self.end();
    }

    /// Writes the last records, in each file that has others.
    fn end(&mut self) {
        if self.waiting.is_some() {
            return;
        }
        let ended = self.write_lost().and_then(|()| {
            let record = self.session.record(&AuditEvent::SessionEnded {})?;
            self.write(&record)?;
            if self.evidence.records() > 0 { self.evidence.append(&record).map(drop) } else { Ok(()) }
        });
        ended.unwrap_or_else(|error| self.complain(&error));
    }

    fn append(&mut self, record: &str, keep: LineRetention) -> io::Result<()> {
        let begun = self.waiting.take().map_or(Ok(()), |started| self.write(&started));
        let appended = begun.and_then(|()| self.write_lost()).and_then(|()| self.write(record));
        let appended = match keep {
            LineRetention::Traffic => appended,
            LineRetention::Evidence => appended.and_then(|()| self.evidence.append(record).map(drop)),
        };
        match &appended {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                self.complain(error);
            }
        }
        appended
    }

    /// Writes a record to the log, and exports what is in it then.
    fn write(&mut self, record: &str) -> io::Result<()> {
        let line = self.file.append(record)?;
        telemetry::audited(&line);
        Ok(())
    }

    fn write_lost(&mut self) -> io::Result<()> {
        let count = self.lost.load(Ordering::Relaxed);
        if count > 0 {
            let record = self.session.record(&AuditEvent::EventsLost { count })?;
            self.write(&record)?;
            self.lost.fetch_sub(count, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Logs a write error once, until writing works again.
    fn complain(&mut self, error: &io::Error) {
        if !self.is_failing {
            self.is_failing = true;
            tracing::error!(%error, "the audit log cannot be written; tool calls are refused");
        }
    }
}
