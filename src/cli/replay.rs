//! `ipybox replay`: runs a recorded session again, and prints what is the same and what differs on stdout.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use ipybox::{ApprovalPolicy, ReplayMode, ReplayOptions, SandboxBackend};

use super::serve_args::BackendArg;
use super::signals::EndSignals;
use super::{multi_threaded, print};

/// The flags of `ipybox replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// The recording that a session with `--record` has made, or its notebook; for the mode `policy` also an audit log
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Destination of tool calls
    #[arg(long, value_enum, default_value_t = ModeArg::Strict)]
    pub(crate) mode: ModeArg,

    /// Print JSON, whose keys do not change
    #[arg(long)]
    pub(crate) json: bool,

    /// Workspace whose registered servers and Python are used; the code runs in a new directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Python interpreter, or virtual environment, that runs the code [default: that of the workspace]
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: Option<PathBuf>,

    /// Run the code in a sandbox, also if the recorded session had none
    #[arg(long)]
    pub(crate) sandbox: bool,

    /// Program that makes the sandbox
    #[arg(long, value_enum)]
    pub(crate) sandbox_backend: Option<BackendArg>,

    /// Directory of files that the code needs: copied into its new one, without links and `.env`
    #[arg(long, value_name = "DIR")]
    pub(crate) files: Option<PathBuf>,

    /// Fill the placeholder `${NAME}` with the value of this variable, which the code gets to see; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) fill: Vec<String>,

    /// Approval policy for calls of living servers; what it would ask about is denied
    #[arg(long, value_name = "FILE", required_if_eq("mode", "policy"))]
    pub(crate) approval_policy: Option<PathBuf>,
}

/// A mode.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ModeArg {
    /// To the recording; the first call that differs ends the replay
    Strict,
    /// To the recording; the report lists all that may write
    Dry,
    /// Those that only read to the living servers, the others to the recording
    Reads,
    /// To the living servers, which are compared with the recording
    Live,
    /// Nowhere: runs no code, and asks the approval policy about the calls of a recording or an audit log
    Policy,
}

/// Ends with success if nothing differs.
pub(super) fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let mut options = ReplayOptions::new(args.file);
    options.mode = match args.mode {
        ModeArg::Strict => ReplayMode::Strict,
        ModeArg::Dry => ReplayMode::Dry,
        ModeArg::Reads => ReplayMode::Reads,
        ModeArg::Live => ReplayMode::Live,
        ModeArg::Policy => ReplayMode::Policy,
    };
    options.workspace = args.workspace;
    options.state_dir = args.state_dir;
    options.python = args.python;
    options.sandbox = match args.sandbox_backend {
        Some(BackendArg::Bwrap) => Some(SandboxBackend::Bubblewrap),
        Some(BackendArg::Srt) => Some(SandboxBackend::Srt),
        None => args.sandbox.then(SandboxBackend::default),
    };
    options.files = args.files;
    options.fill = args.fill;
    if let Some(file) = args.approval_policy {
        options.policy = ApprovalPolicy::read(file)?;
    }
    let report = multi_threaded()?.block_on(async {
        let mut signals = EndSignals::new().context("watch for signals")?;
        anyhow::Ok(Box::pin(ipybox::replay_until(options, signals.next())).await?)
    })?;
    let text = if args.json {
        let mut value = serde_json::to_value(&report).context("write the report")?;
        value["is_same"] = report.is_same().into();
        format!("{value:#}\n")
    } else {
        report.text()
    };
    print(&text, "print the report")?;
    Ok(if report.is_same() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
