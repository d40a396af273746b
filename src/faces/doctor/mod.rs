//! Checks by trying whether ipybox can run on this machine, with a sandbox or without.
//!
//! It leaves no files, and examines no running session: it reports what a session that starts now would find.
//!
//! ```text
//! settings → kernel, servers, sandbox::check (all at once) → Report → text (Display) or JSON (Serialize)
//! ```

mod earlier;
mod kernel;
mod limits;
mod places;
mod servers;
mod text;

use serde::Serialize;

use crate::config::{self, Settings};
use crate::ground::env::Variables;
use crate::kernels::sandbox::SandboxBackend;
use crate::kernels::sandbox::check::{self, CheckFinding};

/// The findings about this machine.
///
/// `Display` is for people, in at most 100 columns. `Serialize` is for programs: `version` and `platform`; `can_run`;
/// `can_sandbox` with `srt` and `bwrap`; `groups` with `kernel`, `mcp_servers`, `sandbox_srt`, `sandbox_bwrap`,
/// `hardening` and `limits`, each a list of findings. A finding has `name`, `status` (`ok`, `warning`, `failed`, `not_needed`),
/// `found`, and where they are known `consequence` and one of `command` and `advice`.
#[derive(Debug, Serialize)]
pub struct Report {
    version: &'static str,
    platform: String,
    can_run: bool,
    can_sandbox: Sandboxes,
    groups: Groups,
}

#[derive(Debug, Serialize)]
struct Sandboxes {
    srt: bool,
    bwrap: bool,
}

#[derive(Debug, Serialize)]
struct Groups {
    kernel: Vec<CheckFinding>,
    mcp_servers: Vec<CheckFinding>,
    sandbox_srt: Vec<CheckFinding>,
    sandbox_bwrap: Vec<CheckFinding>,
    hardening: Vec<CheckFinding>,
    limits: Vec<CheckFinding>,
}

/// Checks everything that a session with these settings needs. Takes less than two seconds, unless a program
/// hangs.
pub async fn examine(settings: &Settings) -> Report {
    let mut variables = Variables::of(settings.environment.as_ref(), &settings.workspace);
    let (workspace, state_dir) = kernel::directories(settings, &variables);
    // What it starts is as little from there as what sessions start.
    if let Ok(directory) = state_dir
        && let Ok(recorded) = config::recorded(&directory, &workspace)
    {
        config::withhold_recorded(&mut variables, &recorded, &directory);
    }
    let (kernel, mcp_servers, sandbox_srt, sandbox_bwrap) = tokio::join!(
        kernel::examine(settings, &variables),
        servers::examine(&variables),
        check::examine(SandboxBackend::Srt, &variables),
        check::examine(SandboxBackend::Bubblewrap, &variables),
    );
    let hardening = check::examine_hardening();
    let limits = limits::examine();
    let groups = Groups { kernel, mcp_servers, sandbox_srt, sandbox_bwrap, hardening, limits };
    Report::new(groups)
}

impl Report {
    fn new(groups: Groups) -> Self {
        let is_well = |findings: &[CheckFinding]| !findings.iter().any(CheckFinding::is_failed);
        let can_run = is_well(&groups.kernel);
        let can_sandbox = |group: &[CheckFinding]| can_run && is_well(&groups.hardening) && is_well(group);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            can_run,
            can_sandbox: Sandboxes {
                srt: can_sandbox(&groups.sandbox_srt),
                bwrap: can_sandbox(&groups.sandbox_bwrap),
            },
            groups,
        }
    }

    /// Whether a session without a sandbox would work.
    pub fn can_run(&self) -> bool {
        self.can_run
    }

    /// Whether a session with this sandbox would work.
    pub fn can_sandbox(&self, backend: SandboxBackend) -> bool {
        match backend {
            SandboxBackend::Srt => self.can_sandbox.srt,
            SandboxBackend::Bubblewrap => self.can_sandbox.bwrap,
        }
    }
}
