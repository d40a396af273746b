//! Everything that is decided at start.

mod settings;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy as _;

use crate::approval::{Effect, Policy, PolicyError};
use crate::audit::{self, Audit};
use crate::env::{self, Variables};
use crate::kernel::ShellCommands;

pub use self::settings::{
    ApprovalMode, ApprovalSettings, AuditSettings, Images, KernelSettings, Settings, ToolServerSettings,
};

/// How many files the audit log has beside the one that is written, so that it never takes all of a disk.
const KEPT_AUDIT_FILES: usize = 5;

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
    #[error(
        "require shell commands without their approval\nhint: add `--approve-shell-cmds` (`approve_shell_cmds` in Rust)"
    )]
    EscapeWithoutApproval,
}

/// Settings that have been made usable: paths are absolute, directories exist.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) workspace: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) images: Images,
    pub(crate) images_dir: PathBuf,
    pub(crate) kernel: KernelSettings,
    pub(crate) shell_commands: ShellCommands,
    pub(crate) tool_server: ToolServerSettings,
    pub(crate) approval: ApprovalSettings,
    pub(crate) audit: AuditSettings,
    pub(crate) variables: Arc<Variables>,
}

impl Config {
    /// Creates the workspace and its state directory, and reads the environment and `<workspace>/.env`.
    ///
    /// # Errors
    /// The workspace or the state directory cannot be created or entered, or settings contradict each other.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let shell_commands = match (settings.kernel.approve_shell_cmds, settings.kernel.require_shell_escape)
        {
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
            images: settings.images,
            images_dir,
            kernel: settings.kernel,
            shell_commands,
            tool_server: settings.tool_server,
            approval: settings.approval,
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
        variables.extend(self.kernel.env.clone());
        variables
    }

    /// The approval policy that these settings ask for.
    pub(crate) fn policy(&self) -> Result<Policy, PolicyError> {
        Ok(match &self.approval.mode {
            ApprovalMode::Auto => Policy::always(Effect::Allow),
            ApprovalMode::Ask => Policy::always(Effect::Ask),
            ApprovalMode::Deny => Policy::always(Effect::Deny),
            ApprovalMode::Policy(path) => Policy::read(path)?,
        })
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
        let mut settings = Settings::default();
        settings.kernel.require_shell_escape = true;
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
