//! A stdio server: its process, from the start to its last output.
//!
//! Not `TokioChildProcess`: that one hides the exit status and kills the leader alone.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::filled::FilledStdio;
use super::guard::ProgramStart;
use super::pipes::{ServerPipes, StdoutOpening};
use crate::connections::mcp_client::failure::{Error, LastWords};
use crate::connections::mcp_client::messages::ExpectedAnswers;
use crate::ground::process::{GroupLeader, OutputTail};
use crate::ground::text::Secrets;

/// The time that a server may take to end once its stdin is closed, as the protocol asks it to.
const STDIN_GRACE: Duration = Duration::from_secs(2);
/// The time that it may take after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// The time that a server which is still starting may take after SIGTERM. `npx` finishes the downloads that it has
/// begun, then removes them; killed before, it leaves a copy of the server behind that never runs.
const START_GRACE: Duration = Duration::from_secs(60);
/// The time that stderr is read after the group was killed: only a process that left it can hold it open.
const STDERR_GRACE: Duration = Duration::from_millis(200);

/// The process of a stdio server; dropping it kills the process and what it started.
pub(crate) struct ServerProcess {
    leader: GroupLeader,
    stderr_task: JoinHandle<()>,
    account: ServerOutput,
}

/// The kept output of a server. Clones share it.
#[derive(Clone)]
pub(crate) struct ServerOutput {
    stderr: OutputTail,
    opening: StdoutOpening,
    secrets: Secrets,
    /// The names of its variables.
    variables: Arc<[String]>,
}

impl ServerProcess {
    /// Starts the server `name`, in a process group of its own.
    pub(crate) fn start(
        name: &str,
        parameters: &FilledStdio,
        start: ProgramStart,
        secrets: Secrets,
        answers: ExpectedAnswers,
    ) -> Result<(Self, ServerPipes), Error> {
        let ProgramStart { program, directory, environment } = start;
        let mut command = Command::new(&program);
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
            OutputTail::follow_edited(stderr, name.to_owned(), move |line| edit.redact(&line));
        let opening = StdoutOpening::default();
        let pipes = ServerPipes::new(stdout, stdin, opening.clone(), answers);
        let account = ServerOutput { stderr, opening, secrets, variables: environment.into_keys().collect() };
        Ok((Self { leader, stderr_task, account }, pipes))
    }

    /// Its output.
    pub(crate) fn account(&self) -> &ServerOutput {
        &self.account
    }

    /// Marks it as started: no installation can be interrupted any more.
    pub(crate) fn has_started(&self) {
        self.leader.guard_firmly();
    }

    /// Waits until the leader has exited. Cancellation safe.
    pub(crate) async fn exited(&mut self) {
        if let Err(error) = self.leader.wait().await {
            tracing::warn!(%error, "could not wait for an MCP server");
        }
    }

    /// Kills every process of the group; [`end`](Self::end) still has to be awaited.
    pub(crate) fn kill(&self) {
        self.leader.signal(Signal::KILL);
    }

    /// Lets the server end by itself, its stdin being closed; then SIGTERM; then SIGKILL to its group.
    pub(crate) async fn end(mut self) -> LastWords {
        let mut status = timeout(STDIN_GRACE, self.leader.wait()).await;
        if status.is_err() {
            self.leader.signal(Signal::TERM);
            status = timeout(TERM_GRACE, self.leader.wait()).await;
        }
        self.kill_rest(status.ok().and_then(Result::ok)).await
    }

    /// As [`end`](Self::end), of a server that is still starting: an installer does not read its stdin, and
    /// gets the time to complete its cache.
    pub(crate) async fn end_start(mut self) -> LastWords {
        self.leader.ask_to_end();
        let status = timeout(START_GRACE, self.leader.wait()).await;
        self.kill_rest(status.ok().and_then(Result::ok)).await
    }

    async fn kill_rest(mut self, status: Option<ExitStatus>) -> LastWords {
        self.leader.kill().await;
        // Elapsed: a process that left the group holds stderr. Only the output so far is reported.
        if timeout(STDERR_GRACE, &mut self.stderr_task).await.is_err() {
            self.stderr_task.abort();
        }
        self.account.words().with_status(status)
    }
}

impl ServerOutput {
    /// Its output so far.
    pub(crate) fn words(&self) -> LastWords {
        LastWords::new(self.stderr.text(), self.opening.note(&self.secrets), &self.variables)
    }

    /// The newest line on stderr.
    pub(crate) fn last_line(&self) -> Option<String> {
        self.stderr.last_line()
    }
}
