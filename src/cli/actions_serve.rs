//! `ipybox actions serve`: saved actions as tools of an MCP server on stdin and stdout.

use std::path::PathBuf;
use std::time::Duration;

use ipybox::telemetry::exporting;
use ipybox::{
    ActionTeam, ApprovalMode, AuditContents, SandboxSettings, ServeActionsOptions, Settings, serve_actions,
};

use super::multi_threaded;
use super::registered_args::PlaceArgs;
use super::serve_args::{ApprovalArg, BackendArg};
use super::values::{processors, seconds, size};

/// The flags of `ipybox actions serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ActionsServeArgs {
    /// Run actions without a sandbox, with all of your rights
    #[arg(long, conflicts_with_all = ["sandbox_backend", "sandbox_config"])]
    pub(crate) no_sandbox: bool,

    /// Program that makes the sandbox [default: srt]
    #[arg(long, value_name = "BACKEND")]
    pub(crate) sandbox_backend: Option<BackendArg>,

    /// Policy of the sandbox, as for sessions; relative to the workspace
    #[arg(long, value_name = "FILE")]
    pub(crate) sandbox_config: Option<PathBuf>,

    /// File or directory that code in the sandbox does not see; may be given several times
    #[arg(long, value_name = "PATH", conflicts_with = "no_sandbox")]
    pub(crate) sandbox_hide: Vec<PathBuf>,

    /// Memory of each call, as for sessions
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) limit_memory: Option<u64>,

    /// Processor time of each call, in processors
    #[arg(long, value_name = "N", value_parser = processors)]
    pub(crate) limit_cpu: Option<f64>,

    /// Processes and threads of each call
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit_processes: Option<u32>,

    /// Disk of each call, as for sessions
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) limit_disk: Option<u64>,

    /// Serve the actions that a team has published in this directory, in place of those of the workspace
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) published: Option<PathBuf>,

    /// The server of a team whose user the client is, in JSON
    #[arg(long, hide = true, value_name = "JSON", value_parser = front, requires = "published")]
    pub(crate) front: Option<ActionTeam>,

    /// Python interpreter, or virtual environment, that runs the actions [default: that of the workspace]
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: Option<PathBuf>,

    /// Time that a call may run, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Approver of the tool calls of actions [default: policy with a policy file, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) approval: Option<ApprovalArg>,

    /// Rules that decide, in TOML
    #[arg(long, value_name = "FILE", required_if_eq("approval", "policy"))]
    pub(crate) approval_policy: Option<PathBuf>,

    /// Time that a question waits for its answer, in seconds; then the call is rejected
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) approval_timeout: Duration,

    /// Append a line of JSON for each call and decision to this file, outside the workspace
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,

    /// Record code, output and results in the audit log too, beside arguments
    #[arg(long, requires = "audit_log")]
    pub(crate) audit_contents: bool,
}

fn front(json: &str) -> Result<ActionTeam, serde_json::Error> {
    serde_json::from_str(json)
}

pub(super) fn run(args: ActionsServeArgs, place: PlaceArgs) -> anyhow::Result<()> {
    if args.approval_policy.is_some() && !matches!(args.approval, None | Some(ApprovalArg::Policy)) {
        anyhow::bail!("use `--approval-policy`, which goes with `--approval policy` alone");
    }
    let mut settings = Settings::default();
    settings.workspace = place.workspace;
    settings.state_dir = place.state_dir;
    settings.kernel.python = args.python;
    settings.approval.timeout = args.approval_timeout;
    settings.approval.mode = match (args.approval, args.approval_policy) {
        (Some(ApprovalArg::Ask), _) => ApprovalMode::Ask,
        (Some(ApprovalArg::Deny), _) => ApprovalMode::Deny,
        (_, Some(file)) => ApprovalMode::Policy(file),
        (None | Some(ApprovalArg::Auto | ApprovalArg::Policy), None) => ApprovalMode::Auto,
    };
    settings.sandbox = (!args.no_sandbox).then(|| {
        let mut sandbox = SandboxSettings::default();
        sandbox.backend = args.sandbox_backend.unwrap_or(BackendArg::Srt).into();
        sandbox.config = args.sandbox_config;
        sandbox.hide = args.sandbox_hide;
        sandbox.gateway_program = std::env::current_exe().ok();
        sandbox
    });
    // The client's own sandbox is about its own commands.
    settings.ignore_client_sandbox = true;
    settings.limits.memory = args.limit_memory;
    settings.limits.cpu = args.limit_cpu;
    settings.limits.processes = args.limit_processes;
    settings.limits.disk = args.limit_disk;
    settings.audit.file = args.audit_log;
    if args.audit_contents {
        settings.audit.contents = AuditContents::Everything;
    }
    let mut options = ServeActionsOptions::new(settings);
    options.timeout = args.timeout;
    options.published = args.published;
    options.front = args.front;
    let runtime = multi_threaded()?;
    let served = runtime.block_on(exporting(Box::pin(serve_actions(options))));
    // A read of a terminal cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    Ok(served?)
}
