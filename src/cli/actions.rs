//! `ipybox actions`: lists, shows, tests and removes saved actions; serves and exports them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use ipybox::{ActionOptions, Emphasis, KnownAction, KnownActions, SandboxBackend, ShownAction};

use super::actions_export::ActionsExportArgs;
use super::actions_serve::ActionsServeArgs;
use super::registered_args::PlaceArgs;
use super::serve_args::BackendArg;
use super::{actions_export, actions_serve, multi_threaded, print};

/// The flags of `ipybox actions`.
#[derive(Debug, clap::Args)]
pub(crate) struct ActionsArgs {
    #[command(subcommand)]
    pub(crate) command: ActionsCommand,

    /// Print JSON, whose keys do not change
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// A command of `ipybox actions`.
#[derive(Debug, Subcommand)]
pub(crate) enum ActionsCommand {
    #[command(flatten)]
    Known(KnownActionsCommand),
    /// Serve them as the tools of an MCP server on stdin and stdout
    ///
    /// Those that can be used. Each call runs the saved code in a sandboxed kernel of its own, in an empty directory.
    Serve(Box<ActionsServeArgs>),
    /// Write one as a script that `uv run` runs without ipybox
    ///
    /// It connects to the action's MCP servers itself. Secrets of their parameters become variables of the environment.
    Export(ActionsExportArgs),
}

/// A command for saved actions where they are.
#[derive(Debug, Subcommand)]
pub(crate) enum KnownActionsCommand {
    /// List them, with their states and how often they have worked
    List,
    /// Show all of one: its call, its docstring, its files
    Show {
        /// Its name
        name: String,
    },
    /// Run their tests again, with the servers that are registered now
    ///
    /// One that passes is found by `search` again, one that does not is no more. Exits with 1 if a test has not passed.
    Test {
        /// Their names; without any, all are tested
        names: Vec<String>,

        /// Python interpreter, or virtual environment, that runs them [default: that of the workspace]
        #[arg(long, value_name = "PYTHON")]
        python: Option<PathBuf>,

        /// Run them in a sandbox, also if they were saved without one
        #[arg(long)]
        sandbox: bool,

        /// Program that makes the sandbox
        #[arg(long, value_enum)]
        sandbox_backend: Option<BackendArg>,

        /// Policy of the sandbox [default: that with which it was saved]
        #[arg(long, value_name = "FILE")]
        sandbox_config: Option<PathBuf>,
    },
    /// Remove one with all its versions
    Remove {
        /// Its name
        name: String,
    },
}

pub(super) fn run(args: ActionsArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        ActionsCommand::Known(command) => manage(command, args.place, args.json),
        ActionsCommand::Serve(serve) => actions_serve::run(*serve, args.place).map(|()| ExitCode::SUCCESS),
        ActionsCommand::Export(export) => actions_export::run(export, args.place).map(|()| ExitCode::SUCCESS),
    }
}

fn manage(command: KnownActionsCommand, place: PlaceArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut options = ActionOptions::default();
    options.workspace = place.workspace;
    options.state_dir = place.state_dir;
    if let KnownActionsCommand::Test { python, sandbox, sandbox_backend, sandbox_config, .. } = &command {
        options.python = python.clone();
        options.sandbox_config = sandbox_config.clone();
        options.sandbox =
            sandbox_backend.map(SandboxBackend::from).or_else(|| sandbox.then(SandboxBackend::default));
    }
    multi_threaded()?.block_on(async {
        let actions = KnownActions::open(options).await?;
        let mut code = ExitCode::SUCCESS;
        let text = match command {
            KnownActionsCommand::List => listed(&actions.list()?, as_json)?,
            KnownActionsCommand::Show { name } => shown(&actions.show(&name)?, as_json)?,
            KnownActionsCommand::Test { names, .. } => {
                let tested = Box::pin(actions.test(&names)).await?;
                if tested.iter().any(|action| action.state == "red") {
                    code = ExitCode::FAILURE;
                }
                listed(&tested, as_json)?
            }
            KnownActionsCommand::Remove { name } => {
                let kept = if actions.remove(&name)? {
                    ""
                } else {
                    "; its files in `gentools/` have changed, and stay"
                };
                format!("`{name}` is removed{kept}.\n")
            }
        };
        print(&text, "print the answer")?;
        Ok(code)
    })
}

fn listed(actions: &[KnownAction], as_json: bool) -> anyhow::Result<String> {
    if as_json {
        return Ok(serde_json::to_string_pretty(actions).context("write the list as JSON")? + "\n");
    }
    if actions.is_empty() {
        return Ok(
            "No action is saved in this workspace.\nCode saves them with `from mcptools import save`.\n"
                .to_owned(),
        );
    }
    Ok(actions.iter().map(line).collect())
}

fn line(action: &KnownAction) -> String {
    let KnownAction { name, category, version, summary, state, why, worked, failed, .. } = action;
    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let state = if why.is_empty() { (*state).to_owned() } else { Emphasis::Warning.of(state) };
    let name = Emphasis::Title.of(&format!("{category}.{name}"));
    format!("{name} ({state}, version {version}, worked {worked}, failed {failed}){why}\n    {summary}\n")
}

fn shown(action: &ShownAction, as_json: bool) -> anyhow::Result<String> {
    if as_json {
        return Ok(serde_json::to_string_pretty(action).context("write the action as JSON")? + "\n");
    }
    let mut text = line(&action.action);
    text.push_str(&format!("\n{}\n\n{}\n", action.call, action.description));
    let example = serde_json::to_string(&action.example).context("write the example")?;
    text.push_str(&format!("\nexample: {example}\n"));
    for (server, tools) in &action.servers {
        text.push_str(&format!("calls {server}: {}\n", tools.join(", ")));
    }
    for (name, version) in &action.uses {
        text.push_str(&format!("uses {name}, version {version}\n"));
    }
    let versions: Vec<String> = action.versions.iter().map(u32::to_string).collect();
    text.push_str(&format!("versions: {}\n", versions.join(", ")));
    for (name, file) in &action.files {
        text.push_str(&format!("\n# {name}\n{file}"));
    }
    Ok(text)
}
