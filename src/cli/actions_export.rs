//! `ipybox actions export`: a saved action as a script that needs no ipybox.

use std::path::{Path, PathBuf};

use ipybox::{ExportActionOptions, export_action};

use super::registered_args::PlaceArgs;
use super::{multi_threaded, print};

/// The flags of `ipybox actions export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ActionsExportArgs {
    /// The name of the action
    pub(crate) name: String,

    /// The new file; `-` for stdout [default: NAME.py in the current directory]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,

    /// Python interpreter, or virtual environment, whose packages the script needs [default: that of the workspace]
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: Option<PathBuf>,
}

pub(super) fn run(args: ActionsExportArgs, place: PlaceArgs) -> anyhow::Result<()> {
    let ActionsExportArgs { name, output, force, python } = args;
    let output = output.unwrap_or_else(|| format!("{name}.py").into());
    let file = (output != Path::new("-")).then_some(output);
    let mut options = ExportActionOptions::new(name);
    options.output.clone_from(&file);
    options.force = force;
    options.workspace = place.workspace;
    options.state_dir = place.state_dir;
    options.python = python;
    let text = multi_threaded()?.block_on(Box::pin(export_action(options)))?;
    let answer = match file {
        Some(file) => format!("`{0}` is written: `uv run {0} --help`\n", file.display()),
        None => text,
    };
    print(&answer, "print the script")
}
