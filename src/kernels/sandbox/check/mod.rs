//! Whether this machine can sandbox: each requirement is tried, and failures are reported with a remedy.
//!
//! It knows no kernel and no policy, changes nothing, and removes the temporary directory that it works in.
//!
//! ```text
//! backend → what it needs → look or try → findings ┬ doctor: all of them
//!                                                  └ start with --sandbox: the failed ones, as an error
//! ```

mod bubblewrap;
mod finding;
mod machine;
mod refusal;
mod remedy;
mod srt;
mod surroundings;

pub(crate) use self::finding::{CheckFinding, CheckRemedy, FindingStatus};
pub(crate) use self::remedy::NODE;
use self::surroundings::CheckSurroundings;
pub(crate) use self::surroundings::version;

use super::{SandboxBackend, hardening};
use crate::ground::env::Variables;
use crate::ground::env::on_path;
use crate::ground::text::describe;

/// Checks the requirements of `backend` on this machine.
pub(crate) async fn examine(backend: SandboxBackend, variables: &Variables) -> Vec<CheckFinding> {
    let surroundings = match CheckSurroundings::new(variables) {
        Ok(surroundings) => surroundings,
        Err(error) => return vec![CheckSurroundings::finding(&error)],
    };
    match backend {
        SandboxBackend::Srt => srt::examine(&surroundings).await,
        SandboxBackend::Bubblewrap => bubblewrap::examine(&surroundings).await,
    }
}

/// Checks the hardening of processes inside, and the user: the same for both backends.
pub(crate) fn examine_hardening() -> Vec<CheckFinding> {
    if !cfg!(target_os = "linux") {
        return vec![CheckFinding::not_needed("hardening", "Seatbelt, which srt uses, is all of it here")];
    }
    let is_root = rustix::process::geteuid().is_root();
    let support = match hardening::probe() {
        Ok(report) => Ok((report.to_string(), report.is_complete())),
        Err(error) => Err(describe(&error)),
    };
    vec![machine::hardening(support, is_root), machine::user(is_root)]
}

/// Whether `backend` certainly cannot start: a program is missing or too old. `is_named` says whether the
/// policy names a program by its own path.
pub(crate) fn lacks(backend: SandboxBackend, variables: &Variables, is_named: impl Fn(&str) -> bool) -> bool {
    let path = variables.in_process("PATH").unwrap_or_default();
    match backend {
        SandboxBackend::Srt => srt::lacks(path, is_named),
        SandboxBackend::Bubblewrap => {
            !cfg!(target_os = "linux") || (!is_named("bwrapPath") && on_path("bwrap", path).is_none())
        }
    }
}

/// Why the sandbox cannot start: what [`examine`] and [`examine_hardening`] find failed.
pub(crate) async fn missing(backend: SandboxBackend, variables: &Variables) -> Vec<CheckFinding> {
    let mut findings = examine(backend, variables).await;
    findings.extend(examine_hardening());
    findings.retain(CheckFinding::is_failed);
    findings
}

/// The sandbox that was asked for cannot start on this machine.
#[derive(Debug, thiserror::Error)]
#[error("start the sandbox ({}){}{}", backend.name(), finding::text_of(findings), other_backend(*backend, findings))]
pub(crate) struct UnusableSandbox {
    /// The backend that should have made it.
    pub(crate) backend: SandboxBackend,
    /// The failed findings, at least one.
    pub(crate) findings: Vec<CheckFinding>,
}

/// Programs that srt needs and bubblewrap alone does not.
const OF_SRT: [&str; 5] = ["srt", "node", "socat", "rg", "which"];

/// The advice to take the other backend, if nothing of what it needs is missing.
fn other_backend(backend: SandboxBackend, findings: &[CheckFinding]) -> &'static str {
    let is_of_srt = |finding: &CheckFinding| OF_SRT.contains(&finding.name);
    if cfg!(target_os = "linux") && backend == SandboxBackend::Srt && findings.iter().all(is_of_srt) {
        "\nhint: `--sandbox --sandbox-backend bwrap` needs none of these programs"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests;
