//! Where questions are put to whoever answers them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};

use super::action::Action;
use super::request::ApprovalRequest;
use super::shown::question;

/// How many questions may lie there unread. More wait for room.
const QUESTIONS_CAPACITY: usize = 64;

/// Who answers for a piece of work, a cell say.
#[derive(Debug, Clone)]
pub(crate) enum Approver {
    /// Nobody: what has to be asked is denied. The words say to a user why, and what to do.
    Nobody(&'static str),
    /// Everything that would be asked may run.
    Consent,
    /// Whoever reads the desk.
    Desk(Arc<Desk>),
}

impl Approver {
    /// How many questions wait for an answer.
    pub(crate) fn waiting(&self) -> watch::Receiver<usize> {
        match self {
            Self::Desk(desk) => desk.waiting(),
            // Closed: nothing will ever wait.
            Self::Nobody(_) | Self::Consent => watch::channel(0).1,
        }
    }

    /// How many questions have expired so far.
    pub(crate) fn expired(&self) -> usize {
        match self {
            Self::Desk(desk) => desk.expired.load(Ordering::Relaxed),
            Self::Nobody(_) | Self::Consent => 0,
        }
    }
}

/// A place for questions. Questions that nobody has taken are rejected when its reader goes away.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(super) questions: mpsc::Sender<ApprovalRequest>,
    waiting: watch::Sender<usize>,
    expired: AtomicUsize,
    is_attended: watch::Sender<bool>,
    /// Whether questions are shown in dialogs of bounded size.
    shows_dialogs: bool,
}

/// A question that waits, counted as long as this lives.
pub(super) struct Counted<'a>(&'a Desk);

impl Desk {
    /// A desk, and the questions that are put there.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        Self::make(false)
    }

    /// A desk whose questions are shown in dialogs: what is too long for one is not put there.
    pub(crate) fn of_dialogs() -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        Self::make(true)
    }

    fn make(shows_dialogs: bool) -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        let (questions, receiver) = mpsc::channel(QUESTIONS_CAPACITY);
        (
            Arc::new(Self {
                questions,
                waiting: watch::Sender::new(0),
                expired: AtomicUsize::new(0),
                is_attended: watch::Sender::new(true),
                shows_dialogs,
            }),
            receiver,
        )
    }

    /// Whether the question about `action` could be shown.
    pub(super) fn can_show(&self, action: &Action) -> bool {
        !self.shows_dialogs || question(action).is_ok()
    }

    /// How many questions wait for an answer.
    pub(crate) fn waiting(&self) -> watch::Receiver<usize> {
        self.waiting.subscribe()
    }

    /// Says whether somebody is there who takes questions. While nobody is, the time of those that lie there runs.
    pub(crate) fn attend(&self, is_attended: bool) {
        self.is_attended.send_replace(is_attended);
    }

    /// Waits until nobody is there.
    pub(super) async fn left(&self) {
        // The sender is here: it does not go away.
        drop(self.is_attended.subscribe().wait_for(|is_attended| !is_attended).await);
    }

    /// Notes that a question has expired.
    pub(super) fn expire(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> Counted<'_> {
        self.waiting.send_modify(|count| *count += 1);
        Counted(self)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|count| *count -= 1);
    }
}
