//! Runs one program to its end and keeps its output, in order and bounded. It does not judge the result.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};

use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;

use super::InstallProgress;
use super::transcript::InstallTranscript;
use crate::ground::process::{read_to_end, run_to_end};

/// A program, its arguments and its whole environment.
#[derive(Debug, Clone)]
pub(super) struct ProgramInvocation {
    program: OsString,
    arguments: Vec<OsString>,
    environment: BTreeMap<String, String>,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct InstallerRun {
    pub(super) status: ExitStatus,
    /// stdout and stderr in order of arrival, without terminal control sequences.
    pub(super) output: String,
}

/// A program that runs in a sandbox, until it has ended.
pub(crate) type RunningInstaller<'a> =
    Pin<Box<dyn Future<Output = io::Result<ExitStatus>> + Send + Sync + 'a>>;

/// A sandbox for installers.
pub(crate) trait SandboxRunner: Send + Sync {
    /// Runs a program in it to its end.
    fn run(&self, program: ContainedProgram, output: OwnedFd) -> RunningInstaller<'_>;
}

/// A program to be run in a sandbox, and its permissions.
#[derive(Debug)]
pub(crate) struct ContainedProgram {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// The directory that it may write, beside one for temporary files.
    pub(crate) writable: PathBuf,
    /// The hosts that it may reach: `host:port`.
    pub(crate) hosts: Vec<String>,
    /// The paths that it must read, though the home is hidden: its configuration, and itself.
    pub(crate) readable: Vec<PathBuf>,
}

impl ProgramInvocation {
    /// As a program that is run in a sandbox.
    pub(super) fn contained(
        self,
        writable: PathBuf,
        hosts: Vec<String>,
        readable: Vec<PathBuf>,
    ) -> ContainedProgram {
        let arguments = self.arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned());
        ContainedProgram {
            program: self.program.into(),
            arguments: arguments.collect(),
            environment: self.environment,
            writable,
            hosts,
            readable,
        }
    }

    pub(super) fn new(program: &Path, environment: &BTreeMap<String, String>) -> Self {
        Self {
            program: program.as_os_str().to_owned(),
            arguments: Vec::new(),
            environment: environment.clone(),
        }
    }

    pub(super) fn without_env(mut self, name: &str) -> Self {
        self.environment.remove(name);
        self
    }

    pub(super) fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }
}

/// Runs it in a process group of its own, which is killed if the future is dropped.
///
/// The working directory is `/`: uv reads `uv.toml` and `pyproject.toml`, and version managers read
/// `.python-version`, in the working directory and above. In a workspace, code in the kernel could
/// plant those and choose where packages come from.
pub(super) async fn run(
    invocation: &ProgramInvocation,
    stdin: Stdio,
    progress: InstallProgress<'_>,
) -> io::Result<InstallerRun> {
    let mut command = Command::new(&invocation.program);
    command.args(&invocation.arguments).env_clear().envs(&invocation.environment).current_dir("/");
    let mut transcript = InstallTranscript::default();
    let status = run_to_end(command, stdin, |chunk| transcript.push(chunk, progress)).await?;
    Ok(InstallerRun { status, output: transcript.into_text() })
}

/// Runs a program in a sandbox; its working directory is `/` there too.
pub(super) async fn run_in_sandbox(
    program: ContainedProgram,
    sandbox: &dyn SandboxRunner,
    progress: InstallProgress<'_>,
) -> io::Result<InstallerRun> {
    let (reader, writer) = io::pipe()?;
    let mut output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
    let mut transcript = InstallTranscript::default();
    // The sandbox closes the pipe when it ends, with all processes that the program has left there.
    let running = sandbox.run(program, writer.into());
    let mut take = |chunk: &[u8]| transcript.push(chunk, progress);
    let (status, read) = tokio::join!(running, read_to_end(&mut output, &mut take));
    read?;
    Ok(InstallerRun { status: status?, output: transcript.into_text() })
}

/// The last `count` lines of `output` that are not blank.
pub(super) fn last_lines(output: &str, count: usize) -> String {
    let mut lines: Vec<&str> =
        output.lines().rev().filter(|line| !line.trim().is_empty()).take(count).collect();
    lines.reverse();
    lines.join("\n")
}

/// `path` as a word of a shell command.
pub(super) fn quoted(path: &Path) -> String {
    crate::ground::text::quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Only what hangs takes longer, on the slowest machine.
    const PATIENCE: Duration = Duration::from_secs(300);

    fn shell(script: &str) -> ProgramInvocation {
        ProgramInvocation::new(Path::new("/bin/sh"), &BTreeMap::new()).args(["-c", script])
    }

    #[tokio::test]
    async fn both_streams_are_kept_in_order_and_reported_by_line() {
        let reported = Mutex::new(Vec::new());
        let invocation = shell("echo one; echo two >&2; printf three; pwd; echo $A; exit 3").env("A", "b");
        let run = run(&invocation, Stdio::null(), &|line| reported.lock().unwrap().push(line.to_owned()))
            .await
            .unwrap();
        assert_eq!(run.output, "one\ntwo\nthree/\nb\n");
        assert_eq!(run.status.code(), Some(3));
        assert_eq!(*reported.lock().unwrap(), ["one", "two", "three/", "b"]);
    }

    #[tokio::test]
    async fn a_process_left_behind_does_not_hold_the_run() {
        let invocation = shell("sleep 600 & echo done");
        let run = run(&invocation, Stdio::null(), &|_| ());
        let run = tokio::time::timeout(PATIENCE, run).await.expect("it is waited for").unwrap();
        assert_eq!(run.output, "done\n");
    }

    #[tokio::test]
    async fn dropping_the_future_kills_what_was_started() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let script = format!("(echo started; sleep 60) > '{}'", fifo.display());
        let invocation = shell(&script);
        let ended = async {
            let mut pipe = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&fifo).unwrap();
            let mut first = [0; 8];
            pipe.readable().await.unwrap();
            pipe.read_exact(&mut first).await.unwrap();
            pipe
        };
        let mut pipe = tokio::select! {
            pipe = ended => pipe,
            _ = run(&invocation, Stdio::null(), &|_| ()) => unreachable!("it sleeps"),
        };
        let mut rest = Vec::new();
        // End of file proves that no process of the group holds the FIFO any more.
        tokio::time::timeout(PATIENCE, pipe.read_to_end(&mut rest)).await.unwrap().unwrap();
    }

    #[test]
    fn the_last_lines_skip_empty_ones() {
        assert_eq!(last_lines("a\nb\n\nc\n\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
    }
}
