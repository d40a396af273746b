//! Those who watch a session: they see which cells run and what these show, without ever keeping a cell waiting.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::cell::{CellRequester, Outcome};
use super::recording::RecordingCell;
use crate::approval::{Action, QuestionNotice};
use crate::kernels::kernel::{MessageContent, PythonError};
use crate::session::notebook::{CellEnd, Notebook, NotebookCell};
use crate::tools::recording::SessionRecorder;

/// The bytes of text that may wait for a watcher. When more comes, the oldest is left out.
const TEXT_BYTES: usize = 256 * 1024;

/// The least number of bytes that are left out together.
const PIECE_BYTES: usize = 16 * 1024;

/// The number of events that may wait for a watcher. One that lets more come together is given up.
const EVENTS: usize = 4 * 1024;

/// The most decisions without a question that wait for a watcher. Of more, the oldest are left out: code can cause any number.
const RULED: usize = 500;

/// The part of a cell's code that watchers are shown, in bytes.
const CODE_BYTES: usize = 16 * 1024;

/// An event of a session.
#[derive(Debug, Clone)]
pub(crate) enum SessionEvent {
    /// A cell has been given to the kernel. `number` is the one that tracebacks show.
    Began { cell: u64, number: u64, author: CellRequester, code: Arc<str> },
    /// It has shown this text, escape sequences and all.
    Text { cell: u64, text: String },
    /// So much of its text was left out, in bytes: it came too fast.
    LeftOut { cell: u64, bytes: usize },
    /// It has ended: by this exception, if its code raised one.
    Ended { cell: u64, end: Arc<CellEnd>, error: Option<Arc<PythonError>> },
    /// A user is asked about this action, by other means than those who watch.
    Asked { question: u64, action: Arc<Action> },
    /// A question is over.
    Decided { question: u64, how: &'static str },
    /// It was decided about this action without a question.
    Ruled { action: Arc<Action>, how: Arc<str> },
    /// The questions of the next events can be asked together: as a table, this text.
    Together { questions: Arc<[u64]>, text: Arc<str> },
    /// A question for those who watch; the first answer counts.
    Question(Arc<AudienceQuestion>),
}

/// A question for those who watch.
#[derive(Debug)]
pub(crate) struct AudienceQuestion {
    pub(crate) number: u64,
    /// The text at a prompt.
    pub(crate) text: String,
    /// The grant that the text proposes: the answer that gives it, in words, and the calls that it allows.
    pub(crate) grant: Option<(String, String)>,
    /// Why the call is outside of the grants that there are for its tool.
    pub(crate) outside: Option<String>,
    pub(crate) action: Arc<Action>,
    /// The extent of answers that hold longer.
    pub(crate) scope: &'static str,
    /// Until when it waits for its answer, if its time has begun.
    pub(crate) until: Option<Instant>,
}

/// Those who watch.
#[derive(Default)]
pub(crate) struct SessionAudience {
    watchers: Mutex<Vec<Weak<WatcherMailbox>>>,
    /// The number of watchers, to be asked without a lock.
    count: AtomicUsize,
    cells: AtomicU64,
    /// The number of the last cell in the kernel.
    last: AtomicU64,
    /// The notebook in which cells are written down, if there is one.
    notebook: Option<Arc<Notebook>>,
    /// The recording of the session, if there is one.
    recorder: Option<Arc<SessionRecorder>>,
    /// The recorder that keeps the newest calls alone, if nothing else is recorded.
    recent: Option<Arc<SessionRecorder>>,
}

/// The events that wait for a watcher.
#[derive(Debug, Default)]
pub(crate) struct WatcherMailbox {
    state: Mutex<WaitingEvents>,
    came: Notify,
}

#[derive(Debug, Default)]
struct WaitingEvents {
    events: VecDeque<SessionEvent>,
    text_bytes: usize,
    ruled: usize,
    is_given_up: bool,
}

/// A cell, for those who watch.
pub(super) struct LiveCell {
    audience: Arc<SessionAudience>,
    cell: u64,
    /// Whether those who watch see it at all.
    is_shown: bool,
    /// `None` without a notebook.
    written: Option<NotebookCell>,
    /// `None` without a recording.
    recorded: Option<RecordingCell>,
    /// The recorder that keeps calls alone, and its number of the cell.
    recent: Option<(Arc<SessionRecorder>, u64)>,
}

impl SessionAudience {
    /// Nobody, but for a notebook and a recording.
    pub(super) fn new(notebook: Option<Arc<Notebook>>, recorder: Option<Arc<SessionRecorder>>) -> Self {
        Self { notebook, recorder, ..Self::default() }
    }

    /// Has the recorder know of which cell the newest calls are, if it records nothing else.
    pub(super) fn with_calls_of(mut self, recorder: Option<&Arc<SessionRecorder>>) -> Self {
        self.recent = recorder.filter(|_| self.recorder.is_none()).cloned();
        self
    }

    /// For a branch: its kernel goes on counting where `origin`'s is.
    pub(super) fn of_branch(
        notebook: Option<Arc<Notebook>>,
        recorder: Option<Arc<SessionRecorder>>,
        origin: &Self,
    ) -> Self {
        if let Some(notebook) = &notebook {
            notebook.kernel_started();
        }
        Self { notebook, recorder, last: AtomicU64::new(origin.last_number()), ..Self::default() }
    }

    /// Why cells of this author cannot be written down, unless that was reported already.
    pub(super) fn trouble(&self, author: CellRequester) -> Option<String> {
        if author == CellRequester::Ourselves {
            return None;
        }
        let of_notebook = self.notebook.as_ref().and_then(|notebook| notebook.trouble());
        of_notebook.or_else(|| self.recorder.as_ref()?.trouble())
    }

    /// The recording of the session.
    pub(super) fn recorder(&self) -> Option<&Arc<SessionRecorder>> {
        self.recorder.as_ref()
    }

    /// The notebook in which cells are written down.
    pub(crate) fn notebook(&self) -> Option<&Arc<Notebook>> {
        self.notebook.as_ref()
    }

    /// Watches from now on, as long as the mailbox lives.
    pub(crate) fn join(&self) -> Arc<WatcherMailbox> {
        let mailbox = Arc::new(WatcherMailbox::default());
        let mut watchers = self.watchers.lock();
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(Arc::downgrade(&mailbox));
        self.count.store(watchers.len(), Ordering::Relaxed);
        mailbox
    }

    /// Whether anybody watches, or has until just now.
    fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Sends an event to all who watch.
    pub(crate) fn send(&self, event: &SessionEvent) {
        if !self.is_watched() {
            return;
        }
        let mut watchers = self.watchers.lock();
        watchers.retain(|watcher| match watcher.upgrade() {
            Some(mailbox) => {
                mailbox.put(event.clone());
                true
            }
            None => false,
        });
        self.count.store(watchers.len(), Ordering::Relaxed);
    }

    /// Passes on a gate's notice.
    pub(super) fn notice(&self, notice: QuestionNotice) {
        self.send(&match notice {
            QuestionNotice::Asked { question, action } => SessionEvent::Asked { question, action },
            QuestionNotice::Decided { question, how } => SessionEvent::Decided { question, how },
            QuestionNotice::Ruled { action, how } => SessionEvent::Ruled { action, how: how.into() },
        });
    }

    /// The number of the last cell in the kernel.
    pub(crate) fn last_number(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Begins to count anew: the kernel is a fresh one.
    pub(super) fn forget_cells(&self) {
        self.last.store(0, Ordering::Relaxed);
        if let Some(notebook) = &self.notebook {
            notebook.kernel_started();
        }
        if let Some(recorder) = &self.recorder {
            recorder.kernel_started();
        }
    }

    /// The kernel is as it was before this cell, when the last one had this number.
    pub(super) fn undone(&self, last: u64, cell: &str) {
        self.last.store(last, Ordering::Relaxed);
        if let Some(notebook) = &self.notebook {
            notebook.kernel_set_back(cell);
        }
        if let Some(recorder) = &self.recorder {
            recorder.undone(last);
        }
    }

    /// A cell is given to the kernel.
    pub(super) fn begin(self: &Arc<Self>, code: &str, author: CellRequester) -> LiveCell {
        let cell = self.cells.fetch_add(1, Ordering::Relaxed);
        // The kernel counts neither blank ones nor our own.
        let is_shown = author != CellRequester::Ourselves;
        let is_counted = is_shown && !code.trim().is_empty();
        let number =
            if is_counted { self.last.fetch_add(1, Ordering::Relaxed) + 1 } else { self.last_number() };
        if is_shown && self.is_watched() {
            let end = code.floor_char_boundary(CODE_BYTES);
            let code = if end < code.len() { &format!("{}\n…", &code[..end]) } else { code };
            self.send(&SessionEvent::Began { cell, number, author, code: code.into() });
        }
        let notebook = self.notebook.as_ref().filter(|_| is_shown);
        let written =
            notebook.map(|notebook| notebook.begin(code, is_counted.then_some(number), author.word()));
        let recorder = self.recorder.as_ref().filter(|_| is_shown);
        let recorded = recorder.map(|recorder| RecordingCell::begin(recorder, code, author.word()));
        let recent = self.recent.as_ref().filter(|_| is_shown);
        let recent = recent.map(|recorder| (Arc::clone(recorder), recorder.cell_begins()));
        LiveCell { audience: Arc::clone(self), cell, is_shown, written, recorded, recent }
    }
}

impl LiveCell {
    /// A message of the kernel has come for it.
    pub(super) fn came(&self, content: &MessageContent) {
        if let Some(written) = &self.written {
            written.shown(content);
        }
        if let Some(recorded) = &self.recorded {
            recorded.shown(content);
        }
    }

    /// An image that the last message has shown is in this file.
    pub(super) fn saved(&self, file: &Path) {
        if let Some(written) = &self.written {
            written.saved(file);
        }
    }

    /// It has shown a text.
    pub(super) fn text(&self, text: &str) {
        if self.is_shown && self.audience.is_watched() {
            self.audience.send(&SessionEvent::Text { cell: self.cell, text: text.to_owned() });
        }
    }

    /// It has ended.
    pub(super) fn ended(&self, outcome: &Outcome) {
        if let Some(recorded) = &self.recorded {
            recorded.ended(outcome.word(), outcome.error.as_ref());
        }
        if let Some((recorder, cell)) = &self.recent {
            recorder.cell_is_over(*cell);
        }
        let is_watched = self.is_shown && self.audience.is_watched();
        if self.written.is_none() && !is_watched {
            return;
        }
        let end = Arc::new(outcome.ended());
        if let Some(written) = &self.written {
            written.ended(Arc::clone(&end), outcome.error.as_ref());
        }
        if is_watched {
            let error = outcome.error.clone().map(Arc::new);
            self.audience.send(&SessionEvent::Ended { cell: self.cell, end, error });
        }
    }
}

impl WatcherMailbox {
    /// Adds an event, and leaves out the oldest text if too much waits.
    pub(crate) fn put(&self, event: SessionEvent) {
        self.state.lock().put(event);
        self.came.notify_one();
    }

    /// The next event; `None` if too many have come together. Cancellation safe.
    pub(crate) async fn next(&self) -> Option<SessionEvent> {
        loop {
            {
                let mut waiting = self.state.lock();
                if waiting.is_given_up {
                    return None;
                }
                if let Some(event) = waiting.events.pop_front() {
                    match &event {
                        SessionEvent::Text { text, .. } => waiting.text_bytes -= text.len(),
                        SessionEvent::Ruled { .. } => waiting.ruled -= 1,
                        _ => {}
                    }
                    return Some(event);
                }
            }
            self.came.notified().await;
        }
    }
}

impl WaitingEvents {
    fn put(&mut self, event: SessionEvent) {
        if self.is_given_up {
            return;
        }
        match &event {
            SessionEvent::Text { text, .. } => self.text_bytes += text.len(),
            SessionEvent::Ruled { .. } => self.ruled += 1,
            _ => {}
        }
        match (event, self.events.back_mut()) {
            (SessionEvent::Text { cell, text }, Some(SessionEvent::Text { cell: same, text: begun }))
                if *same == cell && begun.len() < PIECE_BYTES =>
            {
                begun.push_str(&text);
            }
            (event, _) => self.events.push_back(event),
        }
        while self.text_bytes > TEXT_BYTES {
            self.leave_out_oldest_text();
        }
        if self.ruled > RULED {
            self.leave_out_oldest_ruled();
        }
        if self.events.len() > EVENTS {
            self.is_given_up = true;
            self.events.clear();
        }
    }

    fn leave_out_oldest_ruled(&mut self) {
        let oldest = self.events.iter().position(|event| matches!(event, SessionEvent::Ruled { .. }));
        if let Some(oldest) = oldest {
            self.events.remove(oldest);
            self.ruled -= 1;
        }
    }

    /// Puts the number of its bytes in the place of the oldest text. What follows begins with a line.
    fn leave_out_oldest_text(&mut self) {
        let is_text = |event: &SessionEvent| matches!(event, SessionEvent::Text { .. });
        let Some(index) = self.events.iter().position(is_text) else { return };
        let Some(SessionEvent::Text { cell, text }) = self.events.remove(index) else { return };
        let mut left_out = text.len();
        if let Some(SessionEvent::Text { cell: same, text: next }) = self.events.get_mut(index)
            && *same == cell
        {
            let rest_of_line = next.find('\n').map_or(next.len(), |end| end + 1);
            next.drain(..rest_of_line);
            left_out += rest_of_line;
        }
        self.text_bytes -= left_out;
        match index.checked_sub(1).and_then(|before| self.events.get_mut(before)) {
            Some(SessionEvent::LeftOut { cell: same, bytes }) if *same == cell => *bytes += left_out,
            _ => self.events.insert(index, SessionEvent::LeftOut { cell, bytes: left_out }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cell: u64, text: &str) -> SessionEvent {
        SessionEvent::Text { cell, text: text.to_owned() }
    }

    async fn taken(mailbox: &WatcherMailbox) -> Vec<String> {
        let mut taken = Vec::new();
        while !mailbox.state.lock().events.is_empty() {
            taken.push(match mailbox.next().await {
                Some(SessionEvent::Text { cell, text }) => format!("{cell}: {} bytes", text.len()),
                Some(SessionEvent::LeftOut { cell, bytes }) => format!("{cell}: left out {bytes}"),
                other => format!("{other:?}"),
            });
        }
        taken
    }

    #[test]
    fn cells_are_counted_as_the_kernel_counts_them() {
        let audience = Arc::new(SessionAudience::default());
        for (code, author, number) in [
            ("1", CellRequester::Agent, 1),
            ("2", CellRequester::Ourselves, 1),
            (" ", CellRequester::Agent, 1),
            ("3", CellRequester::Agent, 2),
        ] {
            audience.begin(code, author);
            assert_eq!(audience.last_number(), number, "{code}");
        }
    }

    #[tokio::test]
    async fn the_oldest_of_too_much_text_is_left_out_and_counted() {
        let audience = SessionAudience::default();
        let mailbox = audience.join();
        audience.send(&text(1, "the beginning"));
        audience.send(&SessionEvent::Decided { question: 1, how: "denied" });
        let line = "0123456789\n";
        let lines = TEXT_BYTES / line.len();
        for _ in 0..2 * lines {
            // In pieces, as `print` writes.
            audience.send(&text(1, line.trim_end()));
            audience.send(&text(1, "\n"));
        }
        audience.send(&text(2, "the end"));

        let mut bytes = 0;
        let mut kept = String::new();
        while !mailbox.state.lock().events.is_empty() {
            match mailbox.next().await.unwrap() {
                SessionEvent::LeftOut { cell: 1, bytes: left_out } if kept.is_empty() => bytes += left_out,
                SessionEvent::Text { text, .. } => kept.push_str(&text),
                SessionEvent::Decided { .. } => assert!(kept.is_empty()),
                other => panic!("{other:?}"),
            }
        }
        assert!(kept.len() > TEXT_BYTES - 2 * PIECE_BYTES && kept.len() <= TEXT_BYTES, "{}", kept.len());
        assert_eq!(bytes + kept.len(), "the beginning".len() + 2 * lines * line.len() + "the end".len());
        assert!(kept.starts_with(line) && kept.ends_with("\nthe end"));

        // One that is too much by itself, too.
        audience.send(&text(3, &"x".repeat(TEXT_BYTES + 1)));
        audience.send(&text(3, "later"));
        assert_eq!(
            taken(&mailbox).await,
            [format!("3: left out {}", TEXT_BYTES + 1), "3: 5 bytes".to_owned()]
        );
    }

    #[tokio::test]
    async fn whoever_lets_too_much_come_together_is_given_up() {
        let audience = SessionAudience::default();
        let (stuck, awake) = (audience.join(), audience.join());
        for question in 0..=EVENTS as u64 {
            audience.send(&SessionEvent::Decided { question, how: "denied" });
            awake.next().await.unwrap();
        }
        assert!(stuck.next().await.is_none());
        drop(awake);
        audience.send(&text(1, "nobody"));
        assert_eq!(audience.count.load(Ordering::Relaxed), 1);
    }
}
