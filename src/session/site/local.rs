//! Kernels on this machine: their Python environment, their files, their sandbox if they have one.

mod branching;

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use super::copied::CopiedSession;
use super::installer::LocalInstaller;
use super::sandboxed::SandboxedSite;
use super::template::SharedTemplate;
use crate::config::{Config, KernelSite};
use crate::ground::env;
use crate::ground::files::remove_tree;
use crate::kernels::changes::COPIES;
use crate::kernels::environment;
use crate::kernels::kernel::{
    DiskPlaces, HeldLimits, Kernel, KernelGround, KernelLaunch, KernelLimits, RenewOrigin, ShellCommands,
};
use crate::kernels::sandbox::{ClientPermissions, KernelProgram, TopLevel};
use crate::tools::tool_server;
use crate::tools::tool_server::ToolEndpoint;

/// Starts kernels on this machine.
pub(crate) struct LocalKernels {
    place: KernelPlace,
    /// The place of kernels without a sandbox, while a client's permissions need one.
    unconfined: Option<KernelPlace>,
    workspace: PathBuf,
    /// The session's directory for files of kernels.
    directory: PathBuf,
    limits: KernelLimits,
    shell_commands: ShellCommands,
    init_timeout: Duration,
    tool_server: Option<Arc<ToolEndpoint>>,
    /// The limits around all that a session runs here.
    held: Arc<HeldLimits>,
    /// Held by all whose kernels are within them: the session, its branches, and the states of its kernel.
    family: Arc<()>,
    /// Whether the user limits the disk.
    limits_disk: bool,
    /// The files of a branch, and for those of branches to come; `None` if branches share the workspace.
    copied: Option<CopiedSession>,
    /// The template of kernels, if those without a sandbox can be forked from one.
    template: Option<SharedTemplate>,
    /// The start of the newest kernel, as long as a template may be forked from it.
    started: Option<(Instant, KernelLaunch)>,
}

/// The part of a site that differs with and without a sandbox.
struct KernelPlace {
    environment: Arc<environment::SharedEnvironment>,
    variables: BTreeMap<String, String>,
    private_directory: PathBuf,
    /// The sandbox in which kernels run, if they do.
    sandboxed: Option<SandboxedSite>,
}

impl KernelPlace {
    fn new(config: &Config, sandboxed: Option<SandboxedSite>, directory: &Path) -> Self {
        let environment = environment::SharedEnvironment::new(environment::EnvironmentSettings {
            python: config.kernel.python.clone(),
            state_dir: config.state_dir.clone(),
            workspace: config.workspace.clone(),
            variables: Arc::clone(&config.variables),
            is_sandboxed: sandboxed.is_some(),
        });
        let private_directory =
            sandboxed.as_ref().map_or(directory, SandboxedSite::private_directory).to_owned();
        Self {
            environment: Arc::new(environment),
            variables: config.kernel_variables(),
            private_directory,
            sandboxed,
        }
    }

    /// A place in the same sandbox, if this is one in a sandbox.
    fn for_branch(&self, sandboxed: Option<SandboxedSite>) -> Self {
        Self {
            environment: Arc::clone(&self.environment),
            variables: self.variables.clone(),
            private_directory: self.private_directory.clone(),
            sandboxed,
        }
    }
}

impl LocalKernels {
    pub(super) fn new(
        config: &Config,
        sandboxed: Option<SandboxedSite>,
        directory: &Path,
        tool_server: Option<Arc<ToolEndpoint>>,
        held: Arc<HeldLimits>,
        template: SharedTemplate,
    ) -> Self {
        // Groups of processes and what a sandbox hides are each kernel's own.
        let has_template = cfg!(target_os = "linux")
            && !config.kernel.cold_start
            && config.seed.is_none()
            && sandboxed.is_none()
            && held.entrance().is_empty()
            && held.processes_unheld().is_none()
            && config.kernel.max_processes.is_none();
        let copies = config.branch_files.then(|| config.state_dir.join(COPIES));
        let shared =
            config.limits.disk.map(|_| [config.written_by_code()].into_iter().chain(copies).collect());
        let shared = shared.unwrap_or_default();
        let own = vec![sandboxed.as_ref().map_or(directory, SandboxedSite::directory).to_owned()];
        held.watch_disk(DiskPlaces { own, shared });
        Self {
            place: KernelPlace::new(config, sandboxed, directory),
            unconfined: None,
            workspace: config.workspace.clone(),
            directory: directory.to_owned(),
            limits: config.kernel.limits(),
            shell_commands: config.shell_commands,
            init_timeout: config.kernel.init_timeout,
            tool_server,
            limits_disk: config.limits.disk.is_some(),
            copied: CopiedSession::of_branches(config),
            held,
            family: Arc::default(),
            template: has_template.then_some(template),
            started: None,
        }
    }

    /// The installer of packages for its kernels.
    pub(super) fn installer(&self) -> LocalInstaller {
        let KernelPlace { environment, sandboxed, .. } = &self.place;
        LocalInstaller::new(Arc::clone(environment), &self.workspace, sandboxed.as_ref(), &self.directory)
    }

    /// The permissions of clients that the sandbox of kernels holds.
    pub(super) fn clients(&self) -> &[Arc<ClientPermissions>] {
        self.place.sandboxed.as_ref().map_or(&[], SandboxedSite::clients)
    }

    /// Has the kernels that start from now on run where `config` says, on this machine. No kernel may run.
    pub(super) async fn move_to(&mut self, config: &Config) -> Result<(), Error> {
        if matches!(config.site, KernelSite::Sandboxed { .. }) && self.copy_of_workspace().is_some() {
            return Err(Error::UnshownCopy);
        }
        self.end_sandbox().await;
        match (&config.site, &mut self.place.sandboxed) {
            (KernelSite::Sandboxed { confinement, .. }, Some(sandboxed)) => sandboxed.confine(confinement),
            (KernelSite::Sandboxed { confinement, .. }, None) => {
                let directory = tempfile::Builder::new().prefix("c").tempdir_in(&self.directory);
                // The session removes it with its own directory.
                let directory = directory.map_err(Error::Files)?.keep();
                let sandboxed = SandboxedSite::new(config, confinement, &directory, Arc::clone(&self.held));
                let place = KernelPlace::new(config, Some(sandboxed.map_err(Error::Files)?), &directory);
                self.unconfined = Some(std::mem::replace(&mut self.place, place));
            }
            (KernelSite::Local | KernelSite::Remote(_) | KernelSite::Pod(_), _) => {
                if let Some(place) = self.unconfined.take() {
                    self.place = place;
                }
                if let (Some(tool_server), Some((host, port))) =
                    (&self.tool_server, config.tool_server_address())
                {
                    tool_server
                        .listen(host, port)
                        .await
                        .map_err(std::io::Error::other)
                        .map_err(Error::Files)?;
                }
            }
        }
        Ok(())
    }

    /// Starts a kernel in the Python environment, which is made if there is none.
    pub(super) async fn start_kernel(
        &mut self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Kernel, Error> {
        let environment = self.place.environment.get(report).await.map_err(Error::Environment)?;
        report("starting the IPython kernel");
        // Branches have the same control group and temporary files.
        let is_alone = self.is_alone();
        if self.place.sandboxed.is_none() && is_alone {
            // Processes that left the group of the last kernel.
            self.held.clear().await;
        }
        if is_alone && self.held.take_exhausted() {
            // Shared memory and temporary files of its kernels would fill the limits again.
            self.end_sandbox().await;
            self.remove_temporary_files();
        }
        self.prepare_files().map_err(Error::Files)?;
        if let Some(sandboxed) = &mut self.place.sandboxed {
            sandboxed.ready(&environment, self.tool_server.as_deref()).await?;
        }
        let mut variables: BTreeMap<String, String> = match &self.place.sandboxed {
            None => BTreeMap::new(),
            Some(sandboxed) => {
                sandboxed.variables().map(|(name, path)| (name.to_owned(), path.display().to_string())).into()
            }
        };
        variables.extend(self.place.variables.clone());
        variables.extend(
            self.temporary_directory().map(|path| (env::TMPDIR.to_owned(), path.display().to_string())),
        );
        variables.extend(environment.variables());
        variables.extend(self.our_variables());
        let program = KernelProgram {
            python: environment.python().to_owned(),
            working_directory: self.workspace.clone(),
            environment: variables,
            private_directory: self.kernel_directory().to_owned(),
        };
        let checkpoint = self.tool_server.as_ref().and_then(|tool_server| tool_server.checkpoint().cloned());
        let launch = KernelLaunch {
            program,
            limits: self.limits,
            default_limits: self.default_limits(),
            shell_commands: self.shell_commands,
            timeout: self.init_timeout,
            has_checkpoints: checkpoint.is_some(),
            has_workspace: true,
            held: Arc::clone(&self.held),
        };
        let kernel = self.start(&launch).await?;
        if let Some(checkpoint) = checkpoint {
            let (major, minor) = environment.python_version();
            checkpoint.kernel_started(major, minor);
        }
        tracing::info!(python = %launch.program.python.display(), "the kernel is ready");
        Ok(kernel)
    }

    /// Forks a kernel from the template, or starts one from scratch: always in a sandbox, of which no template knows.
    async fn start(&mut self, launch: &KernelLaunch) -> Result<Kernel, Error> {
        let begun = Instant::now();
        self.started = None;
        if let Some(sandboxed) = &mut self.place.sandboxed {
            return sandboxed.start_kernel(launch).await;
        }
        if let Some(template) = &self.template {
            if let Some(kernel) = template.start_kernel(launch).await {
                return Ok(kernel);
            }
            self.started = Some((begun, launch.clone()));
        }
        Ok(Kernel::start(launch, KernelGround::Beside).await?)
    }

    /// Whether a template can be forked from the newest kernel, if that has run no code.
    pub(super) fn lacks_template(&self) -> bool {
        self.started.is_some() && self.template.as_ref().is_some_and(SharedTemplate::is_missing)
    }

    /// Forks a template from the newest kernel, which has run no code.
    pub(super) async fn make_template(&mut self, kernel: &mut Kernel) {
        let (Some(template), Some((begun, launch))) = (&self.template, self.started.take()) else { return };
        let renew_origin =
            self.tool_server.as_ref().filter(|origin| origin.address().is_some()).map(|origin| {
                let origin = Arc::clone(origin);
                Box::new(move || origin.renew_token()) as RenewOrigin
            });
        template.make(kernel, launch, begun, renew_origin).await;
    }

    /// Ends the template, unless other sessions use it.
    pub(super) async fn end_template(&self) {
        if let Some(template) = &self.template {
            template.end().await;
        }
    }

    fn remove_temporary_files(&self) {
        for name in ["tmp", "cache"] {
            match std::fs::remove_dir_all(self.kernel_directory().join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(%error, "temporary files of the last kernel are left");
                }
                _ => {}
            }
        }
    }

    /// The directory for temporary files of a kernel whose disk is limited, and that has none by another name.
    fn temporary_directory(&self) -> Option<PathBuf> {
        let is_needed = self.limits_disk && self.place.sandboxed.is_none();
        is_needed.then(|| self.place.private_directory.join("tmp"))
    }

    /// The limits of each process by the session's, with which code gets an exception rather than be killed.
    fn default_limits(&self) -> KernelLimits {
        KernelLimits {
            memory: self.held.memory(),
            processes: self.held.processes_unheld(),
            file_size: self.place.sandboxed.as_ref().and_then(SandboxedSite::file_size),
        }
    }

    /// Makes the directories that a kernel needs. Code in an earlier kernel, or a cleaner of temporary files, may
    /// have removed them.
    fn prepare_files(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.workspace)?;
        let private = std::fs::symlink_metadata(&self.place.private_directory);
        if !private.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            // A file or a link in its place is not ours.
            if private.is_ok() {
                std::fs::remove_file(&self.place.private_directory)?;
            }
            std::fs::DirBuilder::new().mode(0o700).create(&self.place.private_directory)?;
        }
        if let Some(temporary) = self.temporary_directory() {
            std::fs::create_dir_all(temporary)?;
        }
        tool_server::write_runtime(&self.place.private_directory, &self.workspace)
    }

    /// The directory in which the kernel keeps files of its own.
    fn kernel_directory(&self) -> &Path {
        self.place.sandboxed.as_ref().map_or(&self.place.private_directory, SandboxedSite::directory)
    }

    /// The kernel's variables beside the user's: the address and token of the tool server.
    fn our_variables(&self) -> Vec<(String, String)> {
        let private = &self.place.private_directory;
        let users = self.place.variables.get("PYTHONPATH").cloned();
        let places = std::iter::once(tool_server::runtime_directory(private).display().to_string())
            .chain(users)
            .chain(std::iter::once(tool_server::own_packages_directory(private).display().to_string()));
        let python_path = places.collect::<Vec<_>>().join(":");
        let mut ours = vec![("PYTHONPATH".to_owned(), python_path)];
        if let Some(endpoint) = &self.tool_server
            && let Some(address) = endpoint.address()
        {
            ours.push((env::IPYBOX_TOOL_SERVER.to_owned(), address.to_string()));
            // A new token for each kernel: processes that an earlier one left behind cannot call tools.
            ours.push((env::IPYBOX_TOOL_SERVER_TOKEN.to_owned(), endpoint.renew_token()));
        }
        ours
    }

    /// Forgets the Python environment, which is searched again for the next kernel.
    pub(super) async fn forget(&self) {
        self.place.environment.forget().await;
    }

    /// A file that the sandbox no longer protects.
    pub(super) fn replaced(&self) -> Option<&Path> {
        self.place.sandboxed.as_ref()?.replaced()
    }

    /// The top level of the workspace, if code in a sandbox can write there.
    pub(super) fn top_level(&self) -> Option<TopLevel> {
        self.place.sandboxed.as_ref()?.top_level()
    }

    /// The notes about the sandbox for the answer of the next cell.
    pub(super) async fn take_notes(&mut self) -> Vec<String> {
        let mut notes = self.held.news();
        if let Some(sandboxed) = &mut self.place.sandboxed {
            notes.extend(sandboxed.take_notes().await);
        }
        if let Some(copied) = &mut self.copied {
            notes.extend(copied.take_note().await);
        }
        notes
    }

    /// The copy of the workspace in which the kernels of a branch work.
    pub(super) fn copy_of_workspace(&self) -> Option<PathBuf> {
        self.copied.as_ref().and_then(CopiedSession::files)
    }

    /// Ends the use of the copy of the workspace, if code writes to one.
    pub(super) async fn end_copy(&mut self) {
        if let Some(sandboxed) = &mut self.place.sandboxed {
            sandboxed.end_copy().await;
        }
        let is_own = self.copy_of_workspace().is_some();
        if let Some(copied) = self.copied.take() {
            copied.end().await;
        }
        if is_own && let Err(error) = remove_tree(&self.place.private_directory) {
            tracing::warn!(%error, "the private directory of a branch is left");
        }
    }

    /// The memory of the session in bytes, if it is limited.
    pub(super) fn memory_limit(&self) -> Option<u64> {
        self.held.memory()
    }

    /// Ends what is within the limits, unless branches are.
    pub(super) async fn end_held(&self) {
        if self.is_alone() {
            self.held.end().await;
        }
    }

    /// Whether no other session's kernels are within the limits.
    fn is_alone(&self) -> bool {
        Arc::strong_count(&self.family) == 1
    }

    /// Whether what a kernel has left fills the limits that it has died of.
    pub(super) fn are_limits_filled(&self) -> bool {
        self.held.are_filled()
    }

    /// Ends the sandbox, and with it its kernels. `false` if there is none, or the kernels of other sessions need it.
    pub(super) async fn end_sandbox(&mut self) -> bool {
        match &mut self.place.sandboxed {
            Some(sandboxed) => sandboxed.end().await,
            None => false,
        }
    }

    /// Ends the sandbox that does not do what it should, whoever else uses it.
    pub(super) async fn end_sandbox_for_all(&mut self) {
        if let Some(sandboxed) = &mut self.place.sandboxed {
            sandboxed.end_for_all().await;
        }
    }
}
