//! Everything that is decided at start.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcetera::BaseStrategy as _;

use crate::approval::{Effect, Policy, PolicyError};
use crate::audit::{self, Audit, Contents};
use crate::env::{self, Variables};
use crate::kernel::ShellCommands;

/// What a user asks for; each field has the default of the flag of the same name.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// The working directory of the kernel; created if missing. Default: the current directory.
    pub workspace: PathBuf,
    /// The interpreter that runs the kernel. Default: a managed environment for the workspace.
    pub python: Option<PathBuf>,
    /// The per-user directory for the state of all workspaces. Default: `IPYBOX_STATE_DIR`, else `ipybox` in
    /// the platform's data directory.
    pub state_dir: Option<PathBuf>,
    /// The host that the tool server listens on; must be this machine. Default: `localhost`.
    pub tool_server_host: String,
    /// The port that the tool server listens on. Default: a free one.
    pub tool_server_port: Option<u16>,
    /// How long an MCP server may take to start when one of its tools is called. Default: 30 seconds.
    pub connect_timeout: Duration,
    /// How long a kernel may take to start. A cold disk and no compiled bytecode cost several seconds. Default: 60 seconds.
    pub kernel_init_timeout: Duration,
    /// What a cell's reply holds of its images. Default: [`Images::Inline`].
    pub images: Images,
    /// Where images are saved, relative to the workspace. Default: `images`.
    pub images_dir: PathBuf,
    /// Variables of the kernel, beside what every program needs and those given by [`env::KERNEL_ENV_PREFIX`].
    pub kernel_env: BTreeMap<String, String>,
    /// Who decides what may run.
    pub approval: ApprovalSettings,
    /// How much memory the kernel, and each process that it starts, may use, in bytes; Linux only. Default: as much
    /// as there is.
    pub kernel_memory_limit: Option<u64>,
    /// How many processes and threads the kernel may add to those that its user runs when it starts; Linux only, and
    /// without effect on root. Default: as many as the system allows.
    pub kernel_max_processes: Option<u32>,
    /// Whether IPython's shell commands (`!command`, `%%bash`, …) ask for approval. Default: they do not.
    pub approve_shell_cmds: bool,
    /// Whether Python's own functions that start programs are blocked, so that shell commands are the way; needs
    /// [`approve_shell_cmds`](Self::approve_shell_cmds). Not a boundary: only a sandbox is. Default: they are not.
    pub require_shell_escape: bool,
    /// The log of cells, tool calls and decisions. Default: none.
    pub audit: AuditSettings,
}

/// How a log of cells, tool calls and decisions is kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditSettings {
    /// The file, in a directory that exists and code in the kernel cannot write to. Default: no log is kept.
    pub file: Option<PathBuf>,
    /// What it tells beside names, decisions, durations and sizes. Default: [`Contents::Arguments`].
    pub contents: Contents,
    /// The size in bytes at which the file is renamed and begun anew. Default: 10 MiB.
    pub max_bytes: u64,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self { file: None, contents: Contents::default(), max_bytes: 10 * 1024 * 1024 }
    }
}

/// Who decides what may run: tool calls, and what ipybox itself does at the wish of its client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApprovalSettings {
    /// How it is decided. Default: [`ApprovalMode::Auto`].
    pub mode: ApprovalMode,
    /// How long a question waits for its answer. Default: 60 seconds.
    pub timeout: Duration,
}

/// How it is decided what may run.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ApprovalMode {
    /// Everything runs.
    #[default]
    Auto,
    /// The user is asked, each time that no earlier answer holds.
    Ask,
    /// Nothing runs.
    Deny,
    /// By the rules in a file.
    Policy(PathBuf),
}

impl ApprovalSettings {
    /// The policy that these settings ask for.
    pub(crate) fn policy(&self) -> Result<Policy, PolicyError> {
        Ok(match &self.mode {
            ApprovalMode::Auto => Policy::always(Effect::Allow),
            ApprovalMode::Ask => Policy::always(Effect::Ask),
            ApprovalMode::Deny => Policy::always(Effect::Deny),
            ApprovalMode::Policy(path) => Policy::read(path)?,
        })
    }
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self { mode: ApprovalMode::Auto, timeout: Duration::from_secs(60) }
    }
}

/// What a cell's reply holds of its images, all of which are saved in the workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Images {
    /// Links in the text, and the first few as MCP image content, made small enough for that.
    #[default]
    Inline,
    /// Links in the text alone.
    Link,
}

/// How many files the audit log has beside the one that is written, so that it never takes all of a disk.
const KEPT_AUDIT_FILES: usize = 5;

/// The directory of images in the workspace.
const DEFAULT_IMAGES_DIR: &str = "images";

impl Default for Settings {
    fn default() -> Self {
        Self {
            workspace: PathBuf::from("."),
            python: None,
            state_dir: None,
            tool_server_host: "localhost".to_owned(),
            tool_server_port: None,
            connect_timeout: Duration::from_secs(30),
            kernel_init_timeout: Duration::from_secs(60),
            images: Images::default(),
            images_dir: PathBuf::from(DEFAULT_IMAGES_DIR),
            kernel_env: BTreeMap::new(),
            approval: ApprovalSettings::default(),
            kernel_memory_limit: None,
            kernel_max_processes: None,
            approve_shell_cmds: false,
            require_shell_escape: false,
            audit: AuditSettings::default(),
        }
    }
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The workspace is no directory and cannot be made one.
    #[error("use `{path}` as the workspace", path = path.display())]
    Workspace {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The workspace's state cannot be kept.
    #[error(
        "keep state in `{path}`\n\
         hint: name a directory that you can write to with `--state-dir`",
        path = path.display()
    )]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no home directory to keep state in.
    #[error(
        "find your home directory to keep state in\n\
         hint: name a directory with `--state-dir`"
    )]
    NoHome,
    /// Shell commands are to be the only way to start programs, and run unasked.
    #[error("require shell commands without their approval\nhint: add `--approve-shell-cmds`")]
    EscapeWithoutApproval,
}

/// Settings that have been made usable: paths are absolute, directories exist.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) workspace: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) python: Option<PathBuf>,
    pub(crate) tool_server_host: String,
    pub(crate) tool_server_port: u16,
    pub(crate) connect_timeout: Duration,
    pub(crate) kernel_init_timeout: Duration,
    pub(crate) images: Images,
    /// Absolute.
    pub(crate) images_dir: PathBuf,
    kernel_env: BTreeMap<String, String>,
    pub(crate) approval: ApprovalSettings,
    pub(crate) kernel_memory_limit: Option<u64>,
    pub(crate) kernel_max_processes: Option<u32>,
    pub(crate) shell_commands: ShellCommands,
    pub(crate) audit: AuditSettings,
    pub(crate) variables: Arc<Variables>,
}

impl Config {
    /// Creates the workspace and its state directory, and reads the environment and `<workspace>/.env`.
    ///
    /// # Errors
    /// The workspace or the state directory cannot be created or entered, or settings contradict each other.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let shell_commands = match (settings.approve_shell_cmds, settings.require_shell_escape) {
            (false, false) => ShellCommands::Free,
            (true, false) => ShellCommands::Approved,
            (true, true) => ShellCommands::OnlyEscape,
            (false, true) => return Err(Error::EscapeWithoutApproval),
        };
        let workspace = create_workspace(&settings.workspace)
            .map_err(|source| Error::Workspace { path: settings.workspace.clone(), source })?;
        let variables = Variables::load(&workspace);
        let states = match settings.state_dir {
            Some(directory) => directory,
            None => default_state_dir(&variables)?,
        };
        let state_dir = create_state_dir(&states, &workspace)
            .map_err(|source| Error::StateDir { path: states, source })?;
        let images_dir = workspace.join(settings.images_dir);
        Ok(Self {
            workspace,
            state_dir,
            python: settings.python,
            tool_server_host: settings.tool_server_host,
            tool_server_port: settings.tool_server_port.unwrap_or(0),
            connect_timeout: settings.connect_timeout,
            kernel_init_timeout: settings.kernel_init_timeout,
            images: settings.images,
            images_dir,
            kernel_env: settings.kernel_env,
            approval: settings.approval,
            kernel_memory_limit: settings.kernel_memory_limit,
            kernel_max_processes: settings.kernel_max_processes,
            shell_commands,
            audit: settings.audit,
            variables: Arc::new(variables),
        })
    }

    /// The workspace's real path.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The kernel's environment, but for what ipybox adds.
    pub(crate) fn kernel_variables(&self) -> BTreeMap<String, String> {
        let mut variables = self.variables.for_kernel();
        variables.extend(self.kernel_env.clone());
        variables
    }

    /// The log that these settings ask for.
    pub(crate) fn open_audit(&self) -> Result<Audit, audit::Error> {
        let Some(file) = &self.audit.file else { return Ok(Audit::off()) };
        let settings = audit::Settings {
            path: file.clone(),
            contents: self.audit.contents,
            max_bytes: self.audit.max_bytes,
            kept_files: KEPT_AUDIT_FILES,
            workspace: self.workspace.clone(),
        };
        Audit::open(settings, self.variables.redactor().clone())
    }

    /// The environment and `.env`.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }
}

fn create_workspace(path: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(path)?;
    path.canonicalize()
}

fn default_state_dir(variables: &Variables) -> Result<PathBuf, Error> {
    if let Some(directory) = variables.in_process(env::IPYBOX_STATE_DIR).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(directory));
    }
    let platform = etcetera::base_strategy::choose_native_strategy().map_err(|_| Error::NoHome)?;
    Ok(platform.data_dir().join("ipybox"))
}

/// How much of a workspace's name its state directory shows. File names are limited to 255 bytes.
const NAME_CHARS: usize = 40;

/// The workspace's own directory below `states`, for this user alone.
fn create_state_dir(states: &Path, workspace: &Path) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::DirBuilderExt as _;

    let name = workspace.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(NAME_CHARS).collect();
    // Readable for a human, unique by the whole path, and the same at every start.
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, workspace.as_os_str().as_bytes());
    let directory = states.join("workspaces").join(format!("{name}-{:016x}", hash.as_u64_pair().0));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    directory.canonicalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(workspace: &Path, states: &Path) -> Config {
        let settings = Settings {
            workspace: workspace.to_owned(),
            state_dir: Some(states.to_owned()),
            ..Settings::default()
        };
        Config::new(settings).unwrap()
    }

    #[test]
    fn a_workspace_has_the_same_state_however_it_is_named() {
        let root = tempfile::tempdir().unwrap();
        let states = root.path().join("states");
        let first = config(&root.path().join("a/work"), &states);
        std::os::unix::fs::symlink(root.path().join("a"), root.path().join("b")).unwrap();
        assert_eq!(config(&root.path().join("b/work"), &states).state_dir, first.state_dir);
        assert_ne!(config(&root.path().join("c/work"), &states).state_dir, first.state_dir);
    }

    #[test]
    fn only_the_user_enters_the_state_directory() {
        use std::os::unix::fs::PermissionsExt as _;

        let root = tempfile::tempdir().unwrap();
        let config = config(&root.path().join("work"), &root.path().join("states"));
        assert_eq!(std::fs::metadata(config.state_dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn shell_commands_are_required_only_if_they_ask() {
        let settings = Settings { require_shell_escape: true, ..Settings::default() };
        assert!(matches!(Config::new(settings), Err(Error::EscapeWithoutApproval)));
    }

    #[test]
    fn a_file_in_place_of_the_workspace_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let settings = Settings { workspace: file.path().to_owned(), ..Settings::default() };
        let error = Config::new(settings).unwrap_err();
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    }
}
