//! All questions that wait, and the decisions about them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::question::{AskedApproval, QuestionFor, WaitingQuestion};
use super::record::{DecisionRecord, RecordedDecision};
use crate::actions::{PublishFault, PublishedFile, TeamActions};
use crate::login::TeamUser;
use crate::storage::now;

/// The number of questions that can wait in all sessions of a user.
const MOST_OF_USER: usize = 256;
/// The number of those about actions, which are long.
const MOST_PUBLICATIONS: usize = 16;
/// The reason if the server publishes nothing.
const NOTHING_PUBLISHED: &str = "the configuration of the server has no table `[actions]`";
/// The number of questions whose end is remembered, for pages that have shown them.
const ENDS: usize = 1024;

/// The questions of all users.
pub(crate) struct QuestionBoard {
    state: Mutex<BoardState>,
    changes: watch::Sender<u64>,
    record: Arc<DecisionRecord>,
    /// Publishes what is allowed, if anything is published.
    actions: Option<Arc<TeamActions>>,
}

#[derive(Default)]
struct BoardState {
    last: u64,
    open: BTreeMap<u64, Arc<WaitingQuestion>>,
    /// The ids of questions about which a decision is being written.
    deciding: BTreeSet<String>,
    ends: VecDeque<(u64, String)>,
}

/// Why a question does not wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotWaiting {
    /// It has been decided: the message for the session.
    Decided(Value),
    /// It is not taken, for this reason.
    Refused(String),
}

/// The end of a question.
struct QuestionEnd {
    /// In words, for pages.
    how: String,
    /// For the session.
    message: Value,
}

impl QuestionBoard {
    pub(crate) fn new(record: DecisionRecord, actions: Option<TeamActions>) -> Self {
        Self {
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            record: Arc::new(record),
            actions: actions.map(Arc::new),
        }
    }

    /// Changes with the questions.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The questions that a user may answer.
    pub(crate) fn of(&self, user: &TeamUser) -> BTreeMap<u64, Arc<WaitingQuestion>> {
        let state = self.state.lock();
        let own = state.open.iter().filter(|(_, question)| question.is_for(user));
        own.map(|(number, question)| (*number, Arc::clone(question))).collect()
    }

    /// The end of a question, in words.
    pub(crate) fn end_of(&self, number: u64) -> String {
        let state = self.state.lock();
        let end = state.ends.iter().rev().find(|(ended, _)| *ended == number);
        end.map_or_else(|| "decided meanwhile".to_owned(), |(_, how)| how.clone())
    }

    /// A question as it is asked: about an action that is to be published, the server does not take the session's word.
    ///
    /// # Errors
    /// It is not taken.
    pub(crate) fn as_asked(&self, asked: AskedApproval) -> Result<AskedApproval, NotWaiting> {
        if !asked.is_publication() {
            return Ok(asked);
        }
        let refused = |why: &str| NotWaiting::Refused(why.to_owned());
        let actions = self.actions.as_ref().ok_or_else(|| refused(NOTHING_PUBLISHED))?;
        let action =
            asked.arguments().and_then(Value::as_object).ok_or_else(|| refused("it has no arguments"))?;
        let note = actions.look_at(action).map_err(NotWaiting::Refused)?;
        Ok(asked.about_publication(actions.table(), note))
    }

    /// Adds a question; its number.
    ///
    /// # Errors
    /// It has been decided, or there are too many.
    pub(crate) fn add(&self, question: WaitingQuestion) -> Result<Arc<WaitingQuestion>, NotWaiting> {
        let mut state = self.state.lock();
        if let QuestionFor::Approvers(asked) = &question.is_for {
            if let Some(decision) = self.record.find(&asked.question) {
                return Err(self.again(&decision, asked, &question.asker.key));
            }
            // The connection by which it was asked before may not be noticed to be gone.
            for old in state.asked_as(&asked.question) {
                if old.asker.key != question.asker.key {
                    return Err(NotWaiting::Refused("another question has this id".to_owned()));
                }
                state.end(old.number, "asked again".to_owned());
            }
        }
        let own = || state.open.values().filter(|other| other.asker.key == question.asker.key);
        let are_too_many = question.is_publication()
            && own().filter(|other| other.is_publication()).count() >= MOST_PUBLICATIONS;
        if are_too_many || own().count() >= MOST_OF_USER {
            return Err(NotWaiting::Refused("too many questions wait already".to_owned()));
        }
        state.last += 1;
        let question = Arc::new(question.numbered(state.last));
        state.open.insert(question.number, Arc::clone(&question));
        drop(state);
        self.changed();
        Ok(question)
    }

    /// Removes a question that is over.
    pub(crate) fn remove(&self, number: u64, how: &str) {
        self.state.lock().end(number, how.to_owned());
        self.changed();
    }

    /// Answers a question in the name of a user. Returns whether the answer counts; of the user's own session, that it is passed
    /// on.
    pub(crate) async fn answer(&self, number: u64, user: &TeamUser, answer: &Value) -> bool {
        let Some(question) = self.state.lock().open.get(&number).cloned() else { return false };
        if !question.is_for(user) {
            return false;
        }
        match &question.is_for {
            QuestionFor::Asker { number } => {
                let mut said = answer.clone();
                said["question"] = (*number).into();
                question.answers.send(said).await.is_ok()
            }
            QuestionFor::Approvers(asked) => match answer["answer"].as_str() {
                Some("once") => self.decide(&question, asked, user, true).await,
                Some("no") => self.decide(&question, asked, user, false).await,
                _ => false,
            },
        }
    }

    async fn decide(
        &self,
        question: &Arc<WaitingQuestion>,
        asked: &AskedApproval,
        user: &TeamUser,
        is_allowed: bool,
    ) -> bool {
        {
            let mut state = self.state.lock();
            // The first one decides, also if the session asks again meanwhile.
            if !state.open.contains_key(&question.number) || !state.deciding.insert(asked.question.clone()) {
                return false;
            }
            state.open.remove(&question.number);
        }
        let decision = RecordedDecision {
            time: now(),
            question: asked.question.clone(),
            user: question.asker.key.clone(),
            session: question.session.clone(),
            server: asked.name("server").to_owned(),
            tool: asked.name("tool").to_owned(),
            rule: asked.rule().to_owned(),
            digest: asked.digest(),
            is_allowed,
            by: format!("{} ({})", user.name, user.identity),
        };
        let written = self.write(question, asked, decision.clone()).await;
        let counts = written.is_ok();
        let end = self.end_by(&decision, written);
        let mut told = vec![question.answers.clone()];
        {
            let mut state = self.state.lock();
            state.deciding.remove(&asked.question);
            match &end {
                Some(QuestionEnd { how, .. }) => {
                    for other in state.asked_as(&asked.question) {
                        told.push(other.answers.clone());
                        state.end(other.number, how.clone());
                    }
                    state.note_end(question.number, how.clone());
                }
                None => drop(state.open.insert(question.number, Arc::clone(question))),
            }
        }
        self.changed();
        if let Some(QuestionEnd { message, .. }) = end {
            for answers in told {
                // A session that is not there now asks again, and is told.
                answers.send(message.clone()).await.ok();
            }
        }
        counts
    }

    /// The end that a decision is for its question; `None` if it could not be written, and the question waits on.
    fn end_by(&self, decision: &RecordedDecision, written: Result<(), PublishFault>) -> Option<QuestionEnd> {
        match written {
            Ok(()) => {
                let undone = self.undone(decision);
                let word = if decision.is_allowed { "allowed" } else { "denied" };
                let but = undone.map(|why| format!(", but {why}")).unwrap_or_default();
                let how = format!("{word} by {}{but}", decision.by);
                Some(QuestionEnd { how, message: answer_of(decision, undone) })
            }
            Err(PublishFault::Outdated(why)) => {
                let message = refusal_of(&decision.question, &why);
                Some(QuestionEnd { how: format!("not decided: {why}"), message })
            }
            Err(PublishFault::Unwritten(error)) => {
                tracing::error!(%error, "a decision could not be recorded, and does not count");
                None
            }
        }
    }

    /// Why the server has not done its part of a decision.
    fn undone(&self, decision: &RecordedDecision) -> Option<&'static str> {
        self.actions.as_ref()?.undone(&decision.question)
    }

    /// Writes a decision, and publishes the action that it allows.
    async fn write(
        &self,
        question: &WaitingQuestion,
        asked: &AskedApproval,
        decision: RecordedDecision,
    ) -> Result<(), PublishFault> {
        let record = Arc::clone(&self.record);
        let actions = self.actions.clone().filter(|_| asked.is_publication() && decision.is_allowed);
        let action = asked.arguments().and_then(Value::as_object).cloned();
        let note = asked.note().map(str::to_owned);
        let publisher = format!("{} ({})", question.asker.name, question.asker.identity);
        let writing = move || match (actions, action) {
            (Some(actions), Some(action)) => {
                let RecordedDecision { time, question, digest, by, .. } = decision.clone();
                let file = PublishedFile { question, digest, time, publisher, by, action };
                actions.publish(file, note.as_deref(), || record.write(decision))
            }
            _ => Ok(record.write(decision)?),
        };
        tokio::task::spawn_blocking(writing).await.map_err(std::io::Error::other)?
    }

    /// The answer to a question that is asked again after its decision.
    fn again(&self, decision: &RecordedDecision, asked: &AskedApproval, key: &str) -> NotWaiting {
        if decision.user == key && decision.digest == asked.digest() {
            NotWaiting::Decided(answer_of(decision, self.undone(decision)))
        } else {
            NotWaiting::Refused("the id of the question is that of another one".to_owned())
        }
    }

    /// Has all pages look again.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl BoardState {
    /// The questions to approvers with this id: one, unless a session has asked again.
    fn asked_as(&self, id: &str) -> Vec<Arc<WaitingQuestion>> {
        let is_it = |other: &&Arc<WaitingQuestion>| match &other.is_for {
            QuestionFor::Approvers(asked) => asked.question == id,
            QuestionFor::Asker { .. } => false,
        };
        self.open.values().filter(is_it).cloned().collect()
    }

    fn end(&mut self, number: u64, how: String) {
        if self.open.remove(&number).is_some() {
            self.note_end(number, how);
        }
    }

    fn note_end(&mut self, number: u64, how: String) {
        self.ends.push_back((number, how));
        if self.ends.len() > ENDS {
            self.ends.pop_front();
        }
    }
}

fn answer_of(decision: &RecordedDecision, undone: Option<&str>) -> Value {
    let RecordedDecision { question, is_allowed, by, .. } = decision;
    json!({"hear": "answer", "question": question, "is_allowed": is_allowed, "by": by, "undone": undone})
}

/// The message for a session if nobody is asked.
pub(super) fn refusal_of(question: &str, why: &str) -> Value {
    json!({"hear": "refused", "question": question, "why": why})
}

/// Questions by the session's ids of them, as long as a connection lasts.
pub(crate) struct ConnectionQuestions<'a> {
    board: &'a QuestionBoard,
    open: HashMap<String, u64>,
}

impl<'a> ConnectionQuestions<'a> {
    pub(crate) fn of(board: &'a QuestionBoard) -> Self {
        Self { board, open: HashMap::new() }
    }

    /// Adds a question.
    ///
    /// # Errors
    /// As for [`QuestionBoard::add`].
    pub(crate) fn add(
        &mut self,
        id: String,
        question: WaitingQuestion,
    ) -> Result<Arc<WaitingQuestion>, NotWaiting> {
        let question = self.board.add(question)?;
        self.open.insert(id, question.number);
        Ok(question)
    }

    /// The session says that it is over.
    pub(crate) fn end(&mut self, id: &str, how: &str) {
        if let Some(number) = self.open.remove(id) {
            self.board.remove(number, how);
        }
    }
}

impl Drop for ConnectionQuestions<'_> {
    fn drop(&mut self) {
        for number in self.open.values() {
            self.board.remove(*number, "the session has gone");
        }
    }
}
