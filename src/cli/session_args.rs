//! The flags of sessions that outlive their clients.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use ipybox::NotebookSettings;
use ipybox::lasting::FrontWish;

use super::headings::SESSION;
use super::values::duration;

/// The flags for what outlasts a request or a client.
#[derive(Debug, clap::Args)]
pub(crate) struct LastingArgs {
    /// Keep the session when the client ends, however that happens, so that the next one with the same flags goes on with
    /// it: for how long, as 30m, 90s or 2h [default: not at all]
    #[arg(long, help_heading = SESSION, value_name = "DURATION", value_parser = duration)]
    pub(crate) keep_session: Option<Duration>,

    /// Let requests stop waiting for their cells: `execute_ipython_cell` has an argument `wait`, and the tool
    /// `wait_for_cell` returns the rest
    #[arg(long, help_heading = SESSION)]
    pub(crate) long_cells: bool,

    /// Save variables after each cell, so that a fresh kernel can have them back
    #[arg(long, help_heading = SESSION)]
    pub(crate) checkpoint: bool,

    /// End the kernel when nobody has used it for so long, as 30m, 90s or 2h: the next cell has another one, with the variables. Its
    /// sandbox of a pool is deleted, or suspended if it has volumes [default: it does not end]
    #[arg(long, help_heading = SESSION, value_name = "DURATION", value_parser = duration, requires = "checkpoint")]
    pub(crate) kernel_idle_timeout: Option<Duration>,

    /// The time for the exit of a kernel, in which threads end and `atexit` functions run [default: 2s]
    #[arg(long, help_heading = SESSION, value_name = "DURATION", value_parser = duration)]
    pub(crate) kernel_exit_timeout: Option<Duration>,

    /// Append each cell with its outputs and tool calls to a Jupyter notebook: a file that ends with `.ipynb`, relative to the
    /// workspace, or `auto` for a new one in the state directory
    #[arg(long, help_heading = SESSION, value_name = "FILE")]
    pub(crate) notebook: Option<NotebookSettings>,

    /// Record the session for `ipybox replay`: a new file, or a directory in which each session gets a new one
    #[arg(long, help_heading = SESSION, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// The session that a front wants for its client, in JSON: the team server is one
    #[arg(long, hide = true, value_name = "JSON", value_parser = front, requires = "keep_session")]
    pub(crate) front: Option<FrontWish>,
}

fn front(json: &str) -> Result<FrontWish, serde_json::Error> {
    serde_json::from_str(json)
}

/// The flags of `ipybox attach` and `ipybox ui`.
#[derive(Debug, clap::Args)]
pub(crate) struct JoinArgs {
    /// The id of the session, as `ipybox sessions` lists it [default: that of the current directory, or the only one]
    pub(crate) session: Option<String>,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// The flags of `ipybox attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) join: JoinArgs,

    /// Use a copy of the kernel, with its variables as they are now; it ends with the prompt, and the agent does not see it
    #[arg(long)]
    pub(crate) copy: bool,
}

/// The flags of `ipybox sessions`.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<SessionsAction>,

    /// Print JSON, whose keys do not change
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

/// What to do with kept sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsAction {
    /// Show what a session is doing
    Show {
        /// Its id
        id: String,
    },
    /// End sessions, with all their processes; variables are gone
    End {
        /// Their ids
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// All that have no client
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
}
