//! Short runs of programs for their output.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;

use super::GroupLeader;
use crate::ground::text::plain;

/// The part of an answer that is kept; the rest is read and dropped.
const ANSWER_BYTES: usize = 16 * 1024;
/// One read from a pipe, which holds this much on Linux.
const CHUNK_BYTES: usize = 64 * 1024;
/// The time that output is awaited after the program ended: a process that it left behind may hold the pipe.
const LATE_OUTPUT: Duration = Duration::from_millis(500);

/// A program that is run for its output, with its environment.
#[derive(Debug)]
pub(crate) struct ProgramQuestion<'a> {
    /// The program.
    pub(crate) program: &'a Path,
    /// Its whole environment.
    pub(crate) environment: &'a BTreeMap<String, String>,
    /// Its working directory.
    pub(crate) directory: &'a Path,
    /// After this it is killed, with all that it started.
    pub(crate) limit: Duration,
}

/// The output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramOutput {
    /// Whether it ended with 0.
    pub(crate) succeeded: bool,
    /// Its stdout and stderr as they came, at most 16 KiB.
    pub(crate) text: String,
}

impl ProgramQuestion<'_> {
    /// Runs the program with these arguments to its end.
    ///
    /// # Errors
    /// It could not be started, or has not ended in time ([`io::ErrorKind::TimedOut`]).
    pub(crate) async fn ask<A: AsRef<OsStr>>(&self, arguments: &[A]) -> io::Result<ProgramOutput> {
        match tokio::time::timeout(self.limit, self.run(arguments)).await {
            Ok(answer) => answer,
            Err(_) => {
                let words = format!("no answer within {} s", self.limit.as_secs_f32());
                Err(io::Error::new(io::ErrorKind::TimedOut, words))
            }
        }
    }

    async fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> io::Result<ProgramOutput> {
        let mut command = Command::new(self.program);
        command.args(arguments).env_clear().envs(self.environment).current_dir(self.directory);
        let mut text = Vec::new();
        let status = run_to_end(command, Stdio::null(), |chunk| {
            let room = ANSWER_BYTES.saturating_sub(text.len());
            text.extend_from_slice(&chunk[..chunk.len().min(room)]);
        });
        let status = status.await?;
        Ok(ProgramOutput { succeeded: status.success(), text: plain(&String::from_utf8_lossy(&text)) })
    }
}

/// Runs `command` in a process group of its own, which is killed if the future is dropped, and passes its
/// output, stdout and stderr in order, to `take`.
pub(crate) async fn run_to_end(
    mut command: Command,
    stdin: Stdio,
    mut take: impl FnMut(&[u8]),
) -> io::Result<ExitStatus> {
    let (reader, writer) = io::pipe()?;
    let mut output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
    // One pipe for both streams keeps their order.
    command.stdin(stdin).stdout(writer.try_clone()?).stderr(writer);
    let mut leader = GroupLeader::spawn(&mut command)?;
    // Our ends of the pipe close with it.
    drop(command);
    let read = read_to_end(&mut output, &mut take);
    tokio::pin!(read);
    tokio::select! {
        ended = &mut read => {
            ended?;
            leader.wait().await
        }
        status = leader.wait() => {
            match tokio::time::timeout(LATE_OUTPUT, read).await {
                Ok(ended) => ended?,
                Err(_) => tracing::debug!("a process that a program left behind holds its output"),
            }
            status
        }
    }
}

/// Passes the data of a pipe to `take` until all its writers are gone.
pub(crate) async fn read_to_end(output: &mut Receiver, take: &mut impl FnMut(&[u8])) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = output.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        take(&chunk[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(script: &str, limit: Duration) -> io::Result<ProgramOutput> {
        let question = ProgramQuestion {
            program: Path::new("/bin/sh"),
            environment: &BTreeMap::new(),
            directory: Path::new("/"),
            limit,
        };
        question.ask(&["-c", script]).await
    }

    #[tokio::test]
    async fn an_answer_is_what_was_said_and_whether_it_went_well() {
        let long = Duration::from_secs(60);
        let answer = ask("echo out; echo err >&2; pwd; exit 3", long).await.unwrap();
        assert_eq!(answer, ProgramOutput { succeeded: false, text: "out\nerr\n/\n".to_owned() });
        let answer = ask("head -c 100000 /dev/zero | tr '\\0' x", long).await.unwrap();
        assert_eq!((answer.succeeded, answer.text.len()), (true, ANSWER_BYTES));
        assert!(ask("sleep 60 & exit 0", long).await.unwrap().succeeded);
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_given_up() {
        let error = ask("sleep 60", Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
