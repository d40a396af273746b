//! The queue in which approval requests wait for the user's answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};

use super::action::Action;
use super::request::ApprovalRequest;
use super::shown::question;

/// How many unread requests the queue holds: those of the largest batch. More wait for room.
const CAPACITY: usize = 1_000;

/// Decides about the calls of a piece of work, for instance a cell.
#[derive(Debug, Clone)]
pub(crate) enum Approver {
    /// Nobody: actions that need approval are denied. The text tells a user why, and what to do.
    Nobody(&'static str),
    /// Every action that needs approval may run.
    Consent,
    /// The user who reads the queue.
    User(Arc<ApprovalQueue>),
    /// The people who are attached to the session, who read the queue; nobody if there are none, for the reason in the text.
    Attached(Arc<ApprovalQueue>, &'static str),
}

impl Approver {
    /// How many requests wait for an answer.
    pub(crate) fn waiting(&self) -> watch::Receiver<usize> {
        match self {
            Self::User(queue) | Self::Attached(queue, _) => queue.waiting(),
            // Closed: no request will ever wait.
            Self::Nobody(_) | Self::Consent => watch::channel(0).1,
        }
    }

    /// How many requests have expired so far.
    pub(crate) fn expired(&self) -> usize {
        match self {
            Self::User(queue) | Self::Attached(queue, _) => queue.expired.load(Ordering::Relaxed),
            Self::Nobody(_) | Self::Consent => 0,
        }
    }
}

/// A queue of approval requests. When its reader is dropped, unread requests are rejected.
#[derive(Debug)]
pub(crate) struct ApprovalQueue {
    pub(super) requests: mpsc::Sender<ApprovalRequest>,
    waiting: watch::Sender<usize>,
    expired: AtomicUsize,
    is_attended: watch::Sender<bool>,
    /// Whether requests are shown in dialogs of bounded size.
    shows_dialogs: bool,
    /// Whether its reader can send the user to a page.
    opens_pages: bool,
    /// Whether people read it who may come and go.
    is_of_attached: bool,
}

/// Counts a user who is away on a page as a waiting request, as long as this lives.
#[derive(Debug)]
pub(crate) struct Away(Arc<ApprovalQueue>);

/// Counts a waiting request as long as this lives.
pub(super) struct Counted<'a>(&'a ApprovalQueue);

impl ApprovalQueue {
    /// A queue, and its receiver.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        Self::make(false, true, false)
    }

    /// A queue whose requests are shown in dialogs: a request that is too long for one is denied.
    pub(crate) fn of_dialogs(opens_pages: bool) -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        Self::make(true, opens_pages, false)
    }

    /// A queue that people read who may come and go. At first nobody is there.
    pub(crate) fn of_attached() -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        let (queue, receiver) = Self::make(true, false, true);
        queue.attend(false);
        (queue, receiver)
    }

    fn make(
        shows_dialogs: bool,
        opens_pages: bool,
        is_of_attached: bool,
    ) -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        let (requests, receiver) = mpsc::channel(CAPACITY);
        (
            Arc::new(Self {
                requests,
                waiting: watch::Sender::new(0),
                expired: AtomicUsize::new(0),
                is_attended: watch::Sender::new(true),
                shows_dialogs,
                opens_pages,
                is_of_attached,
            }),
            receiver,
        )
    }

    /// Whether a request for `action` could be shown.
    pub(super) fn can_show(&self, action: &Action) -> bool {
        !self.shows_dialogs || question(action).is_ok()
    }

    /// Whether its reader can send the user to a page.
    pub(super) fn opens_pages(&self) -> bool {
        self.opens_pages
    }

    /// Counts the user as away.
    pub(super) fn away(self: &Arc<Self>) -> Away {
        self.waiting.send_modify(|count| *count += 1);
        Away(Arc::clone(self))
    }

    /// How many requests wait for an answer.
    pub(crate) fn waiting(&self) -> watch::Receiver<usize> {
        self.waiting.subscribe()
    }

    /// Sets whether the queue is read. While it is not, the timeout runs for all requests in it.
    pub(crate) fn attend(&self, is_attended: bool) {
        self.is_attended.send_replace(is_attended);
    }

    /// Whether the queue is read.
    pub(crate) fn is_attended(&self) -> bool {
        *self.is_attended.borrow()
    }

    pub(super) fn is_of_attached(&self) -> bool {
        self.is_of_attached
    }

    /// Waits until the queue is not read.
    pub(super) async fn left(&self) {
        // `self` owns the sender, so this cannot fail.
        self.is_attended.subscribe().wait_for(|is_attended| !is_attended).await.ok();
    }

    /// Counts a request that has expired.
    pub(super) fn expire(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> Counted<'_> {
        self.waiting.send_modify(|count| *count += 1);
        Counted(self)
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|count| *count -= 1);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|count| *count -= 1);
    }
}
