//! Those who watch a session: they are told which cells run and what these show, without ever keeping a cell waiting.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::cell::{Author, Outcome};
use crate::approval::{Action, Notice};
use crate::kernel::PythonError;

/// How many bytes of text may wait for a watcher. Text that comes while as much waits is left out.
const TEXT_BYTES: usize = 256 * 1024;

/// How many events may wait for a watcher. One that lets more come together is given up.
const EVENTS: usize = 4 * 1024;

/// How much of a cell's code watchers are shown, in bytes.
const CODE_BYTES: usize = 16 * 1024;

/// What happens in a session.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A cell has been given to the kernel. `number` is the one that tracebacks show.
    Began { cell: u64, number: u64, author: Author, code: Arc<str> },
    /// It has shown this text, escape sequences and all.
    Text { cell: u64, text: String },
    /// So much of its text was left out, in bytes: it came too fast.
    LeftOut { cell: u64, bytes: usize },
    /// It has ended.
    Ended { cell: u64, end: Arc<Ended> },
    /// A user is asked about this action, by other means than those who watch.
    Asked { question: u64, action: Arc<Action> },
    /// A question is over.
    Decided { question: u64, how: &'static str },
    /// A question for those who watch; the first answer counts.
    Question { question: u64, text: Arc<str> },
}

/// How a cell has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exception that ended its code.
    pub(crate) error: Option<PythonError>,
    /// How it ended if not by itself.
    pub(crate) words: String,
    /// The files of its images.
    pub(crate) images: Vec<PathBuf>,
    /// The file with all of its text, if there was much.
    pub(crate) file: Option<PathBuf>,
}

impl Ended {
    /// The end of a cell with this outcome.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        Self {
            error: outcome.error.clone(),
            words: outcome.end.words(),
            images: outcome.images.iter().map(|image| image.path.clone()).collect(),
            file: outcome.text.cut.as_ref().and_then(|cut| cut.file.clone()),
        }
    }
}

/// Those who watch.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    watchers: Mutex<Vec<Weak<Mailbox>>>,
    /// How many there are, to be asked without a lock.
    count: AtomicUsize,
    cells: AtomicU64,
    /// The number of the last cell in the kernel.
    last: AtomicU64,
}

/// The events that wait for a watcher.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<Waiting>,
    came: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    text_bytes: usize,
    is_given_up: bool,
}

/// A cell, for those who watch.
#[derive(Debug)]
pub(super) struct Live {
    audience: Arc<Audience>,
    cell: u64,
    /// Whether it is told at all.
    is_told: bool,
}

impl Audience {
    /// Watches from now on, as long as the mailbox lives.
    pub(crate) fn join(&self) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::default());
        let mut watchers = self.watchers();
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(Arc::downgrade(&mailbox));
        self.count.store(watchers.len(), Ordering::Relaxed);
        mailbox
    }

    /// Tells all who watch.
    pub(crate) fn tell(&self, event: &Event) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut watchers = self.watchers();
        watchers.retain(|watcher| match watcher.upgrade() {
            Some(mailbox) => {
                mailbox.put(event.clone());
                true
            }
            None => false,
        });
        self.count.store(watchers.len(), Ordering::Relaxed);
    }

    /// Tells a gate's notice.
    pub(super) fn notice(&self, notice: Notice) {
        self.tell(&match notice {
            Notice::Asked { question, action } => Event::Asked { question, action },
            Notice::Decided { question, how } => Event::Decided { question, how },
        });
    }

    /// The number of the last cell in the kernel.
    pub(crate) fn last_number(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Begins to count anew: the kernel is a fresh one.
    pub(super) fn forget_cells(&self) {
        self.last.store(0, Ordering::Relaxed);
    }

    /// A cell is given to the kernel.
    pub(super) fn begin(self: &Arc<Self>, code: &str, author: Author) -> Live {
        let cell = self.cells.fetch_add(1, Ordering::Relaxed);
        // The kernel does not count blank ones.
        let number = match code.trim().is_empty() {
            true => self.last_number(),
            false => self.last.fetch_add(1, Ordering::Relaxed) + 1,
        };
        let is_told = author != Author::Ourselves;
        if is_told && self.count.load(Ordering::Relaxed) > 0 {
            let end = code.floor_char_boundary(CODE_BYTES);
            let code = if end < code.len() { &format!("{}\n…", &code[..end]) } else { code };
            self.tell(&Event::Began { cell, number, author, code: code.into() });
        }
        Live { audience: Arc::clone(self), cell, is_told }
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Weak<Mailbox>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// It has shown a text.
    pub(super) fn text(&self, text: &str) {
        if self.is_told && self.audience.count.load(Ordering::Relaxed) > 0 {
            self.audience.tell(&Event::Text { cell: self.cell, text: text.to_owned() });
        }
    }

    /// It has ended.
    pub(super) fn ended(&self, outcome: &Outcome) {
        if self.is_told {
            self.audience.tell(&Event::Ended { cell: self.cell, end: Arc::new(Ended::of(outcome)) });
        }
    }
}

impl Mailbox {
    /// Adds an event, or leaves out its text if too much waits.
    pub(crate) fn put(&self, event: Event) {
        self.lock().put(event);
        self.came.notify_one();
    }

    /// The next event; `None` if too many have come together. Cancellation safe.
    pub(crate) async fn next(&self) -> Option<Event> {
        loop {
            {
                let mut waiting = self.lock();
                if waiting.is_given_up {
                    return None;
                }
                if let Some(event) = waiting.events.pop_front() {
                    if let Event::Text { text, .. } = &event {
                        waiting.text_bytes -= text.len();
                    }
                    return Some(event);
                }
            }
            self.came.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn put(&mut self, event: Event) {
        if self.is_given_up {
            return;
        }
        match (event, self.events.back_mut()) {
            (Event::Text { cell, text }, last) if self.text_bytes + text.len() > TEXT_BYTES => match last {
                Some(Event::LeftOut { cell: same, bytes }) if *same == cell => *bytes += text.len(),
                _ => self.events.push_back(Event::LeftOut { cell, bytes: text.len() }),
            },
            (Event::Text { cell, text }, Some(Event::Text { cell: same, text: begun })) if *same == cell => {
                self.text_bytes += text.len();
                begun.push_str(&text);
            }
            (event, _) => {
                if let Event::Text { text, .. } = &event {
                    self.text_bytes += text.len();
                }
                self.events.push_back(event);
            }
        }
        if self.events.len() > EVENTS {
            self.is_given_up = true;
            self.events.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cell: u64, text: &str) -> Event {
        Event::Text { cell, text: text.to_owned() }
    }

    async fn taken(mailbox: &Mailbox) -> Vec<String> {
        let mut taken = Vec::new();
        while !mailbox.lock().events.is_empty() {
            taken.push(match mailbox.next().await {
                Some(Event::Text { cell, text }) => format!("{cell}: {} bytes", text.len()),
                Some(Event::LeftOut { cell, bytes }) => format!("{cell}: left out {bytes}"),
                other => format!("{other:?}"),
            });
        }
        taken
    }

    #[tokio::test]
    async fn text_that_comes_too_fast_is_left_out_and_counted() {
        let audience = Audience::default();
        let mailbox = audience.join();
        let half = "x".repeat(TEXT_BYTES / 2);
        for piece in [&half, &half, "abc", "de"] {
            audience.tell(&text(1, piece));
        }
        audience.tell(&text(2, "f"));
        let whole = format!("1: {TEXT_BYTES} bytes");
        assert_eq!(taken(&mailbox).await, [whole, "1: left out 5".to_owned(), "2: left out 1".to_owned()]);
        audience.tell(&text(1, "later"));
        assert_eq!(taken(&mailbox).await, ["1: 5 bytes"]);
    }

    #[tokio::test]
    async fn whoever_lets_too_much_come_together_is_given_up() {
        let audience = Audience::default();
        let (stuck, awake) = (audience.join(), audience.join());
        for question in 0..=EVENTS as u64 {
            audience.tell(&Event::Decided { question, how: "denied" });
            awake.next().await.unwrap();
        }
        assert!(stuck.next().await.is_none());
        drop(awake);
        audience.tell(&text(1, "nobody"));
        assert_eq!(audience.count.load(Ordering::Relaxed), 1);
    }
}
