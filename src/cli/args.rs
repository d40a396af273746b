//! The flags.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::audit::AuditArgs;
use super::export::ExportArgs;
use super::import::ImportArgs;
use super::reply_args::ReplyArgs;
use super::search::SearchArgs;
use super::server_args::{LoginArgs, LogoutArgs, ServersArgs};
use super::session_args::{JoinArgs, LastingArgs, SessionKeeperArgs, SessionsArgs};
use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use ipybox::{ApprovalMode, AuditContents, RemoteSettings, SandboxSettings, Settings};

/// MCP server (stdio) that gives AI agents a stateful IPython kernel with programmatic MCP tool calling
///
/// Started by an MCP client; see the entry for its configuration by running it on a terminal.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    /// The least severe messages to log, on stderr
    #[arg(long, value_name = "LEVEL", default_value = "INFO", ignore_case = true, global = true)]
    pub(crate) log_level: LogLevel,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Generate the Python API for an MCP server's tools, without a session
    Apigen(ApigenArgs),
    /// Serve the library on stdin and stdout, for the Python package
    #[command(hide = true)]
    JsonRpc,
    /// Run inside a sandbox, for the ipybox outside
    #[command(hide = true)]
    SandboxGateway,
    /// Become a program, locked in as code in a sandbox is
    #[command(hide = true)]
    SandboxExec(SandboxExecArgs),
    /// Run the tools of MCP servers for code in other processes
    ///
    /// Prints one line of JSON when it listens: the address, and the tokens that it has made. Set
    /// IPYBOX_TOOL_SERVER_TOKEN and IPYBOX_TOOL_SERVER_HOST_TOKEN to choose the tokens. Ends on SIGTERM, SIGINT and SIGHUP.
    ToolServer(ToolServerArgs),
    /// Find tools of the MCP servers that are registered in a workspace, and print how code calls them
    ///
    /// What `search` of `mcptools` does in the kernel. Starts and writes nothing.
    Search(SearchArgs),
    /// Log in to an MCP server behind OAuth
    ///
    /// Opens the page of its authorization server in $BROWSER or the system's browser, which brings the answer back to this
    /// command. The token is kept in the system's keyring, or where there is none, in the state directory; sessions renew it.
    Login(LoginArgs),
    /// Forget the login to an MCP server
    Logout(LogoutArgs),
    /// List the registered MCP servers with their logins, try one, or remove one
    Servers(ServersArgs),
    /// List the sessions that are kept without a client, show one, or end them
    Sessions(SessionsArgs),
    /// Run cells in the kernel of a kept session, and see those of its agent
    ///
    /// A prompt on a terminal; without one, stdin is run as one cell, and the exit status is 1 if it raises an exception. The
    /// session is one of a client whose ipybox was started with `--keep-session`. Ctrl-C interrupts your cell, Ctrl-D leaves,
    /// and the session goes on.
    Attach(JoinArgs),
    /// Serve a page in the browser on which the calls of a kept session are decided
    ///
    /// With all arguments, many calls at once, and what the session does. Prints the address of the page, and the code that it
    /// asks for. The session is one of a client whose ipybox was started with `--keep-session`. Ctrl-C ends the page, and the
    /// session goes on.
    Ui(JoinArgs),
    /// Hold a session for clients that come one after the other
    #[command(hide = true)]
    SessionKeeper(SessionKeeperArgs),
    /// Read an audit log: verify that it is whole, and tell what sessions did
    ///
    /// Ends with 0 if the log is whole, with 1 if something in it was edited, removed, inserted, cut or moved, or it cannot be
    /// read, and with 3 if it is whole as far as it goes: the log begins after other records, or a session has no last one.
    Audit(AuditArgs),
    /// Make a Python file, Markdown or a page of the notebook of a session
    Export(ExportArgs),
    /// Tell whether ipybox can run here, with a sandbox or without, and what mends what is missing
    ///
    /// Tries what it tells, and leaves nothing behind. Ends with 0 if ipybox can run: without a sandbox, and with one
    /// too if `--sandbox` is given. Ends with 1 otherwise.
    Doctor(DoctorArgs),
    /// Register the MCP servers that are configured in other clients
    ///
    /// Shows them, asks which to take, and keeps secrets in clear text apart. Ends with 0 if all that was chosen is
    /// registered, with 1 if a registration failed, a file cannot be used, or nobody could be asked.
    Import(ImportArgs),
}

/// The flags of `ipybox doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON, whose keys do not change
    #[arg(long)]
    pub(crate) json: bool,

    /// Working directory that the kernel would have
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Python interpreter that would run the kernel
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,

    /// Directory that would hold registered servers and Python environments
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// End with 1 if the sandbox would not start
    #[arg(long)]
    pub(crate) sandbox: bool,

    /// The sandbox that has to start [default: srt]; implies `--sandbox`
    #[arg(long, value_name = "NAME")]
    pub(crate) sandbox_backend: Option<Backend>,
}

/// What makes the sandbox.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Backend {
    /// Anthropic's sandbox-runtime
    Srt,
    /// Bubblewrap, directly: Linux only, needs no Node.js
    Bwrap,
}

impl From<Backend> for ipybox::SandboxBackend {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Srt => Self::Srt,
            Backend::Bwrap => Self::Bubblewrap,
        }
    }
}

/// The flags of `ipybox apigen`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("source").required(true)))]
pub(crate) struct ApigenArgs {
    /// Name of the generated package: a lower-case Python identifier
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: String,

    /// Parent directory of the package, usually `mcptools` in a workspace; created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) root_dir: PathBuf,

    /// How to reach the server, as for the tool `register_mcp_server`
    #[arg(long, value_name = "JSON", group = "source")]
    pub(crate) server_params: Option<String>,

    /// A file with the result of `tools/list`: {"tools": […]}
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) tools: Option<PathBuf>,

    /// Infer a tool's result type from a result that `run` has returned, in FILE; may be given several times
    ///
    /// The tool's module then has `ParseResult` and `run_parsed`. For tools that declare no output schema and return JSON
    /// as text.
    #[arg(long, value_name = "TOOL=FILE", value_parser = result_file)]
    pub(crate) infer: Vec<(String, PathBuf)>,

    /// Generate `async def run` (and `run_sync`) instead of `def run` (and `run_async`)
    #[arg(long = "async")]
    pub(crate) is_async: bool,
}

/// The arguments of `ipybox sandbox-exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct SandboxExecArgs {
    /// What stays open, as JSON
    pub(crate) hardening: String,

    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// The flags of `ipybox tool-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct ToolServerArgs {
    /// Host to listen on; a loopback address
    #[arg(long, value_name = "HOST", default_value = "localhost")]
    pub(crate) host: String,

    /// Port to listen on; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 8900)]
    pub(crate) port: u16,

    /// Ask the approval client before each call, and fail without one
    #[arg(long)]
    pub(crate) approval_required: bool,

    /// Rules that decide what is asked for, in TOML
    #[arg(long, value_name = "FILE", conflicts_with = "approval_required")]
    pub(crate) approval_policy: Option<PathBuf>,

    /// How long a call waits for approval, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) approval_timeout: Duration,

    /// How long a call waits for an MCP server to start, in seconds; it then goes on to start in the background
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,
}

/// The flags of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Working directory of the kernel; created if missing
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Run the kernel in a sandbox; `ipybox doctor` says what it needs
    #[arg(long)]
    pub(crate) sandbox: bool,

    /// What code in the sandbox may do, in the settings format of Anthropic's sandbox-runtime; relative to the workspace
    /// [default: read all but secrets, write the workspace, no network]
    #[arg(long, value_name = "FILE", requires = "sandbox")]
    pub(crate) sandbox_config: Option<PathBuf>,

    /// Take `sandbox-config.json` in the workspace for `--sandbox-config`, if it is there; code in a sandbox cannot write it
    #[arg(long, requires = "sandbox", conflicts_with = "sandbox_config")]
    pub(crate) sandbox_workspace_config: bool,

    /// Accept a workspace that is the home directory, or contains it: code in the sandbox can then write the files that your
    /// shell, desktop and tools obey
    #[arg(long, requires = "sandbox")]
    pub(crate) allow_home_workspace: bool,

    /// What makes the sandbox [default: srt]
    #[arg(long, value_name = "BACKEND", requires = "sandbox")]
    pub(crate) sandbox_backend: Option<Backend>,

    /// A domain that packages may be installed from in the sandbox, beside those that uv and pip are configured for;
    /// may be given several times
    #[arg(long, value_name = "DOMAIN", requires = "sandbox")]
    pub(crate) sandbox_install_domain: Vec<String>,

    /// Run the kernel on the Jupyter Server, Kernel Gateway or Enterprise Gateway at this URL, which includes its base path
    #[arg(
        long,
        value_name = "URL",
        conflicts_with_all = ["sandbox", "python", "checkpoint", "tool_server_host", "tool_server_port"]
    )]
    pub(crate) kernel_gateway_url: Option<String>,

    /// Environment variable that holds the server's token; a value with a blank is the whole Authorization header
    #[arg(long, value_name = "VAR", requires = "kernel_gateway_url")]
    pub(crate) kernel_gateway_token_env: Option<String>,

    /// File with certificates in PEM to trust beside the system's
    #[arg(long, value_name = "FILE", requires = "kernel_gateway_url")]
    pub(crate) kernel_gateway_ca: Option<PathBuf>,

    /// Kernel spec to start there [default: the server's]
    #[arg(long, value_name = "NAME", requires = "kernel_gateway_url")]
    pub(crate) kernel_name: Option<String>,

    #[command(flatten)]
    pub(crate) reply: ReplyArgs,

    /// Host that the tool server listens on; a loopback address
    #[arg(long, value_name = "HOST", default_value = "localhost")]
    pub(crate) tool_server_host: String,

    /// Port that the tool server listens on [default: a free one]
    #[arg(long, value_name = "PORT")]
    pub(crate) tool_server_port: Option<u16>,

    /// How long a registration or a tool call waits for an MCP server to start, in seconds; it then goes on to start in
    /// the background. `timeout` in the server's parameters wins
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,

    /// Python interpreter (3.10 or newer, with ipython and pydantic) that runs the kernel [default: an
    /// environment made for the workspace]
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,

    /// Directory for registered servers and Python environments, outside the workspace [default:
    /// $IPYBOX_STATE_DIR, else `ipybox` in your data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// A configuration file of an MCP client, whose servers are registered at the start; may be given several times. Beside
    /// a sandbox, somebody must agree to what a file in the workspace offers
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp_config: Vec<PathBuf>,

    /// Who decides whether a tool call, a registration or an installation may run [default: policy with a policy
    /// file, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) approval: Option<Approval>,

    /// Rules that decide, in TOML
    #[arg(long, value_name = "FILE", required_if_eq("approval", "policy"))]
    pub(crate) approval_policy: Option<PathBuf>,

    /// How long a question waits for its answer, in seconds; then the call is rejected
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) approval_timeout: Duration,

    /// Serve a page on this machine on which calls are decided, too: with all arguments, and many calls at once. Its address
    /// and the code that opens it are on stderr, and in what a client asks that can open pages
    #[arg(long)]
    pub(crate) approval_ui: bool,

    /// Memory of the kernel and of each process that it starts: bytes, or with K, M, G or T; multiples of 1024; Linux
    /// only [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = super::size::parse)]
    pub(crate) kernel_memory_limit: Option<u64>,

    /// How many processes and threads the kernel may add to those that you run when it starts; Linux only, and does not
    /// bind root [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) kernel_max_processes: Option<u32>,

    /// Size to which a file can grow that the kernel writes: bytes, or with K, M, G or T; Linux only [default: no limit;
    /// 16G in a sandbox]
    #[arg(long, value_name = "SIZE", value_parser = super::size::parse)]
    pub(crate) kernel_max_file_size: Option<u64>,

    /// Ask for approval of shell commands: !command, %%bash and the like
    #[arg(long)]
    pub(crate) approve_shell_cmds: bool,

    /// Block Python's functions that start programs, so that code uses shell commands; no boundary, which only a
    /// sandbox is
    #[arg(long, requires = "approve_shell_cmds")]
    pub(crate) require_shell_escape: bool,

    #[command(flatten)]
    pub(crate) lasting: LastingArgs,

    /// Append a line of JSON for each cell, tool call and decision to this file, outside the workspace
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,

    /// Let the audit log tell code, output and results too, beside arguments
    #[arg(long, requires = "audit_log")]
    pub(crate) audit_contents: bool,

    /// Size at which the audit log is renamed to FILE.1 and begun anew; five such files are kept [default: 10M]
    #[arg(long, value_name = "SIZE", value_parser = super::size::parse, requires = "audit_log")]
    pub(crate) audit_max_bytes: Option<u64>,
}

/// Who decides whether something may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approval {
    /// Everything runs
    Auto,
    /// The user is asked, through the MCP client (elicitation)
    Ask,
    /// Nothing runs
    Deny,
    /// The rules in `--approval-policy` decide
    Policy,
}

/// The names that Python's logging has for its levels.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
    Critical,
}

impl From<ServeArgs> for Settings {
    fn from(args: ServeArgs) -> Self {
        let mut settings = Self::default();
        settings.workspace = args.workspace;
        settings.kernel.python = args.python;
        settings.state_dir = args.state_dir;
        settings.tool_server.host = args.tool_server_host;
        settings.tool_server.port = args.tool_server_port;
        settings.tool_server.connect_timeout = args.connect_timeout;
        args.reply.apply(&mut settings);
        settings.approval.timeout = args.approval_timeout;
        settings.approval.page = args.approval_ui;
        settings.approval.mode = match (args.approval, args.approval_policy) {
            (Some(Approval::Ask), _) => ApprovalMode::Ask,
            (Some(Approval::Deny), _) => ApprovalMode::Deny,
            (None | Some(Approval::Policy), Some(file)) => ApprovalMode::Policy(file),
            (None | Some(Approval::Auto | Approval::Policy), _) => ApprovalMode::Auto,
        };
        settings.sandbox = args.sandbox.then(|| {
            let mut sandbox = SandboxSettings::default();
            sandbox.config = args.sandbox_config;
            sandbox.workspace_config = args.sandbox_workspace_config;
            sandbox.allow_home_workspace = args.allow_home_workspace;
            sandbox.install_domains = args.sandbox_install_domain;
            sandbox.backend = args.sandbox_backend.unwrap_or(Backend::Srt).into();
            sandbox.gateway_program = std::env::current_exe().ok();
            sandbox
        });
        settings.remote = args.kernel_gateway_url.map(|url| {
            let mut remote = RemoteSettings::new(url);
            remote.token_env = args.kernel_gateway_token_env;
            remote.kernel_name = args.kernel_name;
            remote.ca = args.kernel_gateway_ca;
            remote
        });
        settings.kernel.memory_limit = args.kernel_memory_limit;
        settings.kernel.max_processes = args.kernel_max_processes;
        settings.kernel.max_file_size = args.kernel_max_file_size;
        settings.kernel.approve_shell_cmds = args.approve_shell_cmds;
        settings.kernel.require_shell_escape = args.require_shell_escape;
        settings.kernel.checkpoint = args.lasting.checkpoint;
        settings.mcp_configs = args.mcp_config;
        settings.long_cells = args.lasting.long_cells;
        settings.audit.file = args.audit_log;
        settings.notebook = args.lasting.notebook.unwrap_or_default();
        if args.audit_contents {
            settings.audit.contents = AuditContents::Everything;
        }
        if let Some(bytes) = args.audit_max_bytes {
            settings.audit.max_bytes = bytes;
        }
        settings
    }
}

/// A tool and a file, as `TOOL=FILE`.
fn result_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((tool, file)) if !tool.is_empty() && !file.is_empty() => Ok((tool.to_owned(), file.into())),
        _ => Err("not of the form TOOL=FILE".to_owned()),
    }
}

/// A positive number of seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("not a positive number of seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_log_level_is_taken_in_any_case() {
        let args = Args::try_parse_from(["ipybox", "--log-level", "warning"]).unwrap();
        assert!(matches!(args.log_level, LogLevel::Warning));
    }
}
