//! `ipybox sandbox-policy`: shows what a workspace's own sandbox policy opens, and allows it.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use ipybox::WorkspacePolicy;

use super::print;

/// The flags of `ipybox sandbox-policy`.
#[derive(Debug, clap::Args)]
pub(crate) struct SandboxPolicyArgs {
    /// Working directory with the file `sandbox-config.json`
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Allow the policy as it is now, without a question
    #[arg(long)]
    pub(crate) allow: bool,
}

pub(super) fn run(args: SandboxPolicyArgs) -> anyhow::Result<ExitCode> {
    let SandboxPolicyArgs { workspace, state_dir, allow } = args;
    let Some(policy) = WorkspacePolicy::find(&workspace, state_dir)? else {
        return said(
            "This workspace has no sandbox policy of its own: the default holds.\n",
            ExitCode::SUCCESS,
        );
    };
    let file = policy.file().display();
    if policy.openings().is_empty() {
        return said(&format!("`{file}` opens no more than the default.\n"), ExitCode::SUCCESS);
    }
    let openings: String = policy.openings().iter().map(|opening| format!("  {opening}\n")).collect();
    print(&format!("`{file}` opens more than the default:\n{openings}"), "print the answer")?;
    if policy.is_allowed().context("read what is allowed")? {
        return said("It is allowed.\n", ExitCode::SUCCESS);
    }
    if !allow && !says_yes()? {
        return said(
            "It is not allowed: `--sandbox-workspace-config` refuses it. `--allow` allows it.\n",
            ExitCode::FAILURE,
        );
    }
    policy.allow().context("keep what is allowed")?;
    said("It is allowed now, until it changes.\n", ExitCode::SUCCESS)
}

fn said(text: &str, code: ExitCode) -> anyhow::Result<ExitCode> {
    print(text, "print the answer")?;
    Ok(code)
}

/// Asks on a terminal; without one nobody says yes.
fn says_yes() -> io::Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Ok(false);
    }
    let mut stderr = super::stderr();
    write!(stderr, "Allow it? [y/N]: ")?;
    stderr.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}
