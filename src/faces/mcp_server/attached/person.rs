//! One person at a prompt: their cells, and all that they see.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::sync::CancellationToken;

use super::{AttachedPeople, waiting};
use crate::approval::{GivenGrant, GrantLife, PastDecision, question};
use crate::faces::mcp_server::open_session::OpenSession;
use crate::faces::mcp_server::streams::ClientStreams;
use crate::faces::people::{CellAuthor, GrantOffer, PersonMessage, SessionMessage, ShownCall, StandingGrant};
use crate::ground::text::{describe, readable};
use crate::kernels::kernel::{CodeInquiry, CodeInsight, PythonError};
use crate::kernels::output::{UnreadText, late_section};
use crate::session::{
    Cell, CellEnd, CellEnding, CellRequester, Error, Outcome, Session, SessionEvent, UndoTarget,
    WatcherMailbox,
};

/// The longest line from a prompt, in bytes: a script may be long.
const LINE_BYTES: usize = 16 * 1024 * 1024;

/// The time that a person's cell may run: they can interrupt it.
const TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// From this length on all output is kept in a file too, in characters.
const OUTPUT_CHARS: usize = 50_000;

/// The time that a cell may take from leaving the queue to being with the kernel, so that it is not said to wait then.
const BEGINNING: Duration = Duration::from_millis(100);

/// The number of answers that may wait to be written.
const ANSWERS: usize = 64;

/// The reason if nobody can be asked about a person's cell.
const NOBODY: &str = "nobody is at the prompt of `ipybox attach`";

/// Serves a person until they leave, are too slow, or `closed` is cancelled.
pub(in crate::faces::mcp_server) async fn serve<R, W>(
    attached: &Arc<AttachedPeople>,
    own: OpenSession,
    ClientStreams { input, output }: ClientStreams<R, W>,
    rights: PersonRights,
    closed: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (presence, open) = attached.arrive(rights.can_answer);
    let mailbox = attached.audience.join();
    open.into_iter().for_each(|question| mailbox.put(question));
    let (answers, answered) = mpsc::channel(ANSWERS);
    let person = Arc::new(Person {
        attached: Arc::clone(attached),
        own,
        number: presence.number,
        shown: rights.shown,
        running: Mutex::default(),
        answers,
    });
    let reading = Arc::clone(&person).read(input);
    let served = tokio::select! {
        read = reading => read,
        written = write(output, &person, &mailbox, answered) => written,
        () = closed.cancelled() => Ok(()),
    };
    person.interrupt();
    served
}

/// A person's part in the session.
#[derive(Debug, Clone, Copy)]
pub(in crate::faces::mcp_server) struct PersonRights {
    /// Those who cannot answer are asked nothing.
    pub(in crate::faces::mcp_server) can_answer: bool,
    pub(in crate::faces::mcp_server) shown: ShownEvents,
}

/// The events that a person sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::faces::mcp_server) enum ShownEvents {
    All,
    /// Questions and decisions, but neither code nor output.
    WithoutCells,
}

impl ShownEvents {
    fn has(self, event: &SessionEvent) -> bool {
        let is_of_cell = matches!(
            event,
            SessionEvent::Began { .. }
                | SessionEvent::Text { .. }
                | SessionEvent::LeftOut { .. }
                | SessionEvent::Ended { .. }
        );
        self == Self::All || !is_of_cell
    }
}

struct Person {
    attached: Arc<AttachedPeople>,
    /// The session of the client, and its cells.
    own: OpenSession,
    number: u64,
    shown: ShownEvents,
    /// Ends the person's cell, as long as there is one.
    running: Mutex<Option<CancellationToken>>,
    /// The answers that are to be written beside the events of the session.
    answers: mpsc::Sender<SessionMessage>,
}

impl Person {
    fn session(&self) -> &Session {
        &self.own.session
    }

    async fn read(self: Arc<Self>, input: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut lines = FramedRead::new(input, LinesCodec::new_with_max_length(LINE_BYTES));
        while let Some(line) = lines.next().await {
            let said = serde_json::from_str(&line.map_err(io::Error::other)?)?;
            match said {
                PersonMessage::Run { code } => self.run(code),
                PersonMessage::Undo { cells } => drop(tokio::spawn(Arc::clone(&self).undo(cells))),
                PersonMessage::Interrupt => self.interrupt(),
                PersonMessage::Answer { question, answer, label } => {
                    // How it was decided is reported to all, this person included.
                    self.attached.answer(question, answer, label, self.number);
                }
                PersonMessage::Complete { id, code, cursor } => {
                    let inquiry = CodeInquiry::Completions { code, cursor };
                    tokio::spawn(Arc::clone(&self).inquire(id, inquiry));
                }
                PersonMessage::Check { id, code } => {
                    tokio::spawn(Arc::clone(&self).inquire(id, CodeInquiry::Completeness { code }));
                }
                PersonMessage::Revoke { grant } => {
                    if !self.session().revoke_grant(grant) {
                        tracing::debug!(grant, "a grant was to be revoked that has ended");
                    }
                }
                PersonMessage::AskAll => self.attached.ask_all(self.number),
                PersonMessage::Look { is_looking } => self.attached.look(self.number, is_looking),
                PersonMessage::Changes => drop(tokio::spawn(Arc::clone(&self).show_changes(None))),
                PersonMessage::Settle { copy, action, seen } => {
                    let person = Arc::clone(&self);
                    tokio::spawn(async move {
                        let words = waiting::settle(person.session(), copy, action, seen).await;
                        person.show_changes(Some(words)).await;
                    });
                }
                PersonMessage::History => {
                    let decisions = self.session().decisions().await;
                    // Fails only if the person has left.
                    self.answers.send(SessionMessage::History { decisions }).await.ok();
                }
            }
        }
        Ok(())
    }

    /// The grants that hold.
    fn grants(&self) -> Vec<StandingGrant> {
        let granted = |given: GivenGrant| {
            let is_of_cell = given.grant.life() == GrantLife::Cell;
            StandingGrant::new(given.id, given.left, given.grant.to_string(), is_of_cell)
        };
        self.session().grants().into_iter().map(granted).collect()
    }

    fn interrupt(&self) {
        let running = self.running.lock().clone();
        if let Some(running) = running {
            running.cancel();
        }
    }

    /// Runs a cell of the person's, one at a time.
    fn run(self: &Arc<Self>, code: String) {
        let cancel = self.session().cell_token();
        {
            let mut running = self.running.lock();
            if running.is_some() {
                return;
            }
            *running = Some(cancel.clone());
        }
        let person = Arc::clone(self);
        tokio::spawn(async move {
            let _open = person.own.begin_cell();
            let given_up = cancel.clone();
            let unread = Arc::new(UnreadText::new(0));
            let cell = Cell {
                code,
                timeout: TIMEOUT,
                max_output_chars: OUTPUT_CHARS,
                cancel,
                chunks: None,
                // Says whether it has begun.
                unread: Some(Arc::clone(&unread)),
                approver: person.attached.approver(NOBODY),
                client: None,
                has_views: false,
                author: CellRequester::Person(person.number),
                id: None,
            };
            let pending = person.session().execute(cell).await;
            let taken_out = async {
                given_up.cancelled().await;
                if tokio::time::timeout(BEGINNING, unread.begun()).await.is_ok() {
                    std::future::pending().await
                }
            };
            let outcome = tokio::select! {
                outcome = pending.outcome() => outcome,
                // What is cancelled in the queue never runs, and another cell may keep it there for long.
                () = taken_out => Ok(Outcome::not_run(CellEnding::NotRun)),
            };
            if let Ok(outcome) = &outcome
                && !matches!(outcome.end, CellEnding::NotRun)
            {
                person.attached.ran(outcome);
            }
            *person.running.lock() = None;
            // Fails only if the person has left.
            person.answers.send(done(&outcome)).await.ok();
        });
    }

    /// Shows the changes that wait in copies of the workspace.
    async fn show_changes(self: Arc<Self>, note: Option<String>) {
        let _turn = self.attached.looking.lock().await;
        let copies = self.session().copies();
        let found = tokio::task::spawn_blocking(move || waiting::waiting(&copies)).await;
        let (copies, note) = match found.map_err(io::Error::other).flatten() {
            Ok(copies) => (copies, note),
            Err(error) => (Vec::new(), Some(format!("The changes cannot be read: {error}"))),
        };
        // Fails only if the person has left.
        self.answers.send(SessionMessage::Changes { copies, note }).await.ok();
    }

    /// Undoes the newest cells of the kernel.
    async fn undo(self: Arc<Self>, cells: usize) {
        let undone = match self.session().undo(UndoTarget::Cells(cells), &None).await {
            Ok(undoing) => undoing.outcome().await.map_err(|error| describe(&error).to_string()),
            Err(error) => Err(describe(&error).to_string()),
        };
        let (is_ok, words) = match undone {
            Ok(undone) => (true, undone.words()),
            Err(error) => (false, format!("Failed to {error}")),
        };
        let mut number = None;
        if is_ok {
            self.attached.undid(&words);
            number = Some(self.attached.audience.last_number());
        }
        // Fails only if the person has left.
        self.answers.send(SessionMessage::Done { is_ok, notes: vec![words], number }).await.ok();
    }

    async fn inquire(self: Arc<Self>, id: u64, inquiry: CodeInquiry) {
        let is_completion = matches!(inquiry, CodeInquiry::Completions { .. });
        let answer = match self.session().inquire(inquiry).await {
            Some(CodeInsight::Completions(found)) => {
                SessionMessage::Completions { id, matches: found.matches, before: found.start }
            }
            Some(CodeInsight::Completeness(completeness)) => {
                SessionMessage::Checked { id, is_complete: completeness.is_complete() }
            }
            Some(CodeInsight::Environment(_) | CodeInsight::Effort(_)) | None if is_completion => {
                SessionMessage::Completions { id, matches: Vec::new(), before: 0 }
            }
            Some(CodeInsight::Environment(_) | CodeInsight::Effort(_)) | None => {
                SessionMessage::Checked { id, is_complete: None }
            }
        };
        // Fails only if the person has left.
        self.answers.send(answer).await.ok();
    }

    /// An event as this person sees it.
    fn heard(&self, event: SessionEvent) -> SessionMessage {
        match event {
            SessionEvent::Began { cell, number, author, code } => {
                let by = match author {
                    CellRequester::Person(number) if number == self.number => CellAuthor::You,
                    CellRequester::Person(_) => CellAuthor::Another,
                    CellRequester::Agent | CellRequester::Ourselves => CellAuthor::Agent,
                };
                SessionMessage::Began { cell, number, by, code: code.to_string() }
            }
            SessionEvent::Text { cell, text } => SessionMessage::Text { cell, text },
            SessionEvent::LeftOut { cell, bytes } => SessionMessage::LeftOut { cell, bytes },
            SessionEvent::Ended { cell, end, error } => {
                let CellEnd { words, images, files, file, .. } = &*end;
                let all = |paths: &[PathBuf]| paths.iter().map(|path| readable(path)).collect();
                SessionMessage::Ended {
                    cell,
                    error: error.as_deref().map(PythonError::text),
                    words: words.clone(),
                    images: all(images),
                    files: all(files),
                    file: file.as_deref().map(readable),
                }
            }
            SessionEvent::Asked { question: number, action } => {
                let text = question(&action)
                    .unwrap_or_else(|_| format!("{}.{}(…)", action.server_name, action.tool_name));
                SessionMessage::Asked { question: number, text, call: ShownCall::of(&action) }
            }
            SessionEvent::Decided { question, how } => {
                SessionMessage::Decided { question, how: how.to_owned() }
            }
            SessionEvent::Ruled { action, how } => {
                SessionMessage::Ruled { decision: PastDecision::made_now(&action, how.to_string()) }
            }
            SessionEvent::Together { questions, text } => {
                SessionMessage::Together { questions: questions.to_vec(), text: text.to_string() }
            }
            SessionEvent::Question(question) => SessionMessage::Question {
                question: question.number,
                text: question.text.clone(),
                grant: question.grant.clone().map(|(choice, covers)| GrantOffer::new(choice, covers)),
                outside: question.outside.clone(),
                call: ShownCall::of(&question.action),
                scope: question.scope.to_owned(),
                left_ms: question.until.map(|until| {
                    let left = until.saturating_duration_since(Instant::now());
                    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
                }),
            },
        }
    }
}

/// Writes what happens. The end of a person's cell comes after all that it has shown.
async fn write(
    mut output: impl AsyncWrite + Unpin,
    person: &Person,
    mailbox: &WatcherMailbox,
    mut answers: mpsc::Receiver<SessionMessage>,
) -> io::Result<()> {
    let number = person.attached.audience.last_number();
    let mut changes = person.session().changes_of_grants();
    changes.mark_changed();
    let mut clients = person.attached.client.subscribe();
    clients.mark_changed();
    let mut next = Some(SessionMessage::Ready { number });
    let mut sent = Vec::new();
    loop {
        if let Some(heard) = next {
            let mut line = serde_json::to_vec(&heard)?;
            line.push(b'\n');
            output.write_all(&line).await?;
        }
        next = tokio::select! {
            biased;
            event = mailbox.next() => match event {
                Some(event) => person.shown.has(&event).then(|| person.heard(event)),
                None => return Err(io::Error::new(io::ErrorKind::TimedOut, "the person reads too slowly")),
            },
            Ok(()) = changes.changed() => {
                let grants = person.grants();
                (grants != sent).then(|| {
                    sent.clone_from(&grants);
                    SessionMessage::Grants { grants }
                })
            }
            Ok(()) = clients.changed() => Some(SessionMessage::About {
                workspace: person.session().workspace().display().to_string(),
                client: clients.borrow().clone(),
            }),
            Some(answer) = answers.recv() => Some(answer),
        };
    }
}

/// The end of a person's cell, beside its output.
fn done(outcome: &Result<Outcome, Error>) -> SessionMessage {
    match outcome {
        Ok(outcome) => {
            let mut notes = outcome.notes.clone();
            notes.extend(late_section(&outcome.late.excerpt));
            if matches!(outcome.end, CellEnding::NotRun | CellEnding::Reset) {
                notes.push(outcome.words());
            }
            SessionMessage::Done {
                is_ok: matches!(outcome.end, CellEnding::Finished) && outcome.error.is_none(),
                notes,
                number: None,
            }
        }
        Err(error) => {
            let notes = vec![format!("Failed to {}", describe(error))];
            SessionMessage::Done { is_ok: false, notes, number: None }
        }
    }
}
