//! `ipybox notebook`: prints the path of a session's notebook, for the programs that read notebooks.

use std::path::PathBuf;

use ipybox::lasting::KeptSessions;

use super::print;

/// The flags of `ipybox notebook`.
#[derive(Debug, clap::Args)]
pub(crate) struct NotebookArgs {
    /// The id of a session, or the beginning of one [default: the newest session of the workspace]
    pub(crate) session: Option<String>,

    /// Working directory of the session's kernel
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

pub(super) fn run(args: NotebookArgs) -> anyhow::Result<()> {
    let sessions = KeptSessions::open(args.state_dir)?;
    let path = match &args.session {
        Some(id) => sessions.notebook(id)?,
        None => sessions.newest_notebook(&args.workspace)?,
    };
    print(&format!("{}\n", path.display()), "print the path")
}
