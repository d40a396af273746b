//! The people at prompts and on pages, beside the client: what they are asked, and the notes about them for the agent.

mod person;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rmcp::model::Implementation;
use tokio::sync::{mpsc, oneshot, watch};

pub(super) use self::person::{PersonRights, ShownEvents, serve};
use super::questions::{GATHER, QuestionSheet, complete_batches, for_prompt, gather_for, scope};
use crate::approval::provenance::Label;
use crate::approval::{
    AnswerVia, ApprovalQueue, ApprovalRequest, Approver, UserAnswer, answer_in_words, grant_choice,
    grant_covers, next_question,
};
use crate::faces::people::page::ApprovalPage;
use crate::kernels::output::late_section;
use crate::session::{AudienceQuestion, CENTURY, Outcome, SessionAudience, SessionEvent};

/// The number of notes that wait for the agent.
const NOTES: usize = 16;

/// The people.
pub(super) struct AttachedPeople {
    queue: Arc<ApprovalQueue>,
    audience: Arc<SessionAudience>,
    state: Arc<Mutex<PeopleState>>,
    /// The page of `--approval-ui`.
    page: OnceLock<Arc<ApprovalPage>>,
    /// The name and version of the client that has called a tool last.
    client: watch::Sender<Option<String>>,
    /// Held by the one who looks for changes that wait: a large workspace takes a while.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct PeopleState {
    /// The number of people who can answer.
    people: usize,
    /// The number of people who have been there.
    numbers: u64,
    /// The pages that are asked what the client's user is asked.
    asked_all: BTreeSet<u64>,
    /// The pages that somebody looks at.
    looked_at: BTreeSet<u64>,
    /// The questions that nobody has answered.
    open: BTreeMap<u64, OpenQuestion>,
    /// The number of cells that they have run since the last note to the agent.
    ran: usize,
    has_worked: bool,
    /// The notes about those cells for the agent.
    notes: Vec<String>,
}

/// A question that nobody has answered.
struct OpenQuestion {
    question: Arc<AudienceQuestion>,
    answer: oneshot::Sender<Answered>,
}

/// An answer of a person.
struct Answered {
    answer: UserAnswer,
    /// The label that it gives to the data of a server that is registered.
    label: Option<Label>,
    via: AnswerVia,
}

/// A person who is there, as long as this lives.
struct Presence<'a> {
    attached: &'a AttachedPeople,
    number: u64,
    can_answer: bool,
}

impl PeopleState {
    /// Keeps the newest notes for the agent.
    fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        self.notes.extend(notes);
        let surplus = self.notes.len().saturating_sub(NOTES);
        self.notes.drain(..surplus);
    }
}

impl AttachedPeople {
    /// Nobody, at first. Those who come watch the same session.
    pub(super) fn new(audience: Arc<SessionAudience>, timeout: Duration) -> Self {
        let (queue, requests) = ApprovalQueue::of_attached();
        let state = Arc::default();
        // Ends with the queue.
        tokio::spawn(ask_all(requests, Arc::clone(&state), Arc::clone(&audience), timeout));
        Self {
            queue,
            audience,
            state,
            page: OnceLock::new(),
            client: watch::Sender::new(None),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// The queue of what people are asked.
    pub(super) fn queue(&self) -> &Arc<ApprovalQueue> {
        &self.queue
    }

    /// Keeps the page of the session, which lasts as long.
    pub(super) fn keep_page(&self, page: ApprovalPage) {
        if self.page.set(Arc::new(page)).is_err() {
            tracing::error!("a session has two pages");
        }
    }

    /// The page of the session.
    pub(super) fn page(&self) -> Option<&Arc<ApprovalPage>> {
        self.page.get()
    }

    /// Notes which client calls a tool.
    pub(super) fn note_client(&self, client: Option<&Implementation>) {
        let Some(client) = client else { return };
        let name = client.title.as_deref().unwrap_or(&client.name);
        let words = format!("{name} {}", client.version);
        self.client.send_if_modified(|known| {
            known.as_ref() != Some(&words) && {
                *known = Some(words);
                true
            }
        });
    }

    /// From now on somebody may come at any time: what nobody has answered waits, though nobody is there.
    pub(super) fn expect_people(&self) {
        self.state.lock().people += 1;
        self.queue.attend(true);
    }

    /// Asks this person what the client's user is asked, too.
    fn ask_all(&self, number: u64) {
        self.state.lock().asked_all.insert(number);
        self.queue.ask_people_all(true);
    }

    /// Notes whether somebody looks at the page of this number.
    fn look(&self, number: u64, is_looking: bool) {
        let mut state = self.state.lock();
        if is_looking {
            state.looked_at.insert(number)
        } else {
            state.looked_at.remove(&number)
        };
    }

    /// Asks those who are there; nobody, for this reason, if there are none.
    pub(super) fn approver(&self, why_nobody: &'static str) -> Approver {
        Approver::Attached(Arc::clone(&self.queue), why_nobody)
    }

    /// Whether somebody has run a cell.
    pub(super) fn has_worked(&self) -> bool {
        self.state.lock().has_worked
    }

    /// The notes about their cells for the agent's next answer, each once.
    pub(super) fn news(&self) -> Vec<String> {
        let mut state = self.state.lock();
        let cells = match std::mem::take(&mut state.ran) {
            0 => None,
            1 => Some("a cell".to_owned()),
            cells => Some(format!("{cells} cells")),
        };
        let ran = cells.map(|cells| {
            format!("[The user ran {cells} in this kernel meanwhile: variables may have changed.]")
        });
        ran.into_iter().chain(std::mem::take(&mut state.notes)).collect()
    }

    /// Notes that a person has undone cells, with this answer.
    fn undid(&self, words: &str) {
        let mut state = self.state.lock();
        state.has_worked = true;
        state.note([format!("[An undo of the user: {words}]")]);
    }

    /// Notes that a person has run a cell. What its outcome says of earlier cells and of the kernel is for the agent too.
    fn ran(&self, outcome: &Outcome) {
        let mut state = self.state.lock();
        state.ran += 1;
        state.has_worked = true;
        let mut notes = outcome.notes.clone();
        notes.extend(late_section(&outcome.late.excerpt));
        if crate::session::KernelState::of(&outcome.end) == crate::session::KernelState::Lost {
            notes.push(format!("[A cell of the user: {}]", outcome.words()));
        }
        state.note(notes);
    }

    /// Counts a person. Returns the questions that are open, too, if they can answer.
    fn arrive(&self, can_answer: bool) -> (Presence<'_>, Vec<SessionEvent>) {
        let mut state = self.state.lock();
        state.numbers += 1;
        let presence = Presence { attached: self, number: state.numbers, can_answer };
        if !can_answer {
            return (presence, Vec::new());
        }
        state.people += 1;
        self.queue.attend(true);
        let open =
            state.open.values().map(|open| SessionEvent::Question(Arc::clone(&open.question))).collect();
        (presence, open)
    }

    /// Takes the answer of the person with this number. Returns whether it is the first one.
    fn answer(&self, question: u64, answer: UserAnswer, label: Option<Label>, number: u64) -> bool {
        let mut state = self.state.lock();
        let open = state.open.remove(&question);
        // Pages alone ask for everything.
        let via = if state.asked_all.contains(&number) { AnswerVia::Page } else { AnswerVia::Prompt };
        open.is_some_and(|open| open.answer.send(Answered { answer, label, via }).is_ok())
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if !self.can_answer {
            return;
        }
        let mut state = self.attached.state.lock();
        state.people -= 1;
        state.looked_at.remove(&self.number);
        state.asked_all.remove(&self.number);
        if state.asked_all.is_empty() {
            self.attached.queue.ask_people_all(false);
        }
        if state.people == 0 {
            self.attached.queue.attend(false);
            // Nobody is there who could answer them: they are rejected.
            state.open.clear();
        }
    }
}

/// Asks all who are there what the queue brings. What comes at once can be asked together.
async fn ask_all(
    mut requests: mpsc::Receiver<ApprovalRequest>,
    state: Arc<Mutex<PeopleState>>,
    audience: Arc<SessionAudience>,
    timeout: Duration,
) {
    let mut waiting = VecDeque::new();
    while let Some(first) = requests.recv().await {
        waiting.push_back(first);
        gather_for(GATHER, &mut requests, &mut waiting).await;
        // Whether more can come is asked above.
        complete_batches(&mut requests, &mut waiting).await;
        while let Some(sheet) = QuestionSheet::next(&mut waiting) {
            let text = sheet.is_table().then(|| sheet.text());
            let requests = sheet.into_requests();
            let rows = requests.len();
            let asked = requests.into_iter().filter_map(|request| open(request, &state, timeout));
            let asked: Vec<_> = asked.collect();
            // The numbers of the rows are those of the questions only if none is missing.
            if let Some(Ok(text)) = text.filter(|_| asked.len() == rows) {
                let questions = asked.iter().map(|(_, question, _)| question.number).collect();
                audience.send(&SessionEvent::Together { questions, text: text.into() });
            }
            for (request, question, answered) in asked {
                let number = question.number;
                if question.until.is_some() {
                    request.hand_out();
                }
                audience.send(&SessionEvent::Question(question));
                tokio::spawn(follow(request, number, answered, Arc::clone(&state), Arc::clone(&audience)));
            }
        }
    }
}

/// Makes a question of a request; `None`, which drops it, if nobody is there who could answer.
fn open(
    request: ApprovalRequest,
    state: &Mutex<PeopleState>,
    timeout: Duration,
) -> Option<(ApprovalRequest, Arc<AudienceQuestion>, oneshot::Receiver<Answered>)> {
    let text = for_prompt(&request).ok()?;
    let grant = request.proposed_grant().map(grant_choice).zip(grant_covers(&request));
    let outside = request.outside_of_grants();
    let number = next_question();
    let action = request.shared_action();
    let scope = scope(&request);
    let (answer, answered) = oneshot::channel();
    let mut state = state.lock();
    if state.people == 0 {
        return None;
    }
    // If the client asks its user too, the time begins when either sees the question.
    let is_seen = !request.is_shared() || !state.looked_at.is_empty();
    let until = is_seen.then(|| Instant::now() + timeout.min(CENTURY));
    let question = Arc::new(AudienceQuestion { number, text, grant, outside, action, scope, until });
    state.open.insert(number, OpenQuestion { question: Arc::clone(&question), answer });
    Some((request, question, answered))
}

/// Waits for the answer to a question, or until it is too late.
async fn follow(
    mut request: ApprovalRequest,
    question: u64,
    answered: oneshot::Receiver<Answered>,
    state: Arc<Mutex<PeopleState>>,
    audience: Arc<SessionAudience>,
) {
    let answer = tokio::select! {
        answer = answered => answer.ok(),
        () = request.closed() => None,
    };
    state.lock().open.remove(&question);
    let fate = request.fate();
    let how = match answer {
        Some(Answered { answer, label, via })
            if request.answered_via(via).answer_with_label(answer, label) =>
        {
            answer_in_words(answer)
        }
        // What the client's user has answered, or nobody.
        _ => fate.get().copied().unwrap_or("taken back"),
    };
    audience.send(&SessionEvent::Decided { question, how });
}
