//! The common state of the prompt and of the thread that hears the session.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ipybox::Label;
use ipybox::lasting::{
    CellAuthor, PersonMessage, PromptAnswer, SessionMessage, SessionReader, SessionWriter,
};
use parking_lot::{Condvar, Mutex};

use super::end_of;
use super::questions::{AttachAsked, AttachQuestion, AttachQuestions, DecidedFor};
use super::screen::{Screen, left_out_note};

/// The time that the prompt waits for what the kernel says of its code.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The interval at which the editor is asked to stop for a question, until it has.
const BREAK_INTERVAL: Duration = Duration::from_millis(50);

const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

pub(super) struct SharedPrompt {
    pub(super) says: SessionWriter,
    pub(super) screen: Screen,
    state: Mutex<PromptState>,
    changed: Condvar,
    ids: AtomicU64,
    /// Whether the next SIGINT is our own, which stops the editor.
    is_breaking: AtomicBool,
}

#[derive(Default)]
struct PromptState {
    /// The number of the last cell.
    number: u64,
    /// The person's cell.
    own: Option<u64>,
    /// The marks of the cells of others that have not ended.
    others: HashMap<u64, String>,
    /// Whether its text was left out in part.
    was_left_out: bool,
    is_running: bool,
    questions: AttachQuestions,
    answers: HashMap<u64, SessionMessage>,
    is_editing: bool,
    /// Whether the line is the answer to a question.
    is_answering: bool,
    /// The line that is edited, and the position in it.
    line: (String, usize),
    has_ended: bool,
}

/// The next step of the prompt.
pub(super) enum PromptStep {
    /// Ask this.
    Question(AttachAsked),
    /// Nothing: the person's cell is over.
    Cell,
    /// Leave: the session has ended.
    End,
}

impl SharedPrompt {
    pub(super) fn new(says: SessionWriter, has_colours: bool) -> Arc<Self> {
        Arc::new(Self {
            says,
            screen: Screen::new(has_colours),
            // Until the session is ready.
            state: Mutex::new(PromptState { is_running: true, ..PromptState::default() }),
            changed: Condvar::new(),
            ids: AtomicU64::new(1),
            is_breaking: AtomicBool::new(false),
        })
    }

    /// The prompt, with the number that the next cell should have.
    pub(super) fn prompt(&self) -> String {
        format!("In [{}]: ", self.state.lock().number + 1)
    }

    /// Runs a cell of the person's, or undoes some.
    pub(super) fn run(&self, said: &PersonMessage) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            (state.is_running, state.own, state.was_left_out) = (true, None, false);
        }
        self.says.say(said)
    }

    /// Waits until the prompt has something to do.
    pub(super) fn due(&self) -> PromptStep {
        let is_quiet =
            |state: &mut PromptState| !state.has_ended && state.is_running && !state.questions.is_due();
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, is_quiet);
        if state.has_ended {
            return PromptStep::End;
        }
        match state.questions.next() {
            Some(asked) => {
                state.is_answering = true;
                PromptStep::Question(asked)
            }
            None => PromptStep::Cell,
        }
    }

    /// Whether the question that the person is asked is still open.
    pub(super) fn is_asking(&self) -> bool {
        let mut state = self.state.lock();
        state.is_answering = state.questions.is_asking();
        state.is_answering
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Answers the questions that the person is asked, each by its number.
    pub(super) fn answer(&self, answer: impl Fn(u64) -> (PromptAnswer, Option<Label>)) -> io::Result<()> {
        let answered = {
            let mut state = self.state.lock();
            state.is_answering = false;
            state.questions.answer()
        };
        for question in answered {
            let (answer, label) = answer(question);
            self.says.say(&PersonMessage::Answer { question, answer, label })?;
        }
        Ok(())
    }

    /// Asks one by one what the person was asked together.
    pub(super) fn ask_each(&self) {
        let mut state = self.state.lock();
        state.is_answering = false;
        state.questions.ask_each();
    }

    /// Says something that has an answer, and waits for that.
    pub(super) fn ask(&self, said: impl FnOnce(u64) -> PersonMessage) -> Option<SessionMessage> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        self.says.say(&said(id)).ok()?;
        let is_missing = |state: &mut PromptState| !state.has_ended && !state.answers.contains_key(&id);
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, is_missing, ANSWER_TIME);
        let answer = state.answers.remove(&id);
        // Those that came too late.
        state.answers.clear();
        answer
    }

    // The editor

    pub(super) fn begin_to_edit(&self) {
        self.screen.begin_to_edit();
        let mut state = self.state.lock();
        state.is_editing = true;
        state.line = (String::new(), 0);
        self.changed.notify_all();
    }

    /// Returns the line, and the position in it.
    pub(super) fn end_editing(&self) -> (String, usize) {
        let line = {
            let mut state = self.state.lock();
            state.is_editing = false;
            std::mem::take(&mut state.line)
        };
        self.screen.end_editing();
        line
    }

    pub(super) fn note_line(&self, line: &str, position: usize) {
        self.state.lock().line = (line.to_owned(), position);
    }

    /// Whether the editor was stopped by us, and not by the person.
    pub(super) fn was_broken(&self) -> bool {
        self.is_breaking.swap(false, Ordering::SeqCst)
    }

    /// Stops the editor whenever there is something else to do. Never returns.
    pub(super) fn break_when_due(&self) {
        loop {
            let is_quiet = |state: &mut PromptState| !state.is_editing || !state.has_to_stop();
            self.changed.wait_while(&mut self.state.lock(), is_quiet);
            self.is_breaking.store(true, Ordering::SeqCst);
            if let Err(error) =
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT)
            {
                tracing::debug!(%error, "could not stop the editor");
            }
            std::thread::sleep(BREAK_INTERVAL);
        }
    }

    /// A SIGINT that the editor has not got.
    pub(super) fn interrupt(&self) {
        if self.was_broken() {
            return;
        }
        if self.state.lock().is_running && self.says.say(&PersonMessage::Interrupt).is_err() {
            self.end();
        }
    }

    // The session

    /// Hears the session to its end.
    pub(super) fn hear(&self, mut hears: SessionReader) {
        loop {
            match hears.hear() {
                Ok(Some(heard)) => self.take(heard),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "the connection to the session has failed");
                    break;
                }
            }
        }
        self.end();
    }

    fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }

    fn take(&self, heard: SessionMessage) {
        match heard {
            SessionMessage::Ready { number } => {
                let mut state = self.state.lock();
                (state.number, state.is_running) = (number, false);
                self.changed.notify_all();
            }
            SessionMessage::Began { cell, number, by, code } => self.began(cell, number, by, &code),
            SessionMessage::Text { text, .. } => self.screen.show(&text),
            SessionMessage::LeftOut { bytes, .. } => {
                self.state.lock().was_left_out = true;
                self.screen.show_line(&left_out_note(bytes));
            }
            SessionMessage::Ended { cell, error, words, images, files, file } => {
                let error = error.map(|error| self.traceback(&error));
                let mut text = end_of(error.as_deref(), &words, &images, &files);
                let mut state = self.state.lock();
                if std::mem::take(&mut state.was_left_out)
                    && let Some(file) = file
                {
                    text.push_str(&format!("[all output: {}]\n", file.display()));
                }
                let other = state.others.remove(&cell);
                drop(state);
                self.screen.show_line(&text);
                if let Some(mark) = other {
                    self.screen.show_line(&self.screen.styled(&format!("{mark}ended"), DIM));
                }
            }
            SessionMessage::Done { notes, number, .. } => {
                notes.iter().for_each(|note| self.screen.show_line(&self.screen.styled(note, YELLOW)));
                let mut state = self.state.lock();
                state.is_running = false;
                state.number = number.unwrap_or(state.number);
                drop(state);
                self.changed.notify_all();
            }
            SessionMessage::Question { question: number, text, grant, call, .. } => {
                let grant = grant.map(|offer| offer.choice);
                let question = AttachQuestion { number, text, grant, takes_label: call.takes_label() };
                self.state.lock().questions.add(question);
                self.changed.notify_all();
            }
            SessionMessage::Together { questions, text } => {
                self.state.lock().questions.announce(questions, text)
            }
            SessionMessage::Asked { text, .. } => {
                self.screen
                    .show_line(&self.screen.styled(&format!("the agent's user is asked: {text}"), DIM));
            }
            SessionMessage::Decided { question, how } => self.decided(question, &how),
            SessionMessage::Completions { id, .. } | SessionMessage::Checked { id, .. } => {
                self.state.lock().answers.insert(id, heard);
                self.changed.notify_all();
            }
            _ => {}
        }
    }

    fn began(&self, cell: u64, number: u64, by: CellAuthor, code: &str) {
        {
            let mut state = self.state.lock();
            state.number = number;
            if by == CellAuthor::You {
                state.own = Some(cell);
                return;
            }
        }
        let who = match by {
            CellAuthor::Another => "another user",
            CellAuthor::Agent | CellAuthor::You => "agent",
        };
        let mark = format!("{who} [{number}]: ");
        self.state.lock().others.insert(cell, mark.clone());
        let code = code.trim_end().replace('\n', &format!("\n{}", " ".repeat(mark.len())));
        let lines = format!("{mark}{code}");
        let dimmed: Vec<_> = lines.lines().map(|line| self.screen.styled(line, DIM)).collect();
        self.screen.show_line(&dimmed.join("\n"));
    }

    fn decided(&self, question: u64, how: &str) {
        let decided = self.state.lock().questions.decide(question, how);
        self.changed.notify_all();
        let words = match decided {
            DecidedFor::Own(None) => return,
            // If this prompt's answer was not the first, the one that counts is shown.
            DecidedFor::Own(Some(how)) => format!("decided: {how}"),
            DecidedFor::Other => format!("decided without you: {how}"),
        };
        self.screen.show_line(&self.screen.styled(&words, DIM));
    }

    /// A traceback with colours: the line that raised, and what it raised.
    fn traceback(&self, text: &str) -> String {
        let last = text.trim_end().lines().count().saturating_sub(1);
        let coloured = text.lines().enumerate().map(|(index, line)| match line {
            _ if index == last => self.screen.styled(line, RED),
            _ if line.starts_with("--") && line.contains("> ") => self.screen.styled(line, GREEN),
            _ => line.to_owned(),
        });
        coloured.collect::<Vec<_>>().join("\n")
    }
}

impl PromptState {
    /// Whether the prompt has something else to do than to edit this line.
    fn has_to_stop(&self) -> bool {
        // While a question is asked, others wait; but not once it is decided by others.
        let is_over = self.is_answering && !self.questions.is_asking();
        self.has_ended || is_over || self.questions.is_waiting()
    }
}
