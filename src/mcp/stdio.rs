//! A stdio server: its process, from the start to the last words.
//!
//! Not `TokioChildProcess`: that one hides the exit status, keeps rmcp's line limit and kills the
//! leader alone.

use std::io;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::Signal;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::filled::FilledStdio;
use super::{Error, diagnosis};
use crate::env::{Secrets, Variables};
use crate::process::{GroupLeader, Tail};

/// How long a server may take to end once its stdin is closed, as the protocol asks it to.
const STDIN_GRACE: Duration = Duration::from_secs(2);
/// How long it may take after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long one may take after SIGTERM that is still starting. `npx` finishes the downloads that it has begun, then removes
/// them; killed before, it leaves a copy of the server behind that never runs.
const START_GRACE: Duration = Duration::from_secs(60);
/// How long stderr is read after the group was killed: only a process that left it can hold it open.
const STDERR_GRACE: Duration = Duration::from_millis(200);
/// The longest message, in bytes: a server must be able to return a large file, not to fill our memory.
const LINE_LIMIT: usize = 256 * 1024 * 1024;
/// How much of stdout's beginning is kept to show what a program writes that does not speak MCP.
const OPENING_BYTES: usize = 4_000;
/// How much of it is shown. Less than is kept: a secret that is cut in two would not be recognised.
const OPENING_CHARS: usize = 300;

/// The pipes of a stdio server, as rmcp wants them.
pub(super) type Pipes = AsyncRwTransport<RoleClient, Stdout, ChildStdin>;

/// The process of a stdio server; dropping it kills the process and what it started.
pub(super) struct Process {
    leader: GroupLeader,
    stderr_task: JoinHandle<()>,
    account: Account,
}

/// What a server writes, as far as it is kept. Clones are of the same server.
#[derive(Clone)]
pub(super) struct Account {
    stderr: Tail,
    opening: Arc<Mutex<Opening>>,
    secrets: Secrets,
    /// The names of its variables.
    variables: Arc<[String]>,
}

/// What a server left behind: how it exited and what it wrote last. Secrets are redacted.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastWords {
    status: Option<ExitStatus>,
    stderr: String,
    note: Option<String>,
    hint: Option<String>,
}

/// How a server's stdout begins, and what is wrong with it.
#[derive(Default)]
struct Opening {
    bytes: Vec<u8>,
    is_too_long: bool,
}

/// A server's stdout. Notes how it begins, and fails on a line without end.
pub(super) struct Stdout {
    inner: ChildStdout,
    opening: Arc<Mutex<Opening>>,
    line_bytes: usize,
}

impl Process {
    /// Starts the server `name` in `directory`, in a process group of its own.
    pub(super) fn start(
        name: &str,
        parameters: &FilledStdio,
        directory: &std::path::Path,
        variables: &Variables,
        secrets: Secrets,
    ) -> Result<(Self, Pipes), Error> {
        let directory = parameters.cwd.as_ref().map_or(directory.to_owned(), |cwd| directory.join(cwd));
        let shown = |path: &std::path::Path| secrets.redact(&path.to_string_lossy()).into();
        if !directory.is_dir() {
            return Err(Error::WorkingDirectory { path: shown(&directory) });
        }
        let mut environment = variables.for_mcp_server();
        environment.extend(parameters.env.clone());
        let mut command = Command::new(&parameters.command);
        command
            .args(&parameters.args)
            .env_clear()
            .envs(&environment)
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let shown = secrets.redact(&parameters.command);
        let mut leader = GroupLeader::spawn(&mut command).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => Error::CommandNotFound { command: shown.clone() },
            _ => Error::Spawn { command: shown.clone(), cause },
        })?;
        leader.guard_gently();
        let pipes = (leader.take_stdin(), leader.take_stdout(), leader.take_stderr());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            let cause = io::Error::other("a pipe to it is missing");
            return Err(Error::Spawn { command: shown, cause });
        };
        let edit = secrets.clone();
        let (stderr, stderr_task) =
            Tail::follow_edited(stderr, name.to_owned(), move |line| edit.redact(&line));
        let opening = Arc::<Mutex<Opening>>::default();
        let stdout = Stdout { inner: stdout, opening: opening.clone(), line_bytes: 0 };
        // rmcp drops a line over its limit and lets the call wait for ever; `Stdout` ends the connection.
        let pipes = AsyncRwTransport::new(stdout, stdin).with_max_line_length(usize::MAX);
        let account = Account { stderr, opening, secrets, variables: environment.into_keys().collect() };
        Ok((Self { leader, stderr_task, account }, pipes))
    }

    /// What it writes.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// It has started, so that there is no installation that could be left half done.
    pub(super) fn has_started(&self) {
        self.leader.guard_firmly();
    }

    /// Waits until the leader has exited. Cancellation safe.
    pub(super) async fn exited(&mut self) {
        if let Err(error) = self.leader.wait().await {
            tracing::warn!(%error, "could not wait for an MCP server");
        }
    }

    /// Kills every process of the group; [`end`](Self::end) still has to be awaited.
    pub(super) fn kill(&self) {
        self.leader.signal(Signal::KILL);
    }

    /// Lets the server end by itself, its stdin being closed; then SIGTERM; then SIGKILL to its group.
    pub(super) async fn end(mut self) -> LastWords {
        let mut status = timeout(STDIN_GRACE, self.leader.wait()).await;
        if status.is_err() {
            self.leader.signal(Signal::TERM);
            status = timeout(TERM_GRACE, self.leader.wait()).await;
        }
        self.kill_rest(status.ok().and_then(Result::ok)).await
    }

    /// As [`end`](Self::end), of a server that is still starting: an installer does not look at its stdin, and is given
    /// the time to leave its cache whole.
    pub(super) async fn end_start(mut self) -> LastWords {
        self.leader.ask_to_end();
        let status = timeout(START_GRACE, self.leader.wait()).await;
        self.kill_rest(status.ok().and_then(Result::ok)).await
    }

    async fn kill_rest(mut self, status: Option<ExitStatus>) -> LastWords {
        self.leader.kill().await;
        // Elapsed: something that left the group holds stderr. What it wrote so far is all we tell.
        if timeout(STDERR_GRACE, &mut self.stderr_task).await.is_err() {
            self.stderr_task.abort();
        }
        LastWords { status, ..self.account.words() }
    }
}

impl Account {
    /// What it has written so far.
    pub(super) fn words(&self) -> LastWords {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let stderr = self.stderr.text();
        let hint = diagnosis::hint(&stderr, &self.variables);
        LastWords { status: None, stderr, note: opening.note(&self.secrets), hint }
    }

    /// The newest line on stderr.
    pub(super) fn last_line(&self) -> Option<String> {
        self.stderr.last_line()
    }
}

impl LastWords {
    /// Forgets how it exited: it was made to.
    pub(super) fn without_status(self) -> Self {
        Self { status: None, ..self }
    }
}

impl std::fmt::Display for LastWords {
    /// Continues a sentence: ` (exit status: 1)`, then lines that quote the server. Empty if nothing is known.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(status) = self.status {
            write!(formatter, " ({status})")?;
        }
        if let Some(note) = &self.note {
            write!(formatter, "\n{note}")?;
        }
        if !self.stderr.is_empty() {
            write!(formatter, "\nits last lines on stderr:\n{}", self.stderr)?;
        }
        if let Some(hint) = &self.hint {
            write!(formatter, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl Opening {
    fn note(&self, secrets: &Secrets) -> Option<String> {
        if self.is_too_long {
            return Some(format!("it wrote a message of more than {LINE_LIMIT} bytes"));
        }
        let text = secrets.clean(String::from_utf8_lossy(&self.bytes).trim());
        let is_message = text.is_empty() || text.starts_with('{') || text.starts_with('[');
        let shown: String = text.chars().take(OPENING_CHARS).collect();
        (!is_message).then(|| format!("it wrote to stdout what is not an MCP message:\n{shown}"))
    }
}

impl AsyncRead for Stdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        self.line_bytes = match read.iter().rposition(|&byte| byte == b'\n') {
            Some(newline) => read.len() - newline - 1,
            None => self.line_bytes + read.len(),
        };
        let is_too_long = self.line_bytes > LINE_LIMIT;
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let room = OPENING_BYTES - opening.bytes.len();
        opening.bytes.extend_from_slice(&read[..read.len().min(room)]);
        opening.is_too_long |= is_too_long;
        if is_too_long { Poll::Ready(Err(io::ErrorKind::InvalidData.into())) } else { Poll::Ready(Ok(())) }
    }
}
