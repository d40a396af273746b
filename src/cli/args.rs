//! The flags.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::actions::ActionsArgs;
use super::audit::AuditArgs;
use super::changes::ChangesArgs;
use super::import::ImportArgs;
use super::notebook::NotebookArgs;
use super::play::PlayArgs;
use super::registered_args::{LoginArgs, LogoutArgs, ServersArgs};
use super::replay::ReplayArgs;
use super::sandbox_policy::SandboxPolicyArgs;
use super::search::SearchArgs;
use super::serve_args::{BackendArg, ServeArgs, SessionKeeperArgs};
use super::session_args::{AttachArgs, JoinArgs, SessionsArgs};
#[cfg(feature = "team")]
use super::team::TeamArgs;
use super::values::seconds;
use clap::{ArgGroup, Parser, Subcommand, ValueEnum};

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
    /// Run kernels for a session on another machine, in a container for instance
    ///
    /// Serves one session, and ends with it. It gets no credentials. Prints one line of JSON with its address when it listens.
    #[cfg(target_os = "linux")]
    Pod(PodArgs),
    /// Run the tools of MCP servers for code in other processes
    ///
    /// Prints one line of JSON when it listens: the address, and the tokens that it has made. Set
    /// IPYBOX_TOOL_SERVER_TOKEN and IPYBOX_TOOL_SERVER_HOST_TOKEN to choose the tokens. Ends on SIGTERM, SIGINT and SIGHUP.
    ToolServer(ToolServerArgs),
    /// List the saved actions of a workspace, show, test, remove, serve or export them
    Actions(ActionsArgs),
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
    /// List the sessions of `--keep-session`, show one, or end them
    Sessions(SessionsArgs),
    /// Run cells in the kernel of a kept session, and see those of its agent
    ///
    /// A prompt on a terminal; without one, stdin is run as one cell, and the exit status is 1 if it raises an exception. The
    /// session is one of a client whose ipybox was started with `--keep-session`. Ctrl-C interrupts your cell, Ctrl-D leaves,
    /// and the session goes on.
    Attach(AttachArgs),
    /// Serve a page in the browser on which the calls of a kept session are decided
    ///
    /// With all arguments, many calls at once, and what the session does. Prints the address of the page, and the code that it
    /// asks for. The session is one of a client whose ipybox was started with `--keep-session`. Ctrl-C ends the page, and the
    /// session goes on.
    Ui(JoinArgs),
    /// Hold a session for clients that come one after the other
    #[command(hide = true)]
    SessionKeeper(SessionKeeperArgs),
    /// Read an audit log: verify that it is whole, and report what sessions did
    ///
    /// Ends with 0 if the log is whole, with 1 if something in it was edited, removed, inserted, cut or moved, or it cannot be
    /// read, and with 3 if it is whole as far as it goes: the log begins after other records, or a session has no last one.
    Audit(AuditArgs),
    /// Show what sessions with `--changes ask`, and copies with `--branch-files`, have changed, and apply or discard it
    ///
    /// Code of such a session writes to a copy of the workspace. `apply` writes what was shown last: what code has changed since
    /// then is refused. Ends with 1 if something was refused.
    Changes(ChangesArgs),
    /// Print the path of a session's notebook, for Jupyter's programs
    ///
    /// Of a kept session, or of one with `--notebook auto`: `jupyter nbconvert --to html --output-dir . "$(ipybox notebook)"`.
    Notebook(NotebookArgs),
    /// Run a recorded session again, its tool calls answered from the recording, and report what differs
    ///
    /// Needs no servers and no keys. The code runs for real, in a new directory: read a recording of somebody else before, or use
    /// `--sandbox`. Ends with 0 if all cells and calls are as recorded, and with 1 if not.
    Replay(ReplayArgs),
    /// Serve a recorded MCP server on stdin and stdout
    Play(PlayArgs),
    /// Check whether ipybox can run here, with a sandbox or without, and how to fix what is missing
    ///
    /// Tries what it reports, and leaves nothing behind. Ends with 0 if ipybox can run: without a sandbox, and with one
    /// too if `--sandbox` is given. Ends with 1 otherwise.
    Doctor(DoctorArgs),
    /// Register the MCP servers that are configured in other clients
    ///
    /// Shows them, asks which to take, and keeps secrets in clear text apart. Ends with 0 if all that was chosen is
    /// registered, with 1 if a registration failed, a file cannot be used, or nobody could be asked.
    Import(ImportArgs),
    /// Show what the workspace's own sandbox policy opens beyond the default, and allow it
    ///
    /// `--sandbox-workspace-config` refuses a `sandbox-config.json` that opens more than the default, until its content is
    /// allowed here. Asks on a terminal. Ends with 0 if the policy can be used, with 1 otherwise.
    SandboxPolicy(SandboxPolicyArgs),
    /// Serve many users by HTTP, each with a login, sessions, credentials and a log of their own
    #[cfg(feature = "team")]
    Team(TeamArgs),
}

/// The flags of `ipybox pod`.
#[cfg(target_os = "linux")]
#[derive(Debug, clap::Args)]
pub(crate) struct PodArgs {
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8888")]
    pub(crate) listen: std::net::SocketAddr,

    /// Working directory of kernels
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Python interpreter that runs kernels; it has IPython
    #[arg(long, value_name = "PATH", default_value = "python3")]
    pub(crate) python: PathBuf,

    /// Environment variable with the token of who may take it
    #[arg(long, value_name = "VAR", required_unless_present = "first_come")]
    pub(crate) token_env: Option<String>,

    /// Serve the first session that connects, without a token: for a network in which nobody else can
    #[arg(long, conflicts_with = "token_env")]
    pub(crate) first_come: bool,

    /// File with certificates in PEM, for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// File with their private key
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,

    #[arg(long, hide = true)]
    pub(crate) child_of_first: bool,

    /// Seconds that the session may be away before everything ends
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "3600")]
    pub(crate) lease: Duration,
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

    /// Check the configuration of a team server, and all that it needs, instead
    #[cfg(feature = "team")]
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) team: Option<PathBuf>,

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
    pub(crate) sandbox_backend: Option<BackendArg>,
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

/// A tool and a file, as `TOOL=FILE`.
fn result_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((tool, file)) if !tool.is_empty() && !file.is_empty() => Ok((tool.to_owned(), file.into())),
        _ => Err("not of the form TOOL=FILE".to_owned()),
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
