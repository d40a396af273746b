//! A session that serves its clients, one after the other.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer_news::{note_on_policy, notes_on_dotenv};
use super::approver_questions::ApproverQuestions;
use super::arrivals::ArrivalTransport;
use super::attached::{self, AttachedPeople, PersonRights};
use super::handler::{ClientConnection, ConnectionHandler};
use super::line_transport::LineTransport;
use super::open_session::OpenSession;
use super::receipt::ReadReceipt;
use super::server::McpServer;
use super::sessions::open_session;
use super::streams::ClientStreams;
use super::traced_handler::TracedHandler;
use crate::approval::APPROVER_QUESTIONS;
use crate::config::Config;
use crate::faces::people::page::{self, ApprovalPage, PageNews};
use crate::ground::telemetry;
use crate::ground::text::{describe, first_few};
use crate::session::{Cell, DEFAULT_TIMEOUT, LimitUse, Outcome, Session, StartError};

/// The time in which the calls of a client that is gone are put aside. They need no time, but for writing an answer to a file.
const PUT_ASIDE: Duration = Duration::from_secs(5);

/// The number of variables that a new client is shown.
const SHOWN_VARIABLES: usize = 60;

/// The amount that may be on its way to or from the page, in bytes.
const PAGE_BYTES: usize = 256 * 1024;

/// The number of characters of output that nobody has seen, which a new client is shown.
const SHOWN_CHARS: usize = 5_000;

/// Prints the names of variables that code has set, as `%who_ls` finds them.
const VARIABLES: &str = "print(*__import__('IPython').get_ipython().run_line_magic('who_ls', ''), sep='\\n')";

/// A session and its MCP server.
pub(crate) struct ServedSession {
    server: Arc<McpServer>,
    connections: AtomicU64,
    begun: Instant,
    /// Cancelled when the session ends.
    ended: CancellationToken,
}

/// The receiver of the codes of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApprovalCodes {
    /// Whoever reads stderr, and the client.
    OnStderr,
    /// The client alone: stderr is a file, which code that is not in a sandbox can read.
    ClientAlone,
}

/// Why serving ended before the client or a signal ended it, or never began.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session could not be opened. Nothing has been served.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Signals cannot be handled.
    #[error("handle signals")]
    Signals(#[source] std::io::Error),
    /// There is no page to decide on.
    #[error(transparent)]
    Page(page::Error),
    /// The client did not begin as the protocol says.
    #[error("begin a session with the MCP client: {0}")]
    Session(String),
}

impl ServedSession {
    /// Opens the session.
    pub(crate) async fn open(config: &Config, codes: ApprovalCodes) -> Result<Self, Error> {
        let server = Arc::new(McpServer::new(open_session(config, None).await?, config));
        // Where an application starts ipybox, nobody sees what it writes to stderr.
        server.news.add_all(notes_on_dotenv(config.variables().problems()));
        server.news.add_all(note_on_policy(&config.site).into_iter().collect());
        let ended = CancellationToken::new();
        if config.approval.page {
            server.open_page(codes, config.session.clone(), ended.clone()).await?;
        }
        Ok(Self { server, connections: AtomicU64::new(0), begun: Instant::now(), ended })
    }

    /// Serves a client until it ends its input or `closed` is cancelled. What the client has begun goes on if it is
    /// `outlived_by` the session, whose token this is.
    pub(crate) async fn client<R, W>(
        &self,
        streams: ClientStreams<R, W>,
        closed: CancellationToken,
        outlived_by: Option<CancellationToken>,
    ) -> Result<(), Error>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let calls = TaskTracker::new();
        let is_outlived = outlived_by.is_some();
        let connection =
            ClientConnection { number, closed: closed.clone(), outlived_by, calls: calls.clone() };
        let receipt = Arc::<ReadReceipt>::default();
        let lines = LineTransport::new(streams.input, streams.output, Arc::clone(&receipt));
        let transport = ArrivalTransport::new(lines, closed.clone());
        let handler = ConnectionHandler { server: Arc::clone(&self.server), connection };
        // What rmcp ends cancels its requests; those of a session that is outlived must be put aside before.
        let end = if is_outlived { CancellationToken::new() } else { closed.clone() };
        let is_closed = closed.clone();
        let ending = end.clone();
        let open = calls.clone();
        tokio::spawn(async move {
            is_closed.cancelled().await;
            open.close();
            open.wait().await;
            ending.cancel();
        });
        let mut session = telemetry::TracedConnection::of_client(&self.server.link);
        let ended = match TracedHandler(handler).serve_with_ct(transport, end).await {
            Ok(running) => {
                running.waiting().await.map(drop).map_err(|error| Error::Session(error.to_string()))
            }
            // We are to end, or the client went away, before it said anything: nothing is wrong.
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
            Err(error) => Err(Error::Session(error.to_string())),
        };
        closed.cancel();
        if ended.is_err() {
            session.fails("disconnected");
        }
        drop(session);
        if is_outlived {
            if tokio::time::timeout(PUT_ASIDE, calls.wait()).await.is_err() {
                tracing::warn!("calls of a client that is gone are still under way");
            }
            self.server.ledger.put_aside(number, receipt.is_complete());
        }
        ended
    }

    /// Whether there has been a client.
    pub(crate) fn has_served(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    /// The notebook of the client's own session.
    pub(crate) fn notebook(&self) -> Option<&Path> {
        self.server.sessions.own().session.notebook()
    }

    /// Whether a client has called a tool, or a person has run a cell.
    pub(crate) fn has_worked(&self) -> bool {
        self.server.ledger.has_begun() || self.server.attached.has_worked()
    }

    /// The session for a person's prompt: the client's own, or a copy that ends with the prompt.
    ///
    /// # Errors
    /// It cannot be copied; the text says why.
    pub(crate) async fn prompt(&self, is_copy: bool) -> Result<PromptSession, String> {
        let server = &self.server;
        let own = server.sessions.own();
        if !is_copy {
            return Ok(PromptSession { attached: Arc::clone(&server.attached), open: own.clone(), is_copy });
        }
        // Opening is a large future.
        let branched = Box::pin(own.session.branch()).await;
        let (branch, _notes) = branched.map_err(|error| describe(&error).to_string())?;
        let open = OpenSession::new(Arc::new(branch), CancellationToken::new());
        let timeout = server.sessions.config().approval.timeout;
        let attached = Arc::new(AttachedPeople::new(Arc::clone(open.session.audience()), timeout));
        Ok(PromptSession { attached, open, is_copy })
    }

    /// The questions to approvers whom rules name, from now on; `None` if somebody has them already.
    pub(crate) fn approver_questions(&self) -> Option<ApproverQuestions> {
        // The user can decide on a page at any time.
        self.server.attached.expect_people();
        let (line, asked) = mpsc::channel(APPROVER_QUESTIONS);
        self.server.sessions.own().session.ask_approvers(line).then(|| ApproverQuestions::new(asked))
    }

    /// Serves a page of the session's user that shows questions and no cells, until it leaves or `closed` is cancelled.
    pub(crate) async fn show_questions<R, W>(
        &self,
        streams: ClientStreams<R, W>,
        closed: CancellationToken,
    ) -> io::Result<()>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let own = self.server.sessions.own().clone();
        let shown = attached::ShownEvents::WithoutCells;
        attached::serve(&self.server.attached, own, streams, PersonRights { can_answer: true, shown }, closed)
            .await
    }

    /// Has the next answer say this first.
    pub(crate) fn add_note(&self, note: String) {
        self.server.news.add(note);
    }

    /// Has the next answer say that another client has taken the session over, after `alone_for`, and what it finds.
    pub(crate) fn note_takeover(&self, alone_for: Duration) {
        let server = &self.server;
        let about = format!(
            "[This session was taken over as it was: it has run for {}, the last {} without a client.",
            duration(self.begun.elapsed()),
            duration(alone_for)
        );
        let cells = server.ledger.summary();
        let mut cells = if cells.is_empty() { String::new() } else { format!("\n- {}", cells.join("\n- ")) };
        let others = server.sessions.others();
        if !others.is_empty() {
            cells.push_str(&format!("\n- Sessions beside it: `{}`", others.join("`, `")));
        }
        self.server.news.set_takeover(format!("{about}{cells}]"));
    }

    /// The session's activity, in words.
    pub(crate) fn activity(&self) -> SessionActivity {
        SessionActivity {
            seconds: self.begun.elapsed().as_secs(),
            open_cells: self.server.sessions.open_cells(),
            left: self.server.ledger.summary(),
            limits: self.server.sessions.limits(),
        }
    }

    /// Ends the kernel and the connections to servers. What calls have left to do is recorded until [`close`](Self::close).
    pub(crate) async fn stop(&self) {
        self.ended.cancel();
        self.server.sessions.stop().await;
    }

    /// Completes the record.
    pub(crate) async fn close(&self) {
        self.server.sessions.close().await;
    }
}

/// The activity of a session.
pub(crate) struct SessionActivity {
    /// Its age, in seconds.
    pub(crate) seconds: u64,
    /// The number of cells that run or are queued.
    pub(crate) open_cells: usize,
    /// The calls for which no client waits.
    pub(crate) left: Vec<String>,
    /// The limits around it, and what is in use.
    pub(crate) limits: Vec<LimitUse>,
}

impl McpServer {
    /// Opens a page on which people decide, until `ended` is cancelled.
    async fn open_page(
        self: &Arc<Self>,
        codes: ApprovalCodes,
        session: Option<String>,
        ended: CancellationToken,
    ) -> Result<(), Error> {
        let (ours, its) = tokio::io::duplex(PAGE_BYTES);
        let on_news = move |news| {
            if codes == ApprovalCodes::OnStderr {
                show_on_stderr(&news);
            }
        };
        let page = ApprovalPage::open(its, session, on_news).await.map_err(Error::Page)?;
        if codes == ApprovalCodes::OnStderr {
            say(&format!("calls are decided at {}, which asks for the code {}", page.url(), page.code()));
        }
        self.attached.keep_page(page);
        let server = Arc::clone(self);
        let (input, output) = tokio::io::split(ours);
        let streams = ClientStreams { input, output };
        tokio::spawn(async move {
            let own = server.sessions.own().clone();
            let rights = PersonRights { can_answer: true, shown: attached::ShownEvents::All };
            if let Err(error) = attached::serve(&server.attached, own, streams, rights, ended).await {
                tracing::warn!(%error, "the approval page is cut off from its session");
            }
        });
        Ok(())
    }

    /// After a takeover, asks the kernel what the new client should know, before the first call that is queued.
    pub(super) async fn ask_kernel_if_due(&self) {
        if self.news.is_due() {
            let pending = self.session().execute(question(self.session())).await;
            self.news.expect(tokio::spawn(async move {
                match pending.outcome().await {
                    Ok(outcome) => in_words(&outcome),
                    Err(error) => format!("[Its kernel cannot be used: {error}]"),
                }
            }));
        }
    }
}

/// The session that a person's prompt is for.
pub(crate) struct PromptSession {
    attached: Arc<AttachedPeople>,
    open: OpenSession,
    is_copy: bool,
}

impl PromptSession {
    /// Serves a person at a prompt until that person leaves or `closed` is cancelled. Those who cannot answer are asked
    /// nothing.
    pub(crate) async fn serve<R, W>(
        self,
        streams: ClientStreams<R, W>,
        can_answer: bool,
        closed: CancellationToken,
    ) -> io::Result<()>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let rights = PersonRights { can_answer, shown: attached::ShownEvents::All };
        let served = attached::serve(&self.attached, self.open.clone(), streams, rights, closed).await;
        if self.is_copy {
            self.open.session.close().await;
        }
        served
    }
}

fn show_on_stderr(news: &PageNews) {
    match news {
        PageNews::Entered(code) => {
            say(&format!("a browser has the page now; another one needs the code {code}"))
        }
        PageNews::Guessed => say(
            "there were wrong codes for the page; if they were not yours, another program guesses. The code stays the same",
        ),
        PageNews::Question(_) => {}
    }
}

fn say(words: &str) {
    // Nothing can be done for a user whose stderr is closed.
    writeln!(io::stderr(), "ipybox: {words}").ok();
}

/// The cell that lists the variables. A kernel that does not react in its time is killed: it has as much as a client's own.
fn question(session: &Session) -> Cell {
    let code = VARIABLES.to_owned();
    let cancel = session.cell_token();
    let why = "the names of variables are read without tools";
    Cell::ours(code, DEFAULT_TIMEOUT, SHOWN_CHARS, cancel, why)
}

fn in_words(outcome: &Outcome) -> String {
    // The text is the kernel's: names are letters, nothing else is believed.
    let is_name = |name: &&str| name.chars().all(|char| char.is_alphanumeric() || char == '_');
    let names: Vec<&str> = outcome.shown.text.excerpt.lines().filter(is_name).collect();
    let shown = first_few(names.iter().map(|name| format!("`{name}`")), SHOWN_VARIABLES);
    let mut words = outcome.notes.clone();
    if !outcome.late.excerpt.is_empty() {
        words.push(format!("Output since its last answer:\n{}", outcome.late.excerpt));
    }
    words.push(match (shown.is_empty(), outcome.error.is_none()) {
        (false, _) => format!("Variables of the session: {shown}."),
        (true, true) => "The session has no variables.".to_owned(),
        (true, false) => "The variables of the session could not be listed.".to_owned(),
    });
    format!("[{}]", words.join("\n"))
}

/// A duration for people.
fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
