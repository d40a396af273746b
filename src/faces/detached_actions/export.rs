//! Exports a saved action as a script that `uv run` runs without ipybox.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::kernels::{ActionCell, ActionKernels, KernelActionError};
use super::script::ActionScript;
use super::shelf::ActionShelf;
use super::{literal, parameters};
use crate::approval::{ApprovalEffect, ApprovalPolicy, Approver};
use crate::config::{Settings, state_directory};
use crate::ground::files::replacement::{Replacement, parent_of};
use crate::ground::text::{backticked, describe};
use crate::tools::actions::{ActionBundle, SavedAction};
use crate::tools::recording::RecordedServer;
use crate::tools::tool_server::modules_for_scripts;
use ipybox_codegen as codegen;

/// The Python that finds packages.
const REQUIREMENTS: &str = include_str!("requirements.py");

/// The time that it may take. The metadata of a large environment are many files.
const REQUIREMENTS_TIMEOUT: Duration = Duration::from_secs(60);

/// The mode of a script: anybody may read it, and its owner run it.
const SCRIPT_MODE: u32 = 0o755;

/// The options of an export.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExportActionOptions {
    /// The name of the action.
    pub name: String,
    /// The new file. Default: the text is only returned.
    pub output: Option<PathBuf>,
    /// Whether a file that is there is replaced. Default: no.
    pub force: bool,
    /// The workspace of the action. Default: the current directory.
    pub workspace: PathBuf,
    /// The directory of registered servers and saved actions. Default: as for sessions.
    pub state_dir: Option<PathBuf>,
    /// The interpreter whose packages are named with their versions. Default: the environment of the workspace.
    pub python: Option<PathBuf>,
}

/// Why an action is not exported. A file that was there is as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportActionError {
    /// The workspace or its state directory cannot be used.
    #[error(transparent)]
    Config(#[from] crate::config::Error),
    /// The saved actions cannot be read.
    #[error("read the saved actions")]
    Store(#[source] io::Error),
    /// There is none of this name.
    #[error("export `{name}`: there is no such action; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// It cannot be used.
    #[error("export `{name}`, which is {state}: {why}\nhint: `ipybox actions test {name}` tests it again")]
    Unusable {
        /// The name.
        name: String,
        /// Its state in a word.
        state: &'static str,
        /// Why.
        why: String,
    },
    /// The packages that it needs cannot be found.
    #[error(transparent)]
    Kernel(#[from] KernelActionError),
    /// The same, by the kernel's Python.
    #[error("find the packages that the action imports: {why}")]
    Requirements {
        /// Why.
        why: String,
    },
    /// The parameters of a server cannot be read.
    #[error("read the parameters of the MCP server `{server}`: {why}")]
    Parameters {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
    /// There is a file.
    #[error("write `{path}`, which exists\nhint: `--force` replaces it", path = path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The script cannot be written.
    #[error("write `{path}`", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The packages that an action needs, as a kernel reports them.
#[derive(Deserialize)]
struct FoundRequirements {
    python: String,
    pydantic: String,
    packages: Vec<String>,
}

impl ExportActionOptions {
    /// The defaults, for the action of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            output: None,
            force: false,
            workspace: ".".into(),
            state_dir: None,
            python: None,
        }
    }
}

/// Writes a saved action as a script (PEP 723) that `uv run` runs without ipybox. Returns its text. No secret is in it: those
/// that its servers need are variables of the environment.
///
/// # Errors
/// See [`ExportActionError`].
pub async fn export_action(options: ExportActionOptions) -> Result<String, ExportActionError> {
    if let Some(path) =
        options.output.as_ref().filter(|path| !options.force && path.symlink_metadata().is_ok())
    {
        return Err(ExportActionError::Exists { path: path.clone() });
    }
    let state_dir = state_directory(&options.workspace, options.state_dir.clone())?;
    let name = options.name.clone();
    let finding = tokio::task::spawn_blocking(move || find(&ActionShelf::in_directory(state_dir), &name));
    let (action, bundle) = finding.await.map_err(|error| ExportActionError::Store(error.into()))??;
    let mut settings = Settings {
        workspace: options.workspace.clone(),
        state_dir: options.state_dir.clone(),
        ..Settings::default()
    };
    settings.kernel.python.clone_from(&options.python);
    let kernels = ActionKernels::new(settings, ApprovalPolicy::always(ApprovalEffect::Deny));
    let kernel = kernels.one().await?;
    let servers = kernel.servers_of(&action, &bundle).await;
    let sources = bundle.all_files().map(|(_, text)| Value::from(text.as_str())).collect();
    let found = kernel.run(REQUIREMENTS, &requirements_of(sources), cell()).await;
    kernel.close().await;
    let run = found?;
    let reason = || run.outcome.error.as_ref().map_or_else(|| run.outcome.words(), |error| error.last_line());
    let found = run.result.clone().ok_or_else(|| ExportActionError::Requirements { why: reason() })?;
    let found: FoundRequirements = serde_json::from_value(found)
        .map_err(|error| ExportActionError::Requirements { why: error.to_string() })?;
    let text = script(&action, &bundle, &servers?, found)?;
    if let Some(path) = options.output {
        let written = text.clone();
        let writing = tokio::task::spawn_blocking(move || write(path, &written, options.force));
        writing.await.map_err(|error| ExportActionError::Store(error.into()))??;
    }
    Ok(text)
}

fn find(shelf: &ActionShelf, name: &str) -> Result<(SavedAction, ActionBundle), ExportActionError> {
    let mut actions = shelf.all().map_err(ExportActionError::Store)?;
    let Some(at) = actions.iter().position(|shelved| shelved.action.name == name) else {
        let names: Vec<&str> = actions.iter().map(|shelved| shelved.action.name.as_str()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { backticked(names) };
        return Err(ExportActionError::Unknown { name: name.to_owned(), known });
    };
    let shelved = actions.swap_remove(at);
    if let Some(why) = shelved.state.why() {
        let state = shelved.state.word();
        return Err(ExportActionError::Unusable { name: name.to_owned(), state, why: why.to_owned() });
    }
    let bundle = shelf.bundle(&shelved.action).map_err(ExportActionError::Store)?;
    Ok((shelved.action, bundle))
}

fn requirements_of(sources: Vec<Value>) -> String {
    format!("requirements(json.loads({}))", literal::json_text(&Value::Array(sources)))
}

fn cell() -> ActionCell {
    ActionCell {
        timeout: REQUIREMENTS_TIMEOUT,
        cancel: CancellationToken::new(),
        chunks: None,
        approver: Approver::Nobody("an export calls no tools"),
    }
}

/// The text of the script.
fn script(
    action: &SavedAction,
    bundle: &ActionBundle,
    servers: &[RecordedServer],
    found: FoundRequirements,
) -> Result<String, ExportActionError> {
    let mut files: Vec<(String, String)> = bundle.placed_files().into_iter().collect();
    let mut parameters = Map::new();
    for server in servers {
        let given = parameters::without_secrets(&server.name, &server.parameters);
        let given = given.map_err(|error| ExportActionError::Parameters {
            server: server.name.clone(),
            why: describe(&error),
        })?;
        parameters.insert(server.name.clone(), given.into());
        let identity = codegen::Server { name: server.name.clone(), description: server.description.clone() };
        let options = codegen::Options::default();
        let package = codegen::generate_all(&identity, &server.tools, &server.others, options);
        let of_package = package
            .files
            .into_iter()
            .map(|file| (format!("mcptools/{}/{}", server.name, file.path), file.text));
        files.extend(of_package);
    }
    let modules = modules_for_scripts().map(|(path, text)| (path, text.to_owned()));
    files.extend(
        modules.filter(|(path, _)| {
            !servers.iter().any(|server| *path == format!("mcptools/{}.py", server.name))
        }),
    );
    let about = json!({
        "name": action.name,
        "module": action.path(),
        "function": action.function(),
        "signature": action.signature,
        "description": action.description,
        "input_schema": action.input_schema,
    });
    let Value::Object(about) = about else { unreachable!("it is written as an object") };
    let FoundRequirements { python, pydantic, packages } = found;
    let script = ActionScript { action: about, servers: parameters, files, python, packages, pydantic };
    let note = format!(
        "{}\n\nExported by ipybox {} from the saved action `{}`, version {}.",
        action.summary,
        env!("CARGO_PKG_VERSION"),
        action.name,
        action.version,
    );
    Ok(script.text(&note))
}

/// Writes the whole script, or nothing.
fn write(path: PathBuf, text: &str, force: bool) -> Result<(), ExportActionError> {
    let written = || {
        let (directory, name) = parent_of(&path)?;
        let mut fresh = Replacement::file(&directory, SCRIPT_MODE)?;
        fresh.as_file().write_all(text.as_bytes())?;
        if force { fresh.put_durably(name).map(drop) } else { fresh.put_if_missing(name) }
    };
    written().map_err(|source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ExportActionError::Exists { path: path.clone() },
        _ => ExportActionError::Write { path: path.clone(), source },
    })
}
