//! The environment of the workspace: recalled, repaired or made again. `create` makes it.

use std::path::Path;

use super::contents::requested_packages;
use super::create;
use super::lock::InstallTurn;
use super::managed_place::ManagedPlace;
use super::probe::{self, ProbeError, PythonFacts};
use super::record::{InstallerTool, RecordContent};
use super::{Error, FailedAttempt, FailedAttempts, InstallProgress};

/// The number of lost packages that are named in a message.
const NAMED_PACKAGES: usize = 20;

/// The treatment of an environment that may be broken.
enum Need {
    Nothing(InstallerTool, PythonFacts),
    Repair(InstallerTool, Vec<String>),
    Rebuild(&'static str),
}

impl ManagedPlace<'_> {
    /// Checks the environment, and repairs or creates it if needed; returns its installer and its facts.
    pub(super) async fn prepare(
        &self,
        progress: InstallProgress<'_>,
    ) -> Result<(InstallerTool, PythonFacts), Error> {
        let python = self.directory.join("bin/python");
        if let RecordContent::True(record) = self.record.recall(&python) {
            return Ok((record.tool, record.facts));
        }
        let turn = InstallTurn::wait(self.lock, progress).await?;
        // The earlier holder of the lock may have done it.
        let need = match self.record.recall(&python) {
            RecordContent::True(record) => return Ok((record.tool, record.facts)),
            RecordContent::Missing if !self.directory.exists() => Need::Rebuild(""),
            RecordContent::Missing => Need::Rebuild("its creation was interrupted"),
            RecordContent::Stale(_) if !self.directory.exists() => Need::Rebuild("it was removed"),
            RecordContent::Stale(record) if record.python != python => Need::Rebuild("it was moved"),
            // Examining it means running it, with packages that were installed in a sandbox.
            RecordContent::Stale(record) if self.is_sandboxed => match record.after_installations() {
                Some(facts) if facts.lacking().is_empty() => Need::Nothing(record.tool, facts),
                Some(_) => Need::Rebuild("what ipybox needs was replaced by what it cannot use"),
                None => Need::Rebuild("its Python has changed"),
            },
            RecordContent::Unreadable if self.is_sandboxed => Need::Rebuild("its record cannot be read"),
            RecordContent::Stale(record) => {
                self.examine(&python, record.tool, Some(record.facts.minor_version())).await?
            }
            RecordContent::Unreadable => self.examine(&python, self.installer.default_tool(), None).await?,
        };
        let (tool, facts) = match need {
            Need::Nothing(tool, facts) => (tool, facts),
            Need::Repair(tool, lacking) => self.repair(&python, tool, &lacking, &turn).await?,
            Need::Rebuild(reason) => self.rebuild(&python, reason, &turn).await?,
        };
        facts.note_newer_than_tested();
        self.record.keep(&python, tool, &facts).map_err(|source| self.failed(source))?;
        Ok((tool, facts))
    }

    /// Runs the interpreter, whose version was `known` when the record was written.
    async fn examine(
        &self,
        python: &Path,
        tool: InstallerTool,
        known: Option<(u32, u32)>,
    ) -> Result<Need, Error> {
        let tool = self.installer.available(tool);
        let error = match probe::probe(python, self.installer.environment()).await {
            // A link to `python3` may lead to a newer Python by now, which looks for packages in another
            // directory.
            Ok(facts) if known.is_some_and(|known| known != facts.minor_version()) => {
                return Ok(Need::Rebuild("its Python is of another version now"));
            }
            Ok(facts) if facts.lacking().is_empty() => return Ok(Need::Nothing(tool, facts)),
            Ok(facts) => return Ok(Need::Repair(tool, facts.lacking())),
            Err(error) => error,
        };
        let is_overloaded = match error {
            ProbeError::Silent => true,
            ProbeError::Start(_) => crate::ground::env::is_program(python),
            _ => false,
        };
        if is_overloaded {
            // An error of the machine is no reason to delete packages.
            return Err(self.not_made("asking its interpreter", error.to_string()));
        }
        tracing::warn!(%error, "the interpreter of the managed environment does not run");
        Ok(Need::Rebuild("its interpreter does not run any more"))
    }

    /// Installs missing required packages; the other packages stay.
    async fn repair(
        &self,
        python: &Path,
        tool: InstallerTool,
        lacking: &[String],
        turn: &InstallTurn<'_>,
    ) -> Result<(InstallerTool, PythonFacts), Error> {
        let lacking = lacking.join(" and ");
        tracing::warn!(%lacking, "the managed environment is repaired");
        turn.report(&format!("repairing the Python environment, which lacks {lacking}"));
        create::fill(self.installer, tool, python, self.bytecode(), turn)
            .await
            .map_err(|FailedAttempt { what, output }| self.not_repaired(&what, &output))?;
        Ok((tool, self.check(python).await?))
    }

    async fn rebuild(
        &self,
        python: &Path,
        reason: &str,
        turn: &InstallTurn<'_>,
    ) -> Result<(InstallerTool, PythonFacts), Error> {
        if reason.is_empty() {
            turn.report("creating a Python environment for this workspace");
        } else {
            let message = rebuilding(reason, requested_packages(&self.directory));
            tracing::warn!("{message}");
            turn.report(&message);
        }
        self.record.forget().map_err(|source| self.failed(source))?;
        let tool = create::create(self, turn).await?;
        tracing::info!(directory = %self.directory.display(), ?tool, "made a Python environment");
        Ok((tool, self.check(python).await?))
    }

    /// Whether the new environment can run a kernel.
    async fn check(&self, python: &Path) -> Result<PythonFacts, Error> {
        let failed = |output: String| self.not_repaired("checking the result", &output);
        let facts = probe::probe(python, self.installer.environment())
            .await
            .map_err(|error| failed(error.to_string()))?;
        let lacking = facts.lacking();
        if lacking.is_empty() {
            Ok(facts)
        } else {
            Err(failed(format!("it lacks {}", lacking.join(" and "))))
        }
    }

    /// An environment that cannot be repaired is not deleted: the user may want its packages.
    fn not_repaired(&self, what: &str, output: &str) -> Error {
        let hint = format!("{output}\nhint: remove `{}` to have it made again", self.directory.display());
        self.not_made(what, hint)
    }

    fn not_made(&self, what: &str, output: String) -> Error {
        let attempt = FailedAttempt { what: what.to_owned(), output };
        Error::Create { directory: self.directory.clone(), attempts: FailedAttempts(vec![attempt]) }
    }
}

fn rebuilding(reason: &str, lost: Vec<String>) -> String {
    let message = format!("the Python environment is made again, because {reason}");
    if lost.is_empty() {
        return message;
    }
    let more = if lost.len() > NAMED_PACKAGES { ", …" } else { "" };
    let named = Vec::from_iter(lost.into_iter().take(NAMED_PACKAGES)).join(", ");
    format!("{message}; packages to install again: {named}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_rebuilding(lost: &[&str], expected: &str) {
        let lost = lost.iter().map(|name| (*name).to_owned()).collect();
        let message = rebuilding("it was moved", lost);
        assert_eq!(message, format!("the Python environment is made again, because it was moved{expected}"));
    }

    #[test]
    fn lost_packages_are_named() {
        check_rebuilding(&[], "");
        check_rebuilding(&["attrs", "numpy"], "; packages to install again: attrs, numpy");
        let ending = format!("; packages to install again: {}x, …", "x, ".repeat(NAMED_PACKAGES - 1));
        check_rebuilding(&["x"; NAMED_PACKAGES + 1], &ending);
    }
}
