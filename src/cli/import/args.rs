//! The flags of `ipybox import`.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::values::seconds;

/// The flags of `ipybox import`.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// Import these servers only, by their names in the list
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,

    /// Where to import from: claude-code, claude-desktop, cursor, vscode, codex, windsurf, gemini, or a file; may be given
    /// several times, the first wins [default: all that are here]
    #[arg(long, value_name = "CLIENT|FILE")]
    pub(super) from: Vec<String>,

    /// Import all without asking, and keep their secrets apart; servers from files that sandboxed code could write only by name
    #[arg(long, short)]
    pub(super) yes: bool,

    /// Show what would be imported, and start and write nothing
    #[arg(long, conflicts_with = "yes")]
    pub(super) dry_run: bool,

    /// Replace registrations of the same name that have other parameters
    #[arg(long)]
    pub(super) replace: bool,

    /// Print JSON; imports nothing without `--yes`
    #[arg(long)]
    pub(super) json: bool,

    /// Working directory of the kernel
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) workspace: PathBuf,

    /// Directory for registered servers and Python environments
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,

    /// Start servers as beside a sandbox: they read no code and no configuration that code in it could have written
    #[arg(long)]
    pub(super) sandbox: bool,

    /// How long a server may take to start, in seconds; `timeout` in its parameters wins
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub(super) connect_timeout: Duration,
}
