//! Why a sandbox could not start, or has ended.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::{SandboxPolicyError, bwrap, check};

/// The end of a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct SandboxEnd {
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
}

/// An error of the sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program that makes it is missing.
    #[error("start the sandbox: there is no `{program}` on PATH")]
    Missing {
        /// The program.
        program: &'static str,
    },
    /// The policy cannot be held.
    #[error(transparent)]
    Policy(#[from] SandboxPolicyError),
    /// The policy uses what only srt has.
    #[error(
        "make a sandbox with bubblewrap: the policy uses {0}, which needs srt\n\
         hint: remove that from the policy, or leave `--sandbox-backend` out"
    )]
    Unsupported(String),
    /// Bubblewrap cannot hold the policy.
    #[error(transparent)]
    Bubblewrap(#[from] bwrap::Error),
    /// The directory to make writable contains the program that runs outside.
    #[error("open `{}` for writing: ipybox itself is in it\nhint: name another Python with `--python`", directory.display())]
    OwnProgram {
        /// The directory.
        directory: PathBuf,
    },
    /// The settings of the sandbox could not be written.
    #[error("write the settings of the sandbox to `{}`", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program that makes the sandbox could not be started.
    #[error("start `{program}`")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It ended before the gateway inside was ready.
    #[error("start the sandbox: it ended with {status}{}", words(.stderr))]
    Ended {
        /// The exit status.
        status: ExitStatus,
        /// The text on its stderr.
        stderr: String,
    },
    /// Its mounts are not those that were planned.
    #[error(
        "start the sandbox: {0}\nhint: code in another session of this workspace may have changed directories at this moment: end that \
         session, or look at what it does"
    )]
    Mounts(String),
    /// The gateway inside gave up.
    #[error("start the sandbox: {0}")]
    Failed(String),
    /// It was not ready in time.
    #[error("start the sandbox: it was not ready after {} seconds{}", .after.as_secs_f64(), words(.stderr))]
    Timeout {
        /// The time that it was awaited.
        after: Duration,
        /// The text on its stderr.
        stderr: String,
    },
    /// The gateway broke the protocol: another process may have taken its place.
    #[error("speak to the sandbox: {0}")]
    Violation(String),
    /// The connection failed.
    #[error("speak to the sandbox")]
    Channel(#[source] io::Error),
    /// It is gone.
    #[error("use the sandbox: it has ended")]
    Gone,
    /// This machine lacks something.
    #[error(transparent)]
    Unusable(#[from] check::UnusableSandbox),
}

impl Error {
    /// Whether srt has given up waiting for its own helpers, for which it has little more than a second: a busy machine may
    /// need longer.
    pub(super) fn is_of_impatience(&self) -> bool {
        matches!(self, Self::Ended { stderr, .. } if stderr.contains("Failed to create bridge sockets"))
    }

    /// Whether bubblewrap may make no `/proc`, since parts of the one around it are covered.
    pub(super) fn is_of_covered_proc(&self) -> bool {
        matches!(self, Self::Ended { stderr, .. } if stderr.contains(bwrap::NO_OWN_PROC))
    }

    /// Whether a check of the machine may explain the error.
    pub(super) fn may_be_the_machines(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::Spawn { .. }
                | Self::Ended { .. }
                | Self::Failed(_)
                | Self::Timeout { .. }
        )
    }
}

fn words(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its last words:\n{stderr}") }
}
