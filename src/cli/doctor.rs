//! `ipybox doctor`: prints its report on stdout.

use std::process::ExitCode;

use anyhow::Context as _;
use ipybox::{SandboxBackend, Settings, doctor};

use super::args::DoctorArgs;
use super::serve_args::BackendArg;
use super::{print, single_threaded};

/// Exits with success if ipybox, and the requested sandbox, can run.
pub(super) fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "team")]
    if let Some(file) = &args.team {
        return super::team::examine(file);
    }
    let mut settings = Settings::default();
    settings.workspace = args.workspace;
    settings.kernel.python = args.python;
    settings.state_dir = args.state_dir;
    let runtime = single_threaded()?;
    let report = runtime.block_on(doctor::examine(&settings));
    let text = if args.json {
        serde_json::to_string_pretty(&report).context("write the report as JSON")? + "\n"
    } else {
        format!("{report:#}")
    };
    print(&text, "print the report")?;
    let backend = match (args.sandbox, args.sandbox_backend) {
        (_, Some(backend)) => Some(SandboxBackend::from(backend)),
        (true, None) => Some(SandboxBackend::from(BackendArg::Srt)),
        (false, None) => None,
    };
    let is_well = report.can_run() && backend.is_none_or(|backend| report.can_sandbox(backend));
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
