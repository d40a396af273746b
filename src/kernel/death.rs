//! How a kernel's process ended, and what can be said about why.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

use super::Limits;

/// The end of a kernel's process that we did not cause.
#[derive(Debug)]
pub(crate) struct Death {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// The last lines of its real stderr.
    pub(crate) stderr: String,
    /// What it was limited to.
    pub(crate) limits: Limits,
}

impl Death {
    /// Sentences about its possible causes, with a space before each; often none.
    pub(crate) fn causes(&self) -> String {
        let is_killed = self.status.signal() == Some(rustix::process::Signal::KILL.as_raw());
        let killed =
            if is_killed { " The system may have run out of memory: ipybox did not kill it." } else { "" };
        format!("{killed}{}", self.limits)
    }
}

/// `exit status: 3; its last words:` and the words.
impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if self.stderr.is_empty() { Ok(()) } else { write!(f, "; its last words:\n{}", self.stderr) }
    }
}

/// How a kernel that runs elsewhere ended, as far as its server tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Ended {
    /// What `wait` says of the process.
    #[serde(default, rename = "ipybox_wait_status")]
    pub(crate) wait_status: i32,
    /// What the process wrote to its real stderr before its end.
    #[serde(default, rename = "ipybox_stderr")]
    pub(crate) stderr: String,
}
