//! `ipybox search`: prints its answer on stdout.

use std::path::PathBuf;

use ipybox::{SearchQuery, search, state_directory};

/// The flags of `ipybox search`.
#[derive(Debug, clap::Args)]
pub(crate) struct SearchArgs {
    /// What the tool should do, in words; without it, the registered servers are listed
    #[arg(value_name = "WORDS")]
    pub(crate) query: Vec<String>,

    /// Search the tools of this server only; without words, its groups of tools are listed
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,

    /// The most tools to print, 1 to 50; one alone is explained
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    pub(crate) limit: usize,

    /// Working directory of the kernel
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

pub(super) fn run(args: SearchArgs) -> anyhow::Result<()> {
    let mut query = SearchQuery::new(args.query.join(" "));
    query.server = args.server;
    query.limit = args.limit;
    let state = state_directory(&args.workspace, args.state_dir)?;
    let answer = search(&state, &args.workspace, &query)?;
    super::print(&format!("{answer}\n"), "print the answer")
}
