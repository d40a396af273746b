//! The flags.

use std::path::PathBuf;

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use ipybox::Settings;

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
    /// Run the tools of MCP servers for code in other processes
    ///
    /// Prints one line of JSON when it listens: the address, and the tokens that it has made. Set
    /// IPYBOX_TOOL_SERVER_TOKEN and IPYBOX_TOOL_SERVER_HOST_TOKEN to choose the tokens. Ends on SIGTERM, SIGINT and SIGHUP.
    ToolServer(ToolServerArgs),
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

    /// Generate `async def run` (and `run_sync`) instead of `def run` (and `run_async`)
    #[arg(long = "async")]
    pub(crate) is_async: bool,
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

    /// How long a call waits for approval, in seconds
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) approval_timeout: u64,

    /// How long an MCP server may take to start, in seconds
    #[arg(long, value_name = "SECS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) connect_timeout: u64,
}

/// The flags of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Working directory of the kernel; created if missing
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Run the kernel in Anthropic's sandbox-runtime
    #[arg(long)]
    pub(crate) sandbox: bool,

    /// Sandbox settings in sandbox-runtime's format
    #[arg(long, value_name = "FILE")]
    pub(crate) sandbox_config: Option<PathBuf>,

    /// Whether replies show the images of a cell, besides links to their files
    #[arg(long, value_name = "HOW", default_value = "inline")]
    pub(crate) images: Images,

    /// Host that the tool server listens on; a loopback address
    #[arg(long, value_name = "HOST", default_value = "localhost")]
    pub(crate) tool_server_host: String,

    /// Port that the tool server listens on [default: a free one]
    #[arg(long, value_name = "PORT")]
    pub(crate) tool_server_port: Option<u16>,

    /// Python interpreter (3.10 or newer, with ipykernel and pydantic) that runs the kernel [default: an
    /// environment made for the workspace]
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,

    /// Directory for registered servers and Python environments, outside the workspace [default:
    /// $IPYBOX_STATE_DIR, else `ipybox` in your data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Memory of the kernel and of each process that it starts: bytes, or with K, M, G or T; multiples of 1024; Linux
    /// only [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = super::size::parse)]
    pub(crate) kernel_memory_limit: Option<u64>,

    /// How many processes and threads the kernel may add to those that you run when it starts; Linux only, and does not
    /// bind root [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) kernel_max_processes: Option<u32>,
}

/// What a cell's reply holds of its images.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Images {
    /// Up to 4 images of up to 1 MiB, scaled down to 1568 pixels
    Inline,
    /// Links alone
    Link,
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
        settings.python = args.python;
        settings.state_dir = args.state_dir;
        settings.tool_server_host = args.tool_server_host;
        settings.tool_server_port = args.tool_server_port;
        settings.images = match args.images {
            Images::Inline => ipybox::Images::Inline,
            Images::Link => ipybox::Images::Link,
        };
        settings.kernel_memory_limit = args.kernel_memory_limit;
        settings.kernel_max_processes = args.kernel_max_processes;
        settings
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
