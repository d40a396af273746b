//! The people at prompts of `ipybox attach`, beside the client: what they are asked, and what the agent is told of them.

mod person;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

pub(super) use self::person::serve;
pub use self::wire::{By, Heard, Said};
use super::asking::for_prompt;
use crate::approval::{
    Answer, ApprovalQueue, ApprovalRequest, Approver, answer_in_words, grant_choice, next_question,
};
use crate::output::Text;
use crate::session::{Audience, Event, Outcome};

/// How much of the late output that a person's cell has brought to light the agent is told, in characters.
const LATE_CHARS: usize = 5_000;

/// How many notes wait for the agent.
const NOTES: usize = 16;

/// The people.
pub(super) struct Attached {
    queue: Arc<ApprovalQueue>,
    audience: Arc<Audience>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// How many there are who can answer.
    people: usize,
    /// How many there have been.
    numbers: u64,
    /// The questions that nobody has answered.
    open: BTreeMap<u64, Open>,
    /// How many cells they have run since the agent was told.
    ran: usize,
    has_worked: bool,
    /// What the agent has to know of those cells.
    notes: Vec<String>,
}

/// A question that nobody has answered.
struct Open {
    text: Arc<str>,
    /// The answer that gives the grant which the text proposes.
    grant: Option<Arc<str>>,
    answer: oneshot::Sender<Answer>,
}

/// A person who is there, as long as this lives.
struct Presence<'a> {
    attached: &'a Attached,
    number: u64,
    can_answer: bool,
}

impl Attached {
    /// Nobody, at first. Those who come watch the same session.
    pub(super) fn new(audience: Arc<Audience>) -> Self {
        let (queue, requests) = ApprovalQueue::of_attached();
        let state = Arc::default();
        // Ends with the queue.
        tokio::spawn(ask_all(requests, Arc::clone(&state), Arc::clone(&audience)));
        Self { queue, audience, state }
    }

    /// Asks those who are there; nobody, for this reason, if there are none.
    pub(super) fn approver(&self, why_nobody: &'static str) -> Approver {
        Approver::Attached(Arc::clone(&self.queue), why_nobody)
    }

    /// Whether somebody has run a cell.
    pub(super) fn has_worked(&self) -> bool {
        self.lock().has_worked
    }

    /// What the agent's next answer says of their cells, once.
    pub(super) fn news(&self) -> Vec<String> {
        let mut state = self.lock();
        let cells = match std::mem::take(&mut state.ran) {
            0 => return Vec::new(),
            1 => "a cell".to_owned(),
            cells => format!("{cells} cells"),
        };
        let mut news =
            vec![format!("[The user ran {cells} in this kernel meanwhile: variables may have changed.]")];
        news.append(&mut state.notes);
        news
    }

    /// Notes that a person has run a cell. What its outcome says of earlier cells and of the kernel is for the agent too.
    fn ran(&self, outcome: &Outcome) {
        let mut state = self.lock();
        state.ran += 1;
        state.has_worked = true;
        let mut notes = outcome.notes.clone();
        if let Some(late) = late_output(&outcome.late) {
            notes.push(format!("[Output of earlier cells, after they had ended:]\n{late}\n[End of the output of earlier cells]"));
        }
        if crate::session::KernelState::of(&outcome.end) == crate::session::KernelState::Lost {
            notes.push(format!("[A cell of the user: {}]", outcome.end.words()));
        }
        state.notes.append(&mut notes);
        let surplus = state.notes.len().saturating_sub(NOTES);
        state.notes.drain(..surplus);
    }

    /// Counts a person. Returns the questions that are open, too, if they can answer.
    fn arrive(&self, can_answer: bool) -> (Presence<'_>, Vec<Event>) {
        let mut state = self.lock();
        state.numbers += 1;
        let presence = Presence { attached: self, number: state.numbers, can_answer };
        if !can_answer {
            return (presence, Vec::new());
        }
        state.people += 1;
        self.queue.attend(true);
        let open = state.open.iter().map(|(&question, Open { text, grant, .. })| Event::Question {
            question,
            text: Arc::clone(text),
            grant: grant.clone(),
        });
        (presence, open.collect())
    }

    /// Takes an answer. Returns whether it is the first one.
    fn answer(&self, question: u64, answer: Answer) -> bool {
        let open = self.lock().open.remove(&question);
        open.is_some_and(|open| open.answer.send(answer).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if !self.can_answer {
            return;
        }
        let mut state = self.attached.lock();
        state.people -= 1;
        if state.people == 0 {
            self.attached.queue.attend(false);
            // Nobody is there who could answer them: they are rejected.
            state.open.clear();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The late output that an outcome brings along, within bounds.
fn late_output(late: &Text) -> Option<String> {
    (!late.excerpt.is_empty()).then(|| crate::text::shortened(&late.excerpt, LATE_CHARS))
}

/// Asks all who are there what the queue brings.
async fn ask_all(
    mut requests: mpsc::Receiver<ApprovalRequest>,
    state: Arc<Mutex<State>>,
    audience: Arc<Audience>,
) {
    while let Some(request) = requests.recv().await {
        if request.is_closed() {
            continue;
        }
        let Ok(text) = for_prompt(&request) else { continue };
        let grant = request.proposed_grant().map(|grant| Arc::<str>::from(grant_choice(grant)));
        let (question, text) = (next_question(), Arc::<str>::from(text));
        let (answer, answered) = oneshot::channel();
        {
            let mut state = lock(&state);
            if state.people == 0 {
                // Dropped, and thereby rejected.
                continue;
            }
            state.open.insert(question, Open { text: Arc::clone(&text), grant: grant.clone(), answer });
        }
        request.hand_out();
        audience.tell(&Event::Question { question, text, grant });
        tokio::spawn(follow(request, question, answered, Arc::clone(&state), Arc::clone(&audience)));
    }
}

/// Waits for the answer to a question, or until it is too late.
async fn follow(
    mut request: ApprovalRequest,
    question: u64,
    answered: oneshot::Receiver<Answer>,
    state: Arc<Mutex<State>>,
    audience: Arc<Audience>,
) {
    let answer = tokio::select! {
        answer = answered => answer.ok(),
        () = request.closed() => None,
    };
    lock(&state).open.remove(&question);
    let how = match answer {
        Some(answer) if request.answer(answer) => answer_in_words(answer),
        _ => "not answered in time",
    };
    audience.tell(&Event::Decided { question, how });
}
