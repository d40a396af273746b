//! `ipybox export`: makes a Python file, Markdown or a page of a notebook.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;
use ipybox::lasting::KeptSessions;
use ipybox::{ExportFormat, export, read_notebook};

use super::print;

/// The flags of `ipybox export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The id of a session, or a notebook: a path with `/`, or one that ends with `.ipynb` [default: the newest notebook of
    /// the workspace that ipybox has chosen the place of]
    #[arg(value_name = "SESSION")]
    pub(crate) notebook: Option<String>,

    /// What to make of it
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Format,

    /// Write to this file, and the images of Markdown beside it [default: stdout, without the images of Markdown]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Working directory of the kernel
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// What a notebook is made into.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    /// Python in cells (`# %%`), without outputs
    Py,
    /// Markdown
    Md,
    /// One page of HTML, without scripts
    Html,
}

impl From<Format> for ExportFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Py => Self::Python,
            Format::Md => Self::Markdown,
            Format::Html => Self::Html,
        }
    }
}

pub(super) fn run(args: ExportArgs) -> anyhow::Result<()> {
    let notebook = match &args.notebook {
        Some(path) if path.contains('/') || path.ends_with(".ipynb") => PathBuf::from(path),
        Some(id) => KeptSessions::open(args.state_dir)?.notebook(id)?,
        None => KeptSessions::open(args.state_dir)?.newest_notebook(&args.workspace)?,
    };
    let content =
        read_notebook(&notebook).with_context(|| format!("read the notebook `{}`", notebook.display()))?;
    let files = args.output.as_deref().map(files_beside);
    let made = export(&content, args.to.into(), files.as_deref())
        .with_context(|| format!("export `{}`", notebook.display()))?;
    if let (Some(output), Some(files)) = (&args.output, &files) {
        return made.save(output, files).with_context(|| format!("write `{}`", output.display()));
    }
    print(&made.text, "write the result")
}

/// The name of the directory for the images of a file.
fn files_beside(output: &Path) -> String {
    format!("{}_files", output.file_stem().unwrap_or_default().to_string_lossy())
}
