//! The configuration of a session, complete at its start.

mod apart;
mod client;
mod connectors;
mod consent;
mod error;
mod exposures;
mod kernel_choices;
mod kernel_site;
mod recording;
mod remote;
mod secret_places;
mod settings;
mod states;
#[cfg(test)]
mod tests;
mod trial;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::TimeDelta;

use crate::connections::mcp_client::Connector;
use crate::ground::env::{IPYBOX_CONTAINER, Variables};
use crate::ground::files::FrontSocket;
use crate::kernels::changes::COPIES;
#[cfg(feature = "kubernetes")]
use crate::kernels::kernel::PodSource;
use crate::kernels::kernel::ShellCommands;
use crate::kernels::sandbox::{ExposedPlaces, PolicyPaths};

pub(crate) use self::apart::withhold_recorded;
use self::connectors::login_flags;
pub(crate) use self::connectors::{connector_at, connector_here, connector_in};
pub use self::consent::WorkspacePolicy;
pub use self::error::Error;
pub(crate) use self::exposures::recorded;
pub(crate) use self::kernel_choices::KernelChoices;
pub(crate) use self::kernel_site::KernelSite;
pub(crate) use self::recording::{RecordingPlace, is_of_locale};
pub(crate) use self::remote::RemoteServer;
use self::secret_places::SecretPlaces;
pub use self::settings::{
    ApprovalMode, ApprovalSettings, AuditSettings, ChangesMode, Images, KernelSettings, NotebookSettings,
    RemoteHeader, RemoteHeaderValue, RemoteHub, RemotePool, RemoteSettings, ResourceLinks, SandboxSettings,
    Settings, ToolServerSettings, UnusableNotebook,
};
use self::states::state_dir_name;
pub use self::states::state_directory;
pub(crate) use self::states::{
    create_in, create_workspace, notebooks_dir, sessions_dir, states_dir, workspace_state_dir,
};
pub use crate::kernels::kernel::SessionLimits;
pub use crate::kernels::sandbox::SandboxBackend;

/// The prefix of variables that Jupyter's gateways accept from clients to configure a kernel's start.
const START_VARIABLES: &str = "KERNEL_";

/// The place of the notebook of a session.
#[derive(Debug, Clone)]
pub(crate) enum NotebookPlace {
    /// There is none.
    None,
    /// A new file in this directory.
    Private(PathBuf),
    /// This file, relative to the workspace.
    Named(PathBuf),
    /// A file beside this one, for another session.
    Beside(PathBuf),
}

/// Those whom variables are saved for, if they are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CheckpointPurpose {
    /// The workspace's next session.
    Workspace,
    /// The session with this id, which is begun anew.
    Session {
        /// Whether its client had it before, and gets its variables back unasked.
        is_resumed: bool,
    },
    /// This session alone, whose kernel ends while nobody uses it.
    Rest,
}

/// Settings that have been made usable: paths are absolute, directories exist.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) workspace: PathBuf,
    /// The workspace in which MCP servers start, and whose `.env` fills placeholders: another one for a saved action.
    of_servers: PathBuf,
    pub(crate) state_dir: PathBuf,
    /// The flags by which commands of `ipybox` find this workspace.
    login_flags: String,
    pub(crate) images: Images,
    pub(crate) resource_links: ResourceLinks,
    /// Whether clients that can show views get them.
    pub(crate) has_views: bool,
    pub(crate) has_long_cells: bool,
    /// Whether code gets no more than the commands of the session's MCP client.
    pub(crate) obeys_client: bool,
    pub(crate) images_dir: PathBuf,
    pub(crate) kernel: KernelSettings,
    pub(crate) limits: SessionLimits,
    /// The memory that states may take by which cells can be undone.
    pub(crate) undo_memory: u64,
    pub(crate) branch_files: bool,
    pub(crate) site: KernelSite,
    /// The places that code in a sandbox of earlier sessions could write.
    recorded: ExposedPlaces,
    /// The home directory, `~`.
    pub(crate) home: PathBuf,
    secrets: SecretPlaces,
    /// The settings of the sandbox, if there is one.
    sandbox: Option<SandboxSettings>,
    /// The workspace of the session for which this one tries something, if it is such a session.
    origin: Option<PathBuf>,
    /// The paths that sandboxes in the workspace have protected.
    protected_before: Vec<PathBuf>,
    pub(crate) shell_commands: ShellCommands,
    pub(crate) tool_server: ToolServerSettings,
    pub(crate) approval: ApprovalSettings,
    pub(crate) audit: AuditSettings,
    pub(crate) notebook: NotebookPlace,
    pub(crate) recording: RecordingPlace,
    /// The seed of what the kernel's Python draws at random.
    pub(crate) seed: Option<u32>,
    /// The time that the kernel's clock is ahead.
    pub(crate) clock_ahead: Option<TimeDelta>,
    /// The id of the session, if it has one already.
    pub(crate) session: Option<String>,
    pub(crate) checkpoint_purpose: CheckpointPurpose,
    /// The server of a team, at which the session asks for its user's tokens.
    pub(crate) front: Option<FrontSocket>,
    pub(crate) mcp_configs: Vec<PathBuf>,
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
        let workspace = create_workspace(&settings.workspace)?;
        let of_servers = settings.servers_of.as_deref().map(create_workspace).transpose()?;
        let of_servers = of_servers.unwrap_or_else(|| workspace.clone());
        let mut variables = Variables::of(settings.environment.as_ref(), &of_servers);
        let login_flags = login_flags(&workspace, settings.state_dir.as_deref());
        let states = states_dir(settings.state_dir.clone(), &variables)?;
        // What is hidden from code in a sandbox has to exist.
        create_in(&states, &sessions_dir(&states), &variables)?;
        let state_dir = match &settings.state_of {
            None => workspace_state_dir(&states, &workspace),
            Some(other) => workspace_state_dir(&states, &create_workspace(other)?),
        };
        create_in(&states, &state_dir, &variables)?;
        variables.find_secrets_in(&state_dir);
        let variables = Arc::new(variables);
        let recorded = exposures::recorded(&state_dir, &workspace)?;
        let images_dir = workspace.join(&settings.images_dir);
        let home = variables.in_process("HOME").filter(|home| home.starts_with('/')).unwrap_or("/");
        let home = PathBuf::from(home);
        let site = KernelSite::of(&settings, &variables)?;
        let notebook = match settings.notebook {
            NotebookSettings::Off => NotebookPlace::None,
            NotebookSettings::Auto => NotebookPlace::Private(notebooks_dir(&state_dir)),
            NotebookSettings::File(file) => NotebookPlace::Named(file),
        };
        let recording = RecordingPlace::of(settings.record);
        let is_recorded = !matches!(recording, RecordingPlace::None);
        let mut config = Self {
            workspace,
            of_servers,
            state_dir,
            login_flags,
            images: settings.images,
            resource_links: settings.resource_links,
            has_views: settings.views,
            has_long_cells: settings.long_cells,
            obeys_client: !settings.ignore_client_sandbox,
            images_dir,
            kernel: settings.kernel,
            limits: settings.limits,
            undo_memory: settings.undo_memory,
            branch_files: settings.branch_files,
            site,
            recorded,
            home,
            secrets: SecretPlaces::default(),
            sandbox: settings.sandbox.clone(),
            origin: None,
            protected_before: Vec::new(),
            shell_commands,
            tool_server: settings.tool_server,
            approval: settings.approval,
            audit: settings.audit,
            notebook,
            recording,
            seed: settings.seed.or_else(|| is_recorded.then(|| uuid::Uuid::new_v4().as_fields().0)),
            clock_ahead: settings.clock_ahead,
            session: None,
            checkpoint_purpose: CheckpointPurpose::Workspace,
            front: None,
            mcp_configs: settings.mcp_configs,
            variables,
        };
        match settings.sandbox {
            Some(sandbox) => config.confine(sandbox)?,
            None => {
                config.keep_programs_from_earlier_code();
                config.warn_of_home();
                config.warn_of_python();
            }
        }
        Ok(config)
    }

    /// Has the session ask the server of a team for its user's tokens and sandboxes.
    pub(crate) fn ask_front(&mut self, front: FrontSocket) {
        if let KernelSite::Remote(remote) = &self.site {
            remote.servers.all().for_each(|server| server.ask_front(front.clone()));
        }
        #[cfg(feature = "kubernetes")]
        if let KernelSite::Pod(pods) = &self.site {
            pods.all().filter_map(PodSource::of_front).for_each(|claims| claims.ask_at(front.clone()));
        }
        self.front = Some(front);
    }

    /// For a further session beside one that has this configuration, which registers what is offered at the start, and
    /// saves its variables after each cell.
    pub(crate) fn beside_another(&self) -> Self {
        let mut config = self.clone();
        config.mcp_configs.clear();
        config.kernel.checkpoint &= config.kernel.idle_timeout.is_some();
        config.checkpoint_purpose = CheckpointPurpose::Rest;
        config.tool_server.port = None;
        config.session = None;
        if let NotebookPlace::Named(file) = &self.notebook {
            config.notebook = NotebookPlace::Beside(file.clone());
        }
        if let RecordingPlace::Named(file) = &self.recording {
            config.recording = RecordingPlace::Beside(file.clone());
        }
        config
    }

    /// The same with kernels of this name; `None` if there are none.
    pub(crate) fn with_kernels(&self, name: &str) -> Option<Self> {
        Some(Self { site: self.site.with_kernels(name)?, ..self.clone() })
    }

    fn warn_of_home(&self) {
        if let (Some(home), KernelSite::Local) = (self.home_in_workspace(), &self.site) {
            tracing::warn!(
                "the workspace `{}` holds the home directory `{}`: name a directory of its own with `--workspace`",
                self.workspace.display(),
                home.display()
            );
        }
    }

    fn warn_of_python(&self) {
        let python = self.kernel.python.as_deref();
        if let Some((python, place)) =
            python.and_then(|python| Some((python, self.recorded.leads_to(python)?)))
        {
            tracing::warn!(
                "`{}` runs without a sandbox, and code in the sandbox of an earlier session could write `{}`: make a new \
                 environment, or look at what that code wrote",
                python.display(),
                place.display()
            );
        }
    }

    /// The directory of registrations, answers and environments.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// The settings of the sandbox, if there is one.
    pub(crate) fn sandbox(&self) -> Option<&SandboxSettings> {
        self.sandbox.as_ref()
    }

    /// Whether the workspace is a directory for this session alone, which is removed with it.
    pub(crate) fn is_temporary(&self) -> bool {
        self.of_servers != self.workspace
    }

    /// The workspace's real path.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Whether ipybox runs in its container image.
    pub(crate) fn is_in_container(&self) -> bool {
        self.variables.in_process(IPYBOX_CONTAINER).is_some()
    }

    /// The state directories of the places besides the workspace that the application names for packages: the
    /// directories of `PYTHONPATH` in the kernel's variables. They may not exist.
    pub(crate) fn further_state_dirs(&self) -> Vec<PathBuf> {
        let path = self.kernel.env.get("PYTHONPATH").map(String::as_str).unwrap_or_default();
        let named = std::env::split_paths(path).filter(|directory| !directory.as_os_str().is_empty());
        let directories = named.map(|directory| {
            let directory = self.workspace.join(directory);
            directory.canonicalize().unwrap_or(directory)
        });
        let others = directories.filter(|directory| *directory != self.workspace);
        others.map(|directory| self.state_dir.with_file_name(state_dir_name(&directory))).collect()
    }

    /// The kernel's environment, but for what ipybox adds.
    pub(crate) fn kernel_variables(&self) -> BTreeMap<String, String> {
        let mut variables = match &self.site {
            KernelSite::Local => self.variables.for_kernel(),
            KernelSite::Sandboxed { .. } => self.variables.for_confined_kernel(),
            KernelSite::Remote(_) | KernelSite::Pod(_) => self.variables.meant_for_kernel(),
        };
        variables.extend(self.kernel.env.clone());
        variables.extend(self.seed_and_clock());
        variables
    }

    /// The variables by which Jupyter's gateways start the kernel.
    pub(crate) fn start_variables(&self) -> BTreeMap<String, String> {
        let mut variables = self.variables.meant_for_kernel_in_process();
        variables.extend(self.kernel.env.clone());
        variables.retain(|name, _| name.starts_with(START_VARIABLES));
        variables
    }

    /// The address of the tool server on this machine; `None` with a sandbox, inside which it listens, and
    /// with a Jupyter server, whose kernels send calls over their own connection.
    pub(crate) fn tool_server_address(&self) -> Option<(&str, u16)> {
        let ToolServerSettings { host, port, .. } = &self.tool_server;
        matches!(self.site, KernelSite::Local | KernelSite::Pod(_))
            .then_some((host.as_str(), port.unwrap_or(0)))
    }

    /// The directory of the audit log, which a sandbox hides as a whole: a file that is hidden alone can be read once it has
    /// been renamed.
    pub(crate) fn log_directory(&self) -> Option<PathBuf> {
        let file = self.audit.file.as_ref()?;
        // A path that cannot be made absolute is empty.
        Some(std::path::absolute(file).ok()?.parent()?.to_owned())
    }

    /// The paths for the sandbox's policy. Code in it can read `private_directory` and write
    /// `writable_directory`.
    pub(crate) fn sandbox_paths(
        &self,
        private_directory: PathBuf,
        writable_directory: PathBuf,
    ) -> PolicyPaths {
        let policy = match &self.approval.mode {
            ApprovalMode::Policy(path) => Some(path.clone()),
            _ => None,
        };
        let log = self.log_directory();
        // Secrets of MCP servers are in the state of all workspaces, in `.env`, and where other clients have them.
        let workspaces = self.state_dir.parent().unwrap_or(&self.state_dir).to_owned();
        let sessions = sessions_dir(self.states());
        let own = [workspaces, sessions, self.workspace.join(".env"), self.of_servers.join(".env")];
        let own = own.into_iter().chain(self.origin.iter().map(|origin| origin.join(".env")));
        PolicyPaths {
            workspace: self.workspace.clone(),
            home: self.home.clone(),
            private_directory,
            writable_directory,
            state_dir: self.state_dir.clone(),
            python_prefixes: Vec::new(),
            protected: policy.into_iter().chain(log.clone()).collect(),
            hidden: log.into_iter().chain(own).chain(self.secrets.clients.iter().cloned()).collect(),
            other_homes: self.secrets.other_homes.clone(),
            foreign_homes: self.secrets.foreign_homes.clone(),
            moved: self.secrets.moved.clone(),
            covered: self.secrets.named.clone(),
            protected_before: self.protected_before.clone(),
        }
    }

    /// Checks whether the sandbox of these settings can be made, as far as possible without making one.
    ///
    /// # Errors
    /// A program that it needs is missing, or its policy cannot be held.
    pub(crate) async fn check_sandbox(&self) -> Result<(), Error> {
        let KernelSite::Sandboxed { confinement, .. } = &self.site else { return Ok(()) };
        // Nothing is there yet, and nobody has the names.
        let paths = self.sandbox_paths("/run/ipybox/p".into(), "/run/ipybox/w".into());
        confinement.check(&paths).await.map_err(|error| Error::Sandbox(error.into()))
    }

    /// Creates the state directory of another workspace of the same user.
    pub(crate) fn create_state_dir_of(&self, workspace: &Path) -> Result<PathBuf, Error> {
        let path = self.state_dir.with_file_name(state_dir_name(workspace));
        create_in(self.states(), &path, &self.variables)?;
        Ok(path)
    }

    /// The place of the state of all workspaces.
    fn states(&self) -> &Path {
        self.state_dir.ancestors().nth(2).unwrap_or(&self.state_dir)
    }

    /// The connector to MCP servers.
    pub(crate) fn connector(&self) -> Connector {
        let guard = exposures::guard(&self.state_dir, self.exposed());
        Connector::new(Arc::clone(&self.variables), self.of_servers.clone(), guard)
            .with_connect_timeout(self.tool_server.connect_timeout)
            .with_accounts_in(self.state_dir.clone(), &self.login_flags, self.front.clone())
    }

    /// The flags by which commands of `ipybox` find this workspace, with a blank before each.
    pub(crate) fn command_flags(&self) -> &str {
        &self.login_flags
    }

    /// The directory that code writes to: the workspace, or where its copies are.
    pub(crate) fn written_by_code(&self) -> PathBuf {
        match self.site {
            KernelSite::Sandboxed { changes: ChangesMode::Ask, .. } => self.state_dir.join(COPIES),
            _ => self.workspace.clone(),
        }
    }

    /// The environment and `.env`.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }
}
