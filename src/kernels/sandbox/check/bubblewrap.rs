//! The requirements of the bubblewrap backend.

use std::path::Path;

use super::finding::{Finding, Remedy};
use super::refusal;
use super::surroundings::CheckSurroundings;

/// A sandbox with all the namespaces that both backends use, and nothing in it.
#[rustfmt::skip]
const TRIAL: &[&str] = &[
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
    "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "true",
];

pub(super) async fn examine(surroundings: &CheckSurroundings) -> Vec<Finding> {
    if !cfg!(target_os = "linux") {
        return vec![Finding::failed(
            "bwrap",
            "not for this system",
            "`--sandbox-backend bwrap` is for Linux alone",
            Remedy::Advice("use `--sandbox` with srt, the default".to_owned()),
        )];
    }
    Vec::from(tried(surroundings).await)
}

/// Checks bubblewrap itself, and which sandbox it can make.
pub(super) async fn tried(surroundings: &CheckSurroundings) -> [Finding; 2] {
    let consequence = "no sandbox starts without it";
    let program = surroundings.program("bwrap", &["--version"], consequence).await;
    let namespaces = match surroundings.find("bwrap") {
        Some(bwrap) if !program.is_failed() => namespaces(surroundings, &bwrap).await,
        _ => Finding::not_needed("user-namespaces", "not tried without bwrap"),
    };
    [program, namespaces]
}

async fn namespaces(surroundings: &CheckSurroundings, bwrap: &Path) -> Finding {
    match surroundings.run(bwrap, TRIAL).await {
        Ok(_) => refusal::works(&surroundings.machine),
        Err(said) => refusal::explain(&surroundings.machine, &surroundings.packages, &said),
    }
}
