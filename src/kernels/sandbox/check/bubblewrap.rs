//! The requirements of the bubblewrap backend.

use std::path::Path;

use super::finding::{CheckFinding, CheckRemedy};
use super::refusal;
use super::surroundings::CheckSurroundings;
use crate::kernels::sandbox::bwrap::NO_OWN_PROC;

/// A sandbox with all the namespaces that both backends use, and nothing in it but what is mounted at `/proc`.
#[rustfmt::skip]
const TRIAL: &[&str] = &[
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
    "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev",
];
const OWN_PROC: &[&str] = &["--proc", "/proc", "--", "true"];
const OUTER_PROC: &[&str] = &["--ro-bind", "/proc", "/proc", "--", "true"];

pub(super) async fn examine(surroundings: &CheckSurroundings) -> Vec<CheckFinding> {
    if !cfg!(target_os = "linux") {
        return vec![CheckFinding::failed(
            "bwrap",
            "not for this system",
            "`--sandbox-backend bwrap` is for Linux alone",
            CheckRemedy::Advice("use `--sandbox` with srt, the default".to_owned()),
        )];
    }
    Vec::from(tried(surroundings).await)
}

/// Checks bubblewrap itself, and which sandbox it can make.
pub(super) async fn tried(surroundings: &CheckSurroundings) -> [CheckFinding; 2] {
    let consequence = "no sandbox starts without it";
    let program = surroundings.program("bwrap", &["--version"], consequence).await;
    let namespaces = match surroundings.find("bwrap") {
        Some(bwrap) if !program.is_failed() => namespaces(surroundings, &bwrap).await,
        _ => CheckFinding::not_needed("user-namespaces", "not tried without bwrap"),
    };
    [program, namespaces]
}

async fn namespaces(surroundings: &CheckSurroundings, bwrap: &Path) -> CheckFinding {
    let tried = async |proc| surroundings.run(bwrap, &[TRIAL, proc].concat()).await;
    let said = match tried(OWN_PROC).await {
        Ok(_) => return refusal::works(&surroundings.machine),
        Err(said) => said,
    };
    if said.contains(NO_OWN_PROC) && tried(OUTER_PROC).await.is_ok() {
        return refusal::nested(&said);
    }
    refusal::explain(&surroundings.machine, &surroundings.packages, &said)
}
