//! The flags of the server.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ipybox::{
    ApprovalMode, AuditContents, ChangesMode, RemoteHeader, RemoteHeaderValue, RemoteSettings,
    SandboxSettings, Settings,
};

use super::claim_args::ClaimArgs;
use super::headings::{APPROVAL, AUDIT, LIMITS, REMOTE, SANDBOX, SERVERS, SESSION};
use super::hub_args::HubArgs;
use super::reply_args::ReplyArgs;
use super::session_args::LastingArgs;
use super::values::{processors, seconds, size, size_or_none};

/// The flags of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Working directory of the kernel; created if missing
    #[arg(long, help_heading = SESSION, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Run the kernel in a sandbox; `ipybox doctor` says what it needs
    #[arg(long, help_heading = SANDBOX)]
    pub(crate) sandbox: bool,

    /// What code in the sandbox may do, in the settings format of Anthropic's sandbox-runtime; relative to the workspace
    /// [default: read all but secrets, write the workspace, no network]
    #[arg(long, help_heading = SANDBOX, value_name = "FILE", requires = "sandbox")]
    pub(crate) sandbox_config: Option<PathBuf>,

    /// Add `sandbox-config.json` in the workspace to the default policy, if it is there; what it opens has to be allowed by
    /// `ipybox sandbox-policy`
    #[arg(long, help_heading = SANDBOX, requires = "sandbox", conflicts_with = "sandbox_config")]
    pub(crate) sandbox_workspace_config: bool,

    /// Accept a workspace that is the home directory, or contains it: code in the sandbox can then write the files that your
    /// shell, desktop and tools obey
    #[arg(long, help_heading = SANDBOX, requires = "sandbox")]
    pub(crate) allow_home_workspace: bool,

    /// What makes the sandbox [default: srt]
    #[arg(long, help_heading = SANDBOX, value_name = "BACKEND", requires = "sandbox")]
    pub(crate) sandbox_backend: Option<BackendArg>,

    /// A domain that packages may be installed from in the sandbox, beside those that uv and pip are configured for;
    /// may be given several times
    #[arg(long, help_heading = SANDBOX, value_name = "DOMAIN", requires = "sandbox")]
    pub(crate) sandbox_install_domain: Vec<String>,

    /// A file or directory that code in the sandbox does not see, but for what the policy opens in it; may be given several
    /// times
    #[arg(long, help_heading = SANDBOX, value_name = "PATH", requires = "sandbox")]
    pub(crate) sandbox_hide: Vec<PathBuf>,

    /// When what code writes in the workspace is there; `ask` needs the backend bwrap [default: write]
    #[arg(long, help_heading = SANDBOX, value_name = "WHEN", requires = "sandbox")]
    pub(crate) changes: Option<ChangesArg>,

    /// Give code in the kernel what you may, also if the MCP client restricts its own commands and tells servers so, as Codex does
    #[arg(long, help_heading = SANDBOX)]
    pub(crate) ignore_client_sandbox: bool,

    /// Run the kernel on the Jupyter Server, Kernel Gateway or Enterprise Gateway at this URL, which includes its base path
    #[arg(
        long,
        help_heading = REMOTE,
        value_name = "URL",
        group = "kernel_server",
        conflicts_with_all = ["sandbox", "python", "checkpoint", "tool_server_host", "tool_server_port"]
    )]
    pub(crate) kernel_gateway_url: Option<String>,

    #[command(flatten)]
    pub(crate) hub: HubArgs,

    /// Run the kernel in the pod at this URL, where `ipybox pod` waits for a session
    #[arg(
        long,
        help_heading = REMOTE,
        value_name = "URL",
        group = "kernel_server",
        conflicts_with_all = ["sandbox", "python"]
    )]
    pub(crate) kernel_pod_url: Option<String>,

    /// Environment variable that holds the pod's token, if it has one
    #[arg(long, help_heading = REMOTE, value_name = "VAR", requires = "kernel_pod_url")]
    pub(crate) kernel_pod_token_env: Option<String>,

    #[command(flatten)]
    pub(crate) claims: ClaimArgs,

    /// Environment variable that holds the server's token; a value with a blank is the whole Authorization header
    #[arg(long, help_heading = REMOTE, value_name = "VAR", requires = "kernel_gateway_url")]
    pub(crate) kernel_gateway_token_env: Option<String>,

    /// Header of each request to the server, and the environment variable that holds its value; may be given several times.
    /// `Authorization` may be one, in place of the token
    #[arg(long, help_heading = REMOTE, value_name = "NAME=VAR", requires = "kernel_server")]
    pub(crate) kernel_gateway_header_env: Vec<String>,

    /// File with certificates in PEM to trust beside the system's
    #[arg(long, help_heading = REMOTE, value_name = "FILE", requires = "kernel_server")]
    pub(crate) kernel_gateway_ca: Option<PathBuf>,

    /// Kernel spec to start there [default: the server's]
    #[arg(long, help_heading = REMOTE, value_name = "NAME", requires = "kernel_server")]
    pub(crate) kernel_name: Option<String>,

    #[command(flatten)]
    pub(crate) reply: ReplyArgs,

    /// Host that the tool server listens on; a loopback address
    #[arg(long, help_heading = SERVERS, value_name = "HOST", default_value = "localhost")]
    pub(crate) tool_server_host: String,

    /// Port that the tool server listens on [default: a free one]
    #[arg(long, help_heading = SERVERS, value_name = "PORT")]
    pub(crate) tool_server_port: Option<u16>,

    /// How long a registration or a tool call waits for an MCP server to start, in seconds; it then goes on to start in
    /// the background. `timeout` in the server's parameters wins
    #[arg(long, help_heading = SERVERS, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,

    /// Python interpreter (3.10 or newer, with ipython and pydantic) that runs the kernel [default: an
    /// environment made for the workspace]
    #[arg(long, help_heading = SESSION, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,

    /// Start every kernel from scratch, also after a reset and for a new session, which takes longer; kernels then share
    /// neither their layout of memory nor their hash seed
    #[arg(long, help_heading = SESSION, conflicts_with = "kernel_server")]
    pub(crate) cold_start: bool,

    /// Have each copy of a session work in a copy of the workspace, whose changes `ipybox changes` shows and applies
    #[arg(long, help_heading = SESSION, conflicts_with_all = ["sandbox", "kernel_server"])]
    pub(crate) branch_files: bool,

    /// Directory for registered servers and Python environments, outside the workspace [default:
    /// $IPYBOX_STATE_DIR, else `ipybox` in your data directory]
    #[arg(long, help_heading = SESSION, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// A configuration file of an MCP client, whose servers are registered at the start; may be given several times. Beside
    /// a sandbox, somebody must agree to what a file in the workspace offers
    #[arg(long, help_heading = SERVERS, value_name = "FILE")]
    pub(crate) mcp_config: Vec<PathBuf>,

    /// Who decides whether a tool call, a registration or an installation may run [default: policy with a policy
    /// file, else auto]
    #[arg(long, help_heading = APPROVAL, value_name = "HOW")]
    pub(crate) approval: Option<ApprovalArg>,

    /// Rules that decide, in TOML
    #[arg(long, help_heading = APPROVAL, value_name = "FILE", required_if_eq("approval", "policy"))]
    pub(crate) approval_policy: Option<PathBuf>,

    /// How long a question waits for its answer, in seconds; then the call is rejected
    #[arg(long, help_heading = APPROVAL, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) approval_timeout: Duration,

    /// Serve a page on this machine on which calls are decided, too: with all arguments, and many calls at once. Its address
    /// and the code that opens it are on stderr, and in what the client asks
    #[arg(long, help_heading = APPROVAL)]
    pub(crate) approval_ui: bool,

    /// Memory of the whole session, its kernel and all that this starts, and files in shared memory: bytes, or with K, M, G or T;
    /// Linux only [default: no limit; 3/4 of the machine's in a sandbox]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE", value_parser = size, conflicts_with = "kernel_server")]
    pub(crate) limit_memory: Option<u64>,

    /// Processor time of the whole session, in processors: 2, or 0.5 for half of one; Linux only [default: no limit]
    #[arg(long, help_heading = LIMITS, value_name = "N", value_parser = processors, conflicts_with = "kernel_server")]
    pub(crate) limit_cpu: Option<f64>,

    /// Processes and threads of the whole session; Linux only [default: no limit; 1024 in a sandbox]
    #[arg(
        long,
        help_heading = LIMITS,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "kernel_server"
    )]
    pub(crate) limit_processes: Option<u32>,

    /// Disk of the whole session: its temporary files, and what it adds to the workspace: bytes, or with K, M, G or T [default: no
    /// limit; in a sandbox 16G of temporary files, or 3/4 of what is free]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE", value_parser = size, conflicts_with = "kernel_server")]
    pub(crate) limit_disk: Option<u64>,

    /// Memory that the states of the kernel before its last cells may take, which `reset` can bring back, with what the kernel
    /// changes afterwards: bytes, or with K, M, G or T; 0 keeps none; Linux only [default: 512M, and 1/4 of `--limit-memory` at
    /// most]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE", value_parser = size_or_none, conflicts_with = "kernel_server")]
    pub(crate) undo_memory: Option<u64>,

    /// Memory of the kernel and of each process that it starts: bytes, or with K, M, G or T; multiples of 1024; Linux
    /// only [default: that of the session]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE", value_parser = size)]
    pub(crate) kernel_memory_limit: Option<u64>,

    /// How many processes and threads the kernel may add to those that you run when it starts; Linux only, and does not
    /// bind root [default: no limit]
    #[arg(long, help_heading = LIMITS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) kernel_max_processes: Option<u32>,

    /// Size to which a file can grow that the kernel writes: bytes, or with K, M, G or T; Linux only [default: no limit;
    /// 16G in a sandbox]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE", value_parser = size)]
    pub(crate) kernel_max_file_size: Option<u64>,

    /// Ask for approval of shell commands: !command, %%bash and the like
    #[arg(long, help_heading = APPROVAL)]
    pub(crate) approve_shell_cmds: bool,

    /// Block Python's functions that start programs, so that code uses shell commands; no boundary, which only a
    /// sandbox is
    #[arg(long, help_heading = APPROVAL, requires = "approve_shell_cmds")]
    pub(crate) require_shell_escape: bool,

    #[command(flatten)]
    pub(crate) lasting: LastingArgs,

    /// Append a line of JSON for each cell, tool call and decision to this file, outside the workspace
    #[arg(long, help_heading = AUDIT, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,

    /// Record code, output and results in the audit log too, beside arguments
    #[arg(long, help_heading = AUDIT, requires = "audit_log")]
    pub(crate) audit_contents: bool,

    /// Size at which the audit log is renamed to FILE.1 and begun anew; five such files are kept [default: 10M]
    #[arg(long, help_heading = AUDIT, value_name = "SIZE", value_parser = size, requires = "audit_log")]
    pub(crate) audit_max_bytes: Option<u64>,
}

/// The memory that states of the kernel may take, in bytes. A small session's take 32 MB.
const UNDO_MEMORY: u64 = if cfg!(target_os = "linux") { 512 * 1024 * 1024 } else { 0 };

/// The flags of `ipybox session-keeper`.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionKeeperArgs {
    #[command(flatten)]
    pub(crate) serve: Box<ServeArgs>,

    /// The entry of the session, which the relay has made
    #[arg(long, value_name = "DIR")]
    pub(crate) entry: PathBuf,
}

/// Who decides whether something may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalArg {
    /// Everything runs
    Auto,
    /// The user is asked, through the MCP client (elicitation)
    Ask,
    /// Nothing runs
    Deny,
    /// The rules in `--approval-policy` decide
    Policy,
}

/// When what code writes in the workspace is there.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ChangesArg {
    /// At once
    Write,
    /// When you have applied it by `ipybox changes`: code writes to a copy of the workspace
    Ask,
}

/// The program that makes the sandbox.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum BackendArg {
    /// Anthropic's sandbox-runtime
    Srt,
    /// Bubblewrap, directly: Linux only, needs no Node.js
    Bwrap,
}

impl From<BackendArg> for ipybox::SandboxBackend {
    fn from(backend: BackendArg) -> Self {
        match backend {
            BackendArg::Srt => Self::Srt,
            BackendArg::Bwrap => Self::Bubblewrap,
        }
    }
}

/// The header in `NAME=VAR`. What is wrong with it is found where no error repeats it: it may be a secret by mistake.
fn header(text: &str) -> RemoteHeader {
    let (name, variable) = text.split_once('=').unwrap_or((text, ""));
    RemoteHeader { name: name.to_owned(), value: RemoteHeaderValue::Variable(variable.to_owned()) }
}

impl From<ServeArgs> for Settings {
    fn from(args: ServeArgs) -> Self {
        let mut settings = Self::default();
        settings.workspace = args.workspace;
        settings.kernel.python = args.python;
        settings.kernel.cold_start = args.cold_start;
        settings.branch_files = args.branch_files;
        settings.state_dir = args.state_dir;
        settings.tool_server.host = args.tool_server_host;
        settings.tool_server.port = args.tool_server_port;
        settings.tool_server.connect_timeout = args.connect_timeout;
        args.reply.apply(&mut settings);
        settings.approval.timeout = args.approval_timeout;
        settings.approval.page = args.approval_ui;
        settings.approval.mode = match (args.approval, args.approval_policy) {
            (Some(ApprovalArg::Ask), _) => ApprovalMode::Ask,
            (Some(ApprovalArg::Deny), _) => ApprovalMode::Deny,
            (None | Some(ApprovalArg::Policy), Some(file)) => ApprovalMode::Policy(file),
            (None | Some(ApprovalArg::Auto | ApprovalArg::Policy), _) => ApprovalMode::Auto,
        };
        settings.sandbox = args.sandbox.then(|| {
            let mut sandbox = SandboxSettings::default();
            sandbox.config = args.sandbox_config;
            sandbox.workspace_config = args.sandbox_workspace_config;
            sandbox.allow_home_workspace = args.allow_home_workspace;
            sandbox.install_domains = args.sandbox_install_domain;
            sandbox.hide = args.sandbox_hide;
            sandbox.backend = args.sandbox_backend.unwrap_or(BackendArg::Srt).into();
            sandbox.changes = match args.changes {
                Some(ChangesArg::Ask) => ChangesMode::Ask,
                Some(ChangesArg::Write) | None => ChangesMode::Write,
            };
            sandbox.gateway_program = std::env::current_exe().ok();
            sandbox
        });
        settings.ignore_client_sandbox = args.ignore_client_sandbox;
        let hub = args.hub.hub();
        let is_pod = args.kernel_pod_url.is_some();
        let pool = args.claims.pool();
        // Without a router, sandboxes have addresses of their own.
        let of_pool = pool.as_ref().map(|_| args.claims.kernel_router_url.unwrap_or_default());
        let url = args.hub.kernel_hub_url.or(args.kernel_gateway_url).or(args.kernel_pod_url).or(of_pool);
        settings.remote = url.map(|url| {
            let mut remote = RemoteSettings::new(url);
            remote.is_pod = is_pod || pool.is_some();
            remote.pod_token_env = args.kernel_pod_token_env;
            remote.pool = pool;
            remote.hub = hub;
            remote.token_env = args
                .hub
                .kernel_hub_token_env
                .or(args.kernel_gateway_token_env)
                .or(args.claims.kernel_router_token_env);
            remote.token_of_team = args.hub.kernel_hub_token_team;
            remote.kernel_name = args.kernel_name;
            remote.ca = args.kernel_gateway_ca;
            remote.headers = args.kernel_gateway_header_env.iter().map(|text| header(text)).collect();
            remote
        });
        settings.limits.memory = args.limit_memory;
        settings.limits.cpu = args.limit_cpu;
        settings.limits.processes = args.limit_processes;
        settings.limits.disk = args.limit_disk;
        settings.undo_memory = args.undo_memory.unwrap_or(UNDO_MEMORY);
        settings.kernel.memory_limit = args.kernel_memory_limit;
        settings.kernel.max_processes = args.kernel_max_processes;
        settings.kernel.max_file_size = args.kernel_max_file_size;
        settings.kernel.approve_shell_cmds = args.approve_shell_cmds;
        settings.kernel.require_shell_escape = args.require_shell_escape;
        settings.kernel.checkpoint = args.lasting.checkpoint;
        settings.kernel.idle_timeout = args.lasting.kernel_idle_timeout;
        if let Some(timeout) = args.lasting.kernel_exit_timeout {
            settings.kernel.exit_timeout = timeout;
        }
        settings.mcp_configs = args.mcp_config;
        settings.long_cells = args.lasting.long_cells;
        settings.audit.file = args.audit_log;
        settings.notebook = args.lasting.notebook.unwrap_or_default();
        settings.record = args.lasting.record;
        if args.audit_contents {
            settings.audit.contents = AuditContents::Everything;
        }
        if let Some(bytes) = args.audit_max_bytes {
            settings.audit.max_bytes = bytes;
        }
        settings
    }
}
