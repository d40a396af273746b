//! Child processes that cannot outlive us.
//!
//! Every child leads its own process group, so that stopping it stops what it started. It does not
//! know what the child is for: kernels, installers and MCP servers all come through here.

use std::collections::VecDeque;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// A child process that leads a process group of its own; dropping it kills the whole group.
#[derive(Debug)]
pub(crate) struct GroupLeader {
    child: Child,
    group: Pid,
}

impl GroupLeader {
    /// Starts `command` as the leader of a new process group.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().ok_or_else(|| io::Error::other("the child has no process id"))?;
        let group = i32::try_from(id).map_err(io::Error::other)?;
        Ok(Self { child, group: Pid::from_raw(group) })
    }

    /// The process id of the leader, which is the id of its group too.
    pub(crate) fn id(&self) -> i32 {
        self.group.as_raw()
    }

    /// Takes the pipe to the child's stdin. Take it before [`wait`](Self::wait), which closes it.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes the pipe from the child's stdout.
    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes the pipe from the child's stderr.
    pub(crate) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for the leader to end. Cancellation safe; may be called again after it ended.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// How the leader ended, if it has.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends `signal` to every process of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        signal_group(self.group, signal);
    }

    /// Kills the group at once and reaps the leader.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, process = self.id(), "could not reap a child process");
        }
    }
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        // The leader may be gone while processes that it started live on in its group.
        self.signal(Signal::SIGKILL);
    }
}

/// Sends `signal` to every process of `group`; a group that is empty already needs none.
fn signal_group(group: Pid, signal: Signal) {
    match killpg(group, signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(error) => tracing::debug!(%error, %group, %signal, "could not signal a process group"),
    }
}

/// How many of a child's last lines are kept to explain its failure.
const TAIL_LINES: usize = 30;
/// The longest line kept: a child that writes no newline must not fill our memory.
const TAIL_LINE_BYTES: usize = 2_000;

/// The last lines that a child wrote, kept to say why it failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Tail {
    /// Reads `output` to its end, keeps its last lines and logs each at debug level under `name`.
    ///
    /// The returned task ends when every process that holds the other end has closed it.
    pub(crate) fn follow<R>(output: R, name: String) -> (Self, tokio::task::JoinHandle<()>)
    where
        R: AsyncRead + Unpin + Send + 'static,
    {
        Self::follow_edited(output, name, |line| line)
    }

    /// As [`follow`](Self::follow), with each line passed through `edit` before it is kept or logged.
    pub(crate) fn follow_edited<R, E>(output: R, name: String, edit: E) -> (Self, tokio::task::JoinHandle<()>)
    where
        R: AsyncRead + Unpin + Send + 'static,
        E: Fn(String) -> String + Send + 'static,
    {
        let tail = Self::default();
        let kept = tail.clone();
        let task = tokio::spawn(async move {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            // A read error means that there is nothing more to keep.
            while let Ok(true) = read_bounded_line(&mut reader, &mut line).await {
                let text = edit(String::from_utf8_lossy(&line).trim_end().to_owned());
                tracing::debug!(from = %name, "{text}");
                kept.push(text);
            }
        });
        (tail, task)
    }

    /// The kept lines, joined; empty if the child wrote nothing.
    pub(crate) fn text(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        Vec::from_iter(lines.iter().map(String::as_str)).join("\n")
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads one line into `line`, dropping what exceeds [`TAIL_LINE_BYTES`]; `false` at the end.
async fn read_bounded_line<R>(reader: &mut BufReader<R>, line: &mut Vec<u8>) -> io::Result<bool>
where
    R: AsyncRead + Unpin,
{
    line.clear();
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let taken = end.unwrap_or(chunk.len());
        let room = TAIL_LINE_BYTES.saturating_sub(line.len());
        line.extend_from_slice(&chunk[..taken.min(room)]);
        reader.consume(end.map_or(taken, |newline| newline + 1));
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tail_keeps_the_last_lines_only() {
        let text: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let (tail, task) = Tail::follow(io::Cursor::new(text), "test".to_owned());
        task.await.unwrap();
        assert!(tail.text().starts_with("line 70\n"), "{}", tail.text());
        assert!(tail.text().ends_with("line 99"), "{}", tail.text());
    }

    #[tokio::test]
    async fn an_endless_line_is_cut() {
        let (tail, task) = Tail::follow(io::Cursor::new(vec![b'x'; 1_000_000]), "test".to_owned());
        task.await.unwrap();
        assert_eq!(tail.text().len(), TAIL_LINE_BYTES);
    }

    #[tokio::test]
    async fn killing_a_leader_kills_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; sleep 60 & echo $!; wait"]);
        command.stdout(std::process::Stdio::piped());
        let mut leader = GroupLeader::spawn(&mut command).unwrap();
        let stdout = leader.take_stdout().unwrap();
        let mut lines = BufReader::new(stdout).lines();
        let grandchild: i32 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
        leader.kill().await;
        // End of file proves that no process of the group holds the pipe any more.
        assert_eq!(lines.next_line().await.unwrap(), None, "process {grandchild} lives");
    }
}
