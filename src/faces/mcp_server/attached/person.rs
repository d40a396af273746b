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

use super::Attached;
use crate::approval::{GivenGrant, GrantLife, PastDecision, question};
use crate::faces::mcp_server::sessions::OpenSession;
use crate::faces::mcp_server::streams::ClientStreams;
use crate::faces::people::{CellAuthor, GrantOffer, Granted, Heard, Said, ShownCall};
use crate::ground::text::{describe, readable};
use crate::kernels::kernel::{Inquiry, Insight, PythonError};
use crate::kernels::output::{Unread, late_section};
use crate::session::{Author, Cell, CellEnd, End, Error, Mailbox, Outcome, Session, SessionEvent};

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
    attached: &Arc<Attached>,
    own: OpenSession,
    ClientStreams { input, output }: ClientStreams<R, W>,
    can_answer: bool,
    closed: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (presence, open) = attached.arrive(can_answer);
    let mailbox = attached.audience.join();
    open.into_iter().for_each(|question| mailbox.put(question));
    let (answers, answered) = mpsc::channel(ANSWERS);
    let person = Arc::new(Person {
        attached: Arc::clone(attached),
        own,
        number: presence.number,
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

struct Person {
    attached: Arc<Attached>,
    /// The session of the client, and its cells.
    own: OpenSession,
    number: u64,
    /// Ends the person's cell, as long as there is one.
    running: Mutex<Option<CancellationToken>>,
    /// The answers that are to be written beside the events of the session.
    answers: mpsc::Sender<Heard>,
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
                Said::Run { code } => self.run(code),
                Said::Interrupt => self.interrupt(),
                Said::Answer { question, answer, label } => {
                    // How it was decided is reported to all, this person included.
                    self.attached.answer(question, answer, label, self.number);
                }
                Said::Complete { id, code, cursor } => {
                    let inquiry = Inquiry::Completions { code, cursor };
                    tokio::spawn(Arc::clone(&self).inquire(id, inquiry));
                }
                Said::Check { id, code } => {
                    tokio::spawn(Arc::clone(&self).inquire(id, Inquiry::Completeness { code }));
                }
                Said::Revoke { grant } => {
                    if !self.session().revoke_grant(grant) {
                        tracing::debug!(grant, "a grant was to be revoked that has ended");
                    }
                }
                Said::AskAll => self.attached.ask_all(self.number),
                Said::Look { is_looking } => self.attached.look(self.number, is_looking),
                Said::History => {
                    let decisions = self.session().decisions().await;
                    // Fails only if the person has left.
                    self.answers.send(Heard::History { decisions }).await.ok();
                }
            }
        }
        Ok(())
    }

    /// The grants that hold.
    fn grants(&self) -> Vec<Granted> {
        let granted = |given: GivenGrant| {
            let is_of_cell = given.grant.life() == GrantLife::Cell;
            Granted::new(given.id, given.left, given.grant.to_string(), is_of_cell)
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
            let _open = person.own.cells.token();
            let (given_up, unread) = (cancel.clone(), Arc::new(Unread::new(0)));
            let cell = Cell {
                code,
                timeout: TIMEOUT,
                max_output_chars: OUTPUT_CHARS,
                cancel,
                chunks: None,
                // Says whether it has begun.
                unread: Some(Arc::clone(&unread)),
                approver: person.attached.approver(NOBODY),
                has_views: false,
                author: Author::Person(person.number),
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
                () = taken_out => Ok(Outcome::not_run(End::NotRun)),
            };
            if let Ok(outcome) = &outcome
                && !matches!(outcome.end, End::NotRun)
            {
                person.attached.ran(outcome);
            }
            *person.running.lock() = None;
            // Fails only if the person has left.
            person.answers.send(done(&outcome)).await.ok();
        });
    }

    async fn inquire(self: Arc<Self>, id: u64, inquiry: Inquiry) {
        let is_completion = matches!(inquiry, Inquiry::Completions { .. });
        let answer = match self.session().inquire(inquiry).await {
            Some(Insight::Completions(found)) => {
                Heard::Completions { id, matches: found.matches, before: found.start }
            }
            Some(Insight::Completeness(completeness)) => {
                Heard::Checked { id, is_complete: completeness.is_complete() }
            }
            None if is_completion => Heard::Completions { id, matches: Vec::new(), before: 0 },
            None => Heard::Checked { id, is_complete: None },
        };
        // Fails only if the person has left.
        self.answers.send(answer).await.ok();
    }

    /// An event as this person sees it.
    fn heard(&self, event: SessionEvent) -> Heard {
        match event {
            SessionEvent::Began { cell, number, author, code } => {
                let by = match author {
                    Author::Person(number) if number == self.number => CellAuthor::You,
                    Author::Person(_) => CellAuthor::Another,
                    Author::Agent | Author::Ourselves => CellAuthor::Agent,
                };
                Heard::Began { cell, number, by, code: code.to_string() }
            }
            SessionEvent::Text { cell, text } => Heard::Text { cell, text },
            SessionEvent::LeftOut { cell, bytes } => Heard::LeftOut { cell, bytes },
            SessionEvent::Ended { cell, end, error } => {
                let CellEnd { words, images, files, file, .. } = &*end;
                let all = |paths: &[PathBuf]| paths.iter().map(|path| readable(path)).collect();
                Heard::Ended {
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
                Heard::Asked { question: number, text, call: ShownCall::of(&action) }
            }
            SessionEvent::Decided { question, how } => Heard::Decided { question, how: how.to_owned() },
            SessionEvent::Ruled { action, how } => {
                Heard::Ruled { decision: PastDecision::made_now(&action, how.to_string()) }
            }
            SessionEvent::Together { questions, text } => {
                Heard::Together { questions: questions.to_vec(), text: text.to_string() }
            }
            SessionEvent::Question(question) => Heard::Question {
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
    mailbox: &Mailbox,
    mut answers: mpsc::Receiver<Heard>,
) -> io::Result<()> {
    let number = person.attached.audience.last_number();
    let mut changes = person.session().changes_of_grants();
    changes.mark_changed();
    let mut clients = person.attached.client.subscribe();
    clients.mark_changed();
    let (mut next, mut sent) = (Some(Heard::Ready { number }), Vec::new());
    loop {
        if let Some(heard) = next {
            let mut line = serde_json::to_vec(&heard)?;
            line.push(b'\n');
            output.write_all(&line).await?;
        }
        next = tokio::select! {
            biased;
            event = mailbox.next() => match event {
                Some(event) => Some(person.heard(event)),
                None => return Err(io::Error::new(io::ErrorKind::TimedOut, "the person reads too slowly")),
            },
            Ok(()) = changes.changed() => {
                let grants = person.grants();
                (grants != sent).then(|| {
                    sent.clone_from(&grants);
                    Heard::Grants { grants }
                })
            }
            Ok(()) = clients.changed() => Some(Heard::About {
                workspace: person.session().workspace().display().to_string(),
                client: clients.borrow().clone(),
            }),
            Some(answer) = answers.recv() => Some(answer),
        };
    }
}

/// The end of a person's cell, beside its output.
fn done(outcome: &Result<Outcome, Error>) -> Heard {
    match outcome {
        Ok(outcome) => {
            let mut notes = outcome.notes.clone();
            notes.extend(late_section(&outcome.late.excerpt));
            if matches!(outcome.end, End::NotRun | End::Reset) {
                notes.push(outcome.end.words());
            }
            Heard::Done { is_ok: matches!(outcome.end, End::Finished) && outcome.error.is_none(), notes }
        }
        Err(error) => Heard::Done { is_ok: false, notes: vec![format!("Failed to {}", describe(error))] },
    }
}
