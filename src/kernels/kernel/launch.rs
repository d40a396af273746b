//! Starts the process of a kernel of our own.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::{KernelLimits, SHARED_MODULES};
use crate::ground::process::{GroupLeader, HeldLimits};
use crate::kernels::sandbox::KernelProgram;

/// The script that the kernel starts from, and modules that it imports.
const SCRIPT: &str = "boot";
#[rustfmt::skip]
const MODULES: [(&str, &str); 15] = python_modules![
    "boot", "ipybox_branch", "ipybox_checkpoint", "ipybox_clock", "ipybox_exit", "ipybox_host", "ipybox_inquiry",
    "ipybox_kernel", "ipybox_loop", "ipybox_obstacles", "ipybox_pickling", "ipybox_sandbox", "ipybox_saving", "ipybox_seed",
    "ipybox_template",
];

/// The variable that names the directory of IPython's own files, and its name in a private directory.
pub(super) const IPYTHONDIR: &str = "IPYTHONDIR";
pub(super) const IPYTHON_FILES: &str = "ipython";

/// The settings of the GNU C library, which others ignore: a fork of 1 GB in huge pages takes 1 instead of 50 ms.
const TUNABLES: &str = "GLIBC_TUNABLES";
const HUGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// The settings for starting a kernel.
#[derive(Debug, Clone)]
pub(crate) struct KernelLaunch {
    /// The process.
    pub(crate) program: KernelProgram,
    /// The limits of the kernel and of each process that it starts.
    pub(crate) limits: KernelLimits,
    /// Defaults for unset `limits`; not reported as a cause of deaths, since no user has set them.
    pub(crate) default_limits: KernelLimits,
    /// The time that it may take to be ready.
    pub(crate) timeout: Duration,
    /// Which programs its code may start.
    pub(crate) shell_commands: ShellCommands,
    /// Whether its variables are saved.
    pub(crate) has_checkpoints: bool,
    /// Whether it has the files of the workspace.
    pub(crate) has_workspace: bool,
    /// The limits of the session that it is the kernel of. In a sandbox they hold around the sandbox.
    pub(crate) held: Arc<HeldLimits>,
}

/// The way in which code in a kernel starts programs. Code can circumvent it: only a sandbox is a boundary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShellCommands {
    /// In any way.
    #[default]
    Free,
    /// IPython's shell commands need approval; Python's own functions do not.
    Approved,
    /// IPython's shell commands need approval, and nothing else starts programs.
    OnlyEscape,
}

/// The first message to a kernel.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KernelConfiguration {
    /// The mark of its output.
    pub(crate) mark: String,
    private_directory: PathBuf,
    limits: KernelLimits,
    shell_commands: ShellCommands,
    is_sandboxed: bool,
    has_workspace: bool,
    has_checkpoints: bool,
    tunables: String,
}

impl KernelLaunch {
    /// The first message to the kernel, which is to mark its output.
    pub(super) fn configuration(&self, mark: String, is_sandboxed: bool) -> KernelConfiguration {
        KernelConfiguration {
            mark,
            private_directory: self.program.private_directory.clone(),
            limits: self.limits.or(self.default_limits),
            shell_commands: self.shell_commands,
            is_sandboxed,
            has_workspace: self.has_workspace,
            has_checkpoints: self.has_checkpoints,
            tunables: HUGE_PAGES.to_owned(),
        }
    }
}

impl KernelConfiguration {
    /// The start of such a kernel without a sandbox.
    pub(super) fn launch(&self, program: KernelProgram, timeout: Duration) -> KernelLaunch {
        KernelLaunch {
            program,
            limits: self.limits,
            default_limits: KernelLimits::default(),
            timeout,
            shell_commands: self.shell_commands,
            has_checkpoints: self.has_checkpoints,
            has_workspace: self.has_workspace,
            held: Arc::default(),
        }
    }
}

/// The process of a kernel. Dropping it kills the process and all that it started.
#[derive(Debug)]
pub(crate) struct KernelProcess {
    leader: GroupLeader,
    /// Holds the scripts.
    _directory: tempfile::TempDir,
}

impl KernelProcess {
    /// Starts the process, which gets the socket as its stdin and the pipe as its stdout and stderr. Its command line begins
    /// with `wrapper`, a program that becomes the interpreter, if there is one.
    pub(crate) fn start(
        program: &KernelProgram,
        wrapper: &[OsString],
        socket: OwnedFd,
        pipe: OwnedFd,
    ) -> io::Result<Self> {
        if !wrapper.is_empty() && program.python.is_absolute() {
            // What enters the limits could only say so on its output.
            program.python.metadata()?;
        }
        let directory = tempfile::Builder::new().prefix("k").tempdir_in(&program.private_directory)?;
        let file = |name| directory.path().join(name).with_extension("py");
        for (name, content) in MODULES.into_iter().chain(SHARED_MODULES) {
            std::fs::write(file(name), content)?;
        }
        let mut words = wrapper.iter().map(OsString::as_os_str).chain([program.python.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .arg(file(SCRIPT))
            .current_dir(&program.working_directory)
            .env_clear()
            // Keeps IPython's own files out of the user's home and workspace.
            .env(IPYTHONDIR, program.private_directory.join(IPYTHON_FILES))
            .env(TUNABLES, HUGE_PAGES)
            .envs(&program.environment)
            .stdin(socket)
            // Never inherited: our stdout is the MCP channel.
            .stdout(pipe.try_clone()?)
            .stderr(pipe);
        Ok(Self { leader: GroupLeader::spawn(&mut command)?, _directory: directory })
    }

    /// Waits for the process to end. Cancellation safe; may be called again after it ended.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.leader.wait().await
    }

    /// The exit status of the process, if it has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.leader.try_wait()
    }

    /// Sends a signal to the process and all that it started.
    pub(crate) fn signal(&self, signal: Signal) {
        self.leader.signal(signal);
    }

    /// Kills the process and all that it started.
    pub(crate) async fn kill(self) {
        self.leader.kill().await;
    }
}
