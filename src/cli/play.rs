//! `ipybox play`: a recorded server as an MCP server on stdin and stdout.

use std::path::PathBuf;

use clap::ValueEnum;
use ipybox::{PlayMatch, PlayOptions};

use super::single_threaded;

/// The flags of `ipybox play`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlayArgs {
    /// The recording that a session with `--record` has made
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The name of the server [default: the only one of the recording]
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,

    /// Make calls that the recording does not have at the living server, and add them to the recording
    #[arg(long)]
    pub(crate) update: bool,

    /// Workspace whose registered servers are the living ones
    #[arg(long, value_name = "DIR", default_value = ".", requires = "update")]
    pub(crate) workspace: PathBuf,

    /// Directory that holds registered servers
    #[arg(long, value_name = "DIR", requires = "update")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Rule by which a call is found in the recording
    #[arg(long = "match", value_enum, default_value_t = MatchArg::Arguments)]
    pub(crate) rule: MatchArg,
}

/// A rule by which a call is found.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum MatchArg {
    /// By tool and arguments, in the order recorded; the last answer is given again
    Arguments,
    /// In exactly the order recorded
    Order,
    /// By tool alone, in the order recorded; the last answer is given again
    Tool,
}

pub(super) fn run(args: PlayArgs) -> anyhow::Result<()> {
    let mut options = PlayOptions::new(args.file);
    options.rule = match args.rule {
        MatchArg::Arguments => PlayMatch::Arguments,
        MatchArg::Order => PlayMatch::Order,
        MatchArg::Tool => PlayMatch::Tool,
    };
    options.server = args.server;
    options.update = args.update;
    options.workspace = args.workspace;
    options.state_dir = args.state_dir;
    let runtime = single_threaded()?;
    let played = runtime.block_on(Box::pin(ipybox::play(options)));
    // A read of a terminal cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    Ok(played?)
}
