//! The last words of a server: how its process ended, and what it wrote before.

use std::process::ExitStatus;

use super::diagnosis;
use super::telling::telling;

/// The end of a server: its exit status and last output. Secrets are redacted.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastWords {
    status: Option<ExitStatus>,
    stderr: String,
    note: Option<String>,
    hint: Option<String>,
}

impl LastWords {
    /// The words of a server whose variables have these names. `note` is about what it wrote on stdout.
    pub(crate) fn new(stderr: String, note: Option<String>, variables: &[String]) -> Self {
        let hint = diagnosis::hint(&stderr, variables);
        Self { status: None, stderr, note, hint }
    }

    /// Adds the exit status, if it is known.
    pub(crate) fn with_status(self, status: Option<ExitStatus>) -> Self {
        Self { status, ..self }
    }

    /// Drops the exit status: we ended it.
    pub(crate) fn without_status(self) -> Self {
        Self { status: None, ..self }
    }
}

impl std::fmt::Display for LastWords {
    /// Continues a sentence: ` (exit status: 1)`, then the line of the server that says why. Empty if nothing is known.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(status) = self.status {
            write!(formatter, " ({status})")?;
        }
        if let Some(note) = &self.note {
            write!(formatter, "\n{note}")?;
        }
        let said = telling(&self.stderr);
        if !said.is_empty() {
            let lines = self.stderr.lines().filter(|line| !line.trim().is_empty()).count();
            let all = if lines > 1 { " (all of it is in the log at level DEBUG)" } else { "" };
            write!(formatter, "\nit says on stderr{all}:\n{said}")?;
        }
        if let Some(hint) = &self.hint {
            write!(formatter, "\nhint: {hint}")?;
        }
        Ok(())
    }
}
