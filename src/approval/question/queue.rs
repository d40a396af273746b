//! The queue in which approval requests wait for the user's answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};

use super::request::{AnswerVia, ApprovalRequest, PendingRequest};
use crate::approval::action::Action;
use crate::approval::action::as_python::question;

/// The number of unread requests that the queue holds: those of the largest batch. More wait for room.
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
    /// The number of requests that wait for an answer.
    pub(crate) fn waiting(&self) -> watch::Receiver<usize> {
        match self {
            Self::User(queue) | Self::Attached(queue, _) => queue.waiting(),
            // Closed: no request will ever wait.
            Self::Nobody(_) | Self::Consent => watch::channel(0).1,
        }
    }

    /// The queue of a user who can be sent to a page.
    pub(crate) fn page_queue(&self) -> Option<&Arc<ApprovalQueue>> {
        match self {
            Self::User(queue) => Some(queue),
            _ => None,
        }
    }

    /// Counts a question to somebody else as one that waits.
    pub(in crate::approval) fn count(&self) -> Option<CountedRequest> {
        match self {
            Self::User(queue) | Self::Attached(queue, _) => Some(queue.count()),
            Self::Nobody(_) | Self::Consent => None,
        }
    }

    /// The number of requests that have expired so far.
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
    pub(in crate::approval) requests: mpsc::Sender<ApprovalRequest>,
    waiting: watch::Sender<usize>,
    pub(in crate::approval) expired: AtomicUsize,
    is_attended: watch::Sender<bool>,
    /// Whether requests are shown in dialogs of bounded size.
    shows_dialogs: bool,
    /// Whether people read it who may come and go.
    is_of_attached: bool,
    /// Whether those people are asked what other users are asked, too.
    asks_people_all: AtomicBool,
    /// The queue of such people, beside this one's own user.
    people: Option<Arc<ApprovalQueue>>,
}

/// Counts a waiting request as long as this lives.
#[derive(Debug)]
pub(in crate::approval) struct CountedRequest(Arc<ApprovalQueue>);

impl ApprovalQueue {
    /// A queue, and its receiver.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        let (queue, receiver) = Self::make();
        (Arc::new(queue), receiver)
    }

    /// A queue whose requests are shown in dialogs: a request that is too long for one is denied. The readers of `people`
    /// are asked too while they want to be.
    pub(crate) fn of_dialogs(people: Arc<ApprovalQueue>) -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        let (queue, receiver) = Self::make();
        (Arc::new(Self { shows_dialogs: true, people: Some(people), ..queue }), receiver)
    }

    /// A queue that people read who may come and go. At first nobody is there.
    pub(crate) fn of_attached() -> (Arc<Self>, mpsc::Receiver<ApprovalRequest>) {
        let (queue, receiver) = Self::make();
        queue.attend(false);
        let queue = Self { shows_dialogs: true, is_of_attached: true, ..queue };
        (Arc::new(queue), receiver)
    }

    fn make() -> (Self, mpsc::Receiver<ApprovalRequest>) {
        let (requests, receiver) = mpsc::channel(CAPACITY);
        let queue = Self {
            requests,
            waiting: watch::Sender::new(0),
            expired: AtomicUsize::new(0),
            is_attended: watch::Sender::new(true),
            shows_dialogs: false,
            is_of_attached: false,
            asks_people_all: AtomicBool::new(false),
            people: None,
        };
        (queue, receiver)
    }

    /// Whether a request for `action` could be shown.
    pub(in crate::approval) fn can_show(&self, action: &Action) -> bool {
        !self.shows_dialogs || question(action).is_ok()
    }

    /// By which face for people its requests are answered; `None` if they are a client's.
    pub(in crate::approval) fn via(&self) -> Option<AnswerVia> {
        let asks_pages = self.asks_people_all.load(Ordering::Relaxed);
        self.is_of_attached.then_some(if asks_pages { AnswerVia::Page } else { AnswerVia::Prompt })
    }

    /// Counts a request that waits, or a user who is away on a page.
    pub(in crate::approval) fn count(self: &Arc<Self>) -> CountedRequest {
        self.waiting.send_modify(|count| *count += 1);
        CountedRequest(Arc::clone(self))
    }

    /// The number of requests that wait for an answer.
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

    /// Whether people who are attached to the session are asked about `action`.
    pub(super) fn asks_people(&self, action: &Action) -> bool {
        self.is_of_attached || self.people_for(action).is_some()
    }

    /// Sets whether the readers of this queue are asked what other users are asked, too.
    pub(crate) fn ask_people_all(&self, asks: bool) {
        self.asks_people_all.store(asks, Ordering::Relaxed);
    }

    /// Asks those too who are attached to the session, if they want to be.
    pub(in crate::approval) fn ask_people_too(
        &self,
        request: &ApprovalRequest,
        waiting: &mut PendingRequest,
    ) {
        if let Some(people) = self.people_for(request.action())
            && people.requests.try_send(request.beside(waiting)).is_err()
        {
            tracing::debug!("too many questions wait: this one is asked by the client alone");
        }
    }

    /// The people to ask. About what only the client can do, its user alone is asked.
    fn people_for(&self, action: &Action) -> Option<&Arc<ApprovalQueue>> {
        let people = self.people.as_ref().filter(|_| !action.is_of_client())?;
        (people.asks_people_all.load(Ordering::Relaxed) && people.is_attended()).then_some(people)
    }

    /// Waits until the queue is not read.
    pub(in crate::approval) async fn left(&self) {
        // `self` owns the sender, so this cannot fail.
        self.is_attended.subscribe().wait_for(|is_attended| !is_attended).await.ok();
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::super::notice::EXPIRED;
    use super::super::request::UserAnswer;
    use super::*;
    use crate::approval::action::{ELICITATION, LOGIN, OURSELVES, Target};

    fn action(server_name: &str, tool_name: &str) -> Action {
        Action::new(server_name.to_owned(), tool_name.to_owned(), Map::new(), Target::Host)
    }

    #[tokio::test]
    async fn people_are_asked_too_and_the_first_answer_counts() {
        let (people, mut asked) = ApprovalQueue::of_attached();
        let (queue, _requests) = ApprovalQueue::of_dialogs(Arc::clone(&people));
        let call = action("s", "t");
        assert!(!queue.asks_people(&call), "nobody wants to be asked");
        people.ask_people_all(true);
        assert!(!queue.asks_people(&call), "nobody is there");
        people.attend(true);
        assert!(queue.asks_people(&call));
        // What only the client can do is not for them.
        assert!(
            !queue.asks_people(&action("s", ELICITATION)) && !queue.asks_people(&action(OURSELVES, LOGIN))
        );

        let ask = || {
            let (request, mut waiting) = ApprovalRequest::new(Arc::new(action("s", "t")), Arc::default());
            queue.ask_people_too(&request, &mut waiting);
            (request, waiting)
        };
        let (mut of_client, mut waiting) = ask();
        let of_people = asked.recv().await.unwrap();
        assert!(of_people.is_shared() && !of_client.is_shared());
        assert!(of_people.accept_for_session());
        assert_eq!(waiting.answer().await.unwrap().answer, UserAnswer::Session);
        let fate = of_client.fate();
        waiting.decided("allowed for this session");
        drop(waiting);
        of_client.closed().await;
        assert_eq!(fate.get(), Some(&"allowed for this session"));

        // One who cannot ask leaves it to the others; without anybody it is dropped.
        let (of_client, mut waiting) = ask();
        drop(of_client);
        assert!(asked.recv().await.unwrap().reject());
        assert_eq!(waiting.answer().await.unwrap().answer, UserAnswer::No);
        let (of_client, mut waiting) = ask();
        drop((of_client, asked.recv().await.unwrap()));
        assert!(waiting.answer().await.is_none());

        // An answer at the last moment is one.
        let (of_client, mut waiting) = ask();
        assert!(of_client.accept());
        waiting.decided(EXPIRED);
        assert_eq!(waiting.close().unwrap().answer, UserAnswer::Once);
        assert!(!asked.recv().await.unwrap().accept());
    }
}
