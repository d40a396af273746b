//! The end of a kernel's process, and its possible causes.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use super::KernelLimits;

/// The end of a kernel's process that we did not cause.
#[derive(Debug)]
pub(crate) struct KernelDeath {
    /// The manner of its end.
    pub(crate) manner: DeathManner,
    /// The text that it wrote before its first cell, or why its sandbox ended; often nothing.
    pub(crate) stderr: String,
    /// Its limits.
    pub(crate) limits: KernelLimits,
    /// Sentences about what its session ran out of.
    pub(crate) exhausted: Vec<String>,
}

/// The manner of a kernel's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeathManner {
    /// The exit status of its process.
    Process(ExitStatus),
    /// A report about a process on another machine.
    Remote(String),
    /// Unknown: only its parent learns the exit status of a process, and a branch is no child of ours.
    Unknown,
}

impl DeathManner {
    fn is_kill(&self) -> bool {
        matches!(self, Self::Process(status) if status.signal() == Some(rustix::process::Signal::KILL.as_raw()))
    }
}

impl fmt::Display for DeathManner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(status) => status.fmt(formatter),
            Self::Remote(words) => formatter.write_str(words),
            Self::Unknown => formatter.write_str("its exit status is unknown"),
        }
    }
}

impl KernelDeath {
    /// The death of a remote kernel, of which only this text is known.
    pub(crate) fn remote(words: impl Into<String>, limits: KernelLimits) -> Self {
        Self {
            manner: DeathManner::Remote(words.into()),
            stderr: String::new(),
            limits,
            exhausted: Vec::new(),
        }
    }

    /// Sentences about its possible causes, with a space before each; often none.
    pub(crate) fn causes(&self) -> String {
        let killed = match &self.exhausted[..] {
            [] if self.manner.is_kill() => {
                " The system may have run out of memory: ipybox did not kill it.".to_owned()
            }
            exhausted => exhausted.iter().map(|sentence| format!(" {sentence}")).collect(),
        };
        format!("{killed}{}", self.limits)
    }
}

/// `exit status: 3; its last words:` and the words.
impl fmt::Display for KernelDeath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.manner)?;
        if self.stderr.is_empty() { Ok(()) } else { write!(f, "; its last words:\n{}", self.stderr) }
    }
}
