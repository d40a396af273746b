//! The place of a session's kernels: on this machine, in a sandbox on it, in a pod, or where a Jupyter server runs them.
//!
//! [`config::Site`](crate::config::KernelSite) decides it; [`open()`] makes the starter of kernels and the installer
//! of packages for it.

mod copied;
mod installer;
mod local;
mod modules;
mod pod;
mod remote;
mod sandboxed;
mod template;
mod uploads;
mod workspace_files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use self::installer::{SiteInstallError, SiteInstaller};
use self::local::LocalKernels;
use self::pod::PodKernels;
use self::sandboxed::SandboxedSite;
pub(crate) use self::template::{SharedTemplate, TemplateOfOthers};
pub(crate) use self::workspace_files::answers as file_answers;
use crate::config::{Config, KernelSite};
use crate::ground::files::TemporaryDirectory;
use crate::kernels::changes::CopyError;
/// The changes that wait in copies of the workspace.
pub(crate) use crate::kernels::changes::{AppliedChanges, ChangedCopies, FileChange, NoChangedCopy};
/// The reading of an installer's output, also of one that a remote kernel has run.
pub(super) use crate::kernels::environment::{explained, summarised};
use crate::kernels::kernel::{
    self, BranchOrder, BranchTools, Kernel, KernelEvent, LimitsError, PodRest, PodSourceError, RemoteLaunch,
    RunningBranch, SessionLimits,
};
/// The limits of a session, also where the session itself shows them.
pub(crate) use crate::kernels::kernel::{ByteSize, HeldLimits, LimitUse};
/// The memory that states take.
pub(crate) use crate::kernels::kernel::{memory_of_forks, most_memory_of_forks};
/// Measures states in a pod.
pub(crate) use crate::kernels::pod::PodMeter;
use crate::kernels::sandbox::BranchInside;
use crate::kernels::{environment, sandbox};
use crate::tools::tool_server::ToolEndpoint;

/// Why no kernel could be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no usable Python environment.
    #[error("prepare the Python environment")]
    Environment(#[source] environment::Error),
    /// The kernel does not start.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    /// The sandbox does not start. Nothing runs without it instead.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    /// There is no pod for it.
    #[error("use {pod}")]
    Pod { pod: String, source: PodSourceError },
    /// The kernel's Python is on another machine.
    #[error("name the kernel's Python: it is on another machine; `sys.executable` in a cell shows it")]
    RemotePython,
    /// The directories that a kernel needs cannot be made.
    #[error("make the directories that the kernel needs")]
    Files(#[source] std::io::Error),
    /// There is no copy of the workspace. Code never writes the workspace instead.
    #[error(transparent)]
    Copy(CopyError),
    /// A sandbox would show the workspace in the place of a branch's copy of it.
    #[error(
        "give the copy files of its own (`--branch-files`): its kernel is in a sandbox, which shows no directory that comes later"
    )]
    UnshownCopy,
}

/// Why a kernel could not be copied. It goes on as before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BranchFailure {
    /// The kernel cannot.
    #[error(transparent)]
    Kernel(#[from] kernel::BranchError),
    /// Its sandbox cannot.
    #[error("copy the kernel")]
    Site(#[from] Error),
}

impl From<sandbox::Error> for BranchFailure {
    fn from(error: sandbox::Error) -> Self {
        Self::Site(error.into())
    }
}

/// A branch, and the starter of the kernels after it.
pub(crate) type BranchedSite = (RunningBranch, SiteKernels);

/// A state of a kernel: a fork of it, which sleeps.
pub(crate) struct SleepingKernel {
    branched: RunningBranch,
    /// As long as it lives, the limits around it are used.
    family: Arc<()>,
}

impl SleepingKernel {
    /// Has a kernel fork; the fork sleeps. What the kernel has said meanwhile is added to `said`.
    async fn of(
        kernel: &mut Kernel,
        inside: Option<BranchInside>,
        family: &Arc<()>,
        said: &mut Vec<KernelSaid>,
    ) -> Result<Self, BranchFailure> {
        let order = BranchOrder { tools: None, inside, sleeps: true, moves: Vec::new() };
        let (branched, mut events) = kernel.branch(order).await;
        said.append(&mut events);
        Ok(Self { branched: branched?, family: Arc::clone(family) })
    }

    /// Measures the memory of it and its like, if they are in a pod.
    pub(crate) fn meter_in_pod(&self) -> Option<PodMeter> {
        self.branched.kernel.meter_in_pod()
    }

    /// Its process.
    pub(crate) fn process(&self) -> Option<u32> {
        self.branched.kernel.branch_process()
    }

    /// The process that it is a fork of.
    pub(crate) fn origin(&self) -> Option<u32> {
        self.branched.origin
    }

    /// The differences to the kernel as it was.
    pub(crate) fn notes(&self) -> &[String] {
        &self.branched.notes
    }

    /// Ends it.
    pub(crate) async fn end(self) {
        self.branched.kernel.kill().await;
        drop(self.family);
    }
}

/// Has a state take the place of its origin. Code of that has no tools from then on.
async fn awaken(state: SleepingKernel, tool_server: Option<&ToolEndpoint>) -> Result<Kernel, kernel::Error> {
    let mut kernel = state.branched.kernel;
    kernel.awaken().await?;
    if let Some(endpoint) = tool_server.filter(|endpoint| endpoint.address().is_some()) {
        kernel.renew_token(&endpoint.renew_token())?;
    }
    Ok(kernel)
}

/// The tools of a branch whose tool server is at this address, if its code has any.
fn tools_of_branch(
    origin: Option<&Arc<ToolEndpoint>>,
    branch: Option<&Arc<ToolEndpoint>>,
    address: Option<String>,
) -> Option<BranchTools> {
    let origin = Arc::clone(origin?);
    let renew_origin = Box::new(move || origin.renew_token());
    Some(BranchTools { address: address?, token: branch?.renew_token(), renew_origin })
}

/// An event that came from a kernel meanwhile.
pub(crate) type KernelSaid = Result<KernelEvent, kernel::Error>;

/// Starts a session's kernels, one at a time. Their code can call tools if there is a tool server.
pub(crate) enum SiteKernels {
    /// On this machine, in a sandbox or not.
    Local(Box<LocalKernels>),
    /// On a Jupyter server.
    Remote(Box<RemoteLaunch>),
    /// In a pod.
    Pod(Box<PodKernels>),
}

/// An open site.
pub(crate) struct OpenSite {
    pub(crate) kernels: SiteKernels,
    pub(crate) installer: SiteInstaller,
    /// The files of kernels on this machine: to be removed after these.
    pub(crate) directory: Option<TemporaryDirectory>,
    /// The limits around kernels on this machine.
    pub(crate) limits: Arc<HeldLimits>,
}

/// Why a site cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SiteOpenError {
    /// There is no directory for the files of kernels.
    #[error(transparent)]
    Directory(#[from] std::io::Error),
    /// A limit that was asked for is held by nothing here.
    #[error(transparent)]
    Limits(#[from] LimitsError),
}

/// Prepares the site that `config` names. Its kernels are forked from the `template` if they can be.
///
/// # Errors
/// See [`SiteOpenError`].
pub(crate) fn open(
    config: &Config,
    tool_server: Option<&Arc<ToolEndpoint>>,
    template: SharedTemplate,
) -> Result<OpenSite, SiteOpenError> {
    if let KernelSite::Remote(server) = &config.site {
        let remote = remote::launch(config, server, tool_server.cloned());
        let installer = SiteInstaller::Remote { workspace: config.workspace.clone() };
        let kernels = SiteKernels::Remote(Box::new(remote));
        return Ok(OpenSite { kernels, installer, directory: None, limits: Arc::default() });
    }
    if let KernelSite::Pod(pods) = &config.site {
        let kernels = SiteKernels::Pod(Box::new(PodKernels::new(config, pods, tool_server.cloned())));
        let installer = SiteInstaller::Remote { workspace: config.workspace.clone() };
        return Ok(OpenSite { kernels, installer, directory: None, limits: Arc::default() });
    }

    let private = TemporaryDirectory::from(kernel::private_directory()?);
    let directory = private.path();
    let defaults = match &config.site {
        KernelSite::Local | KernelSite::Remote(_) | KernelSite::Pod(_) => SessionLimits::default(),
        KernelSite::Sandboxed { .. } => SessionLimits::of_sandbox(directory),
    };
    let limits = Arc::new(HeldLimits::hold(config.limits, defaults)?);
    let sandboxed = match &config.site {
        KernelSite::Local | KernelSite::Remote(_) | KernelSite::Pod(_) => None,
        KernelSite::Sandboxed { confinement, .. } => {
            Some(SandboxedSite::new(config, confinement, directory, Arc::clone(&limits))?)
        }
    };
    let held = Arc::clone(&limits);
    let local = LocalKernels::new(config, sandboxed, directory, tool_server.cloned(), held, template);
    let installer = SiteInstaller::Local(Box::new(local.installer()));
    let kernels = SiteKernels::Local(Box::new(local));
    Ok(OpenSite { kernels, installer, directory: Some(private), limits })
}

impl SiteKernels {
    /// Starts a kernel.
    pub(crate) async fn start(&mut self, report: &(dyn Fn(&str) + Send + Sync)) -> Result<Kernel, Error> {
        match self {
            Self::Local(local) => local.start_kernel(report).await,
            Self::Remote(remote) => {
                let kernel = Kernel::start_remote(remote, report).await?;
                tracing::info!(server = remote.server.name(), "the kernel is ready");
                Ok(kernel)
            }
            Self::Pod(pod) => pod.start_kernel(report).await,
        }
    }

    /// Whether a kernel in the place of a lost one is started before a cell or a reset needs it. The server of a Hub, which may
    /// have been stopped because it was idle, is not.
    pub(crate) fn come_early(&self) -> bool {
        match self {
            Self::Local(_) | Self::Pod(_) => true,
            Self::Remote(remote) => !remote.server.is_of_hub(),
        }
    }

    /// Has one of these kernels fork. Returns the branch, and the starter of the kernels after it; what the kernel has said
    /// meanwhile is added to `said`.
    pub(crate) async fn branch(
        &self,
        kernel: &mut Kernel,
        tool_server: Option<Arc<ToolEndpoint>>,
        said: &mut Vec<KernelSaid>,
    ) -> Result<BranchedSite, BranchFailure> {
        match self {
            Self::Local(local) => {
                let (branched, site) = local.branch(kernel, tool_server, said).await?;
                Ok((branched, Self::Local(Box::new(site))))
            }
            Self::Pod(pod) => {
                let (branched, site) = pod.branch(kernel, tool_server, said).await?;
                Ok((branched, Self::Pod(Box::new(site))))
            }
            Self::Remote(_) => Err(kernel::BranchError::Remote.into()),
        }
    }

    /// Whether a kernel that has run no code can give a template to those after it.
    pub(crate) fn lack_template(&self) -> bool {
        matches!(self, Self::Local(local) if local.lacks_template())
    }

    /// Forks a template of further kernels from the newest one, which has run no code.
    pub(crate) async fn make_template(&mut self, kernel: &mut Kernel) {
        if let Self::Local(local) = self {
            local.make_template(kernel).await;
        }
    }

    /// Keeps the state of one of these kernels; what it has said meanwhile is added to `said`.
    pub(crate) async fn keep_state(
        &self,
        kernel: &mut Kernel,
        said: &mut Vec<KernelSaid>,
    ) -> Result<SleepingKernel, BranchFailure> {
        match self {
            Self::Local(local) => local.keep_state(kernel, said).await,
            Self::Pod(pod) => pod.keep_state(kernel, said).await,
            Self::Remote(_) => Err(kernel::BranchError::Remote.into()),
        }
    }

    /// Has a state take the place of its kernel, whose code has no tools from then on.
    pub(crate) async fn awaken(&self, state: SleepingKernel) -> Result<Kernel, Error> {
        match self {
            Self::Local(local) => Ok(local.awaken(state).await?),
            Self::Pod(pod) => Ok(pod.awaken(state).await?),
            Self::Remote(_) => Ok(state.branched.kernel),
        }
    }

    /// The copy of the workspace in which the kernels of a branch work.
    pub(crate) fn copy_of_workspace(&self) -> Option<PathBuf> {
        match self {
            Self::Local(local) => local.copy_of_workspace(),
            Self::Remote(_) | Self::Pod(_) => None,
        }
    }

    /// Whether what a kernel has left fills the limits that it has died of.
    pub(crate) fn are_limits_filled(&self) -> bool {
        match self {
            Self::Local(local) => local.are_limits_filled(),
            Self::Remote(_) | Self::Pod(_) => false,
        }
    }

    /// Whether the pod is lost that they were in, and their states with it.
    pub(crate) fn are_lost(&self) -> bool {
        match self {
            Self::Pod(pod) => pod.is_lost(),
            Self::Local(_) | Self::Remote(_) => false,
        }
    }

    /// A file that the sandbox of the kernel no longer protects, since a program of the host has removed or replaced it.
    pub(crate) fn replaced(&self) -> Option<&Path> {
        match self {
            Self::Local(local) => local.replaced(),
            Self::Remote(_) | Self::Pod(_) => None,
        }
    }

    /// The top level of the workspace, if code in a sandbox can write there.
    pub(crate) fn top_level(&self) -> Option<sandbox::TopLevel> {
        match self {
            Self::Local(local) => local.top_level(),
            Self::Remote(_) | Self::Pod(_) => None,
        }
    }

    /// The notes about the sandbox and the limits for the answer of the next cell.
    pub(crate) async fn take_notes(&mut self) -> Vec<String> {
        match self {
            Self::Local(local) => local.take_notes().await,
            Self::Pod(pod) => pod.take_note().into_iter().collect(),
            Self::Remote(_) => Vec::new(),
        }
    }

    /// The memory of the session in bytes, if it is limited.
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        match self {
            Self::Local(local) => local.memory_limit(),
            Self::Remote(_) | Self::Pod(_) => None,
        }
    }

    /// The permissions of clients that the kernels' sandbox holds.
    pub(crate) fn clients(&self) -> &[Arc<sandbox::ClientPermissions>] {
        match self {
            Self::Local(local) => local.clients(),
            Self::Remote(_) | Self::Pod(_) => &[],
        }
    }

    /// Has the kernels that start from now on run where `config` says, and returns the installer of packages for them; `None`
    /// for a Jupyter server, which stays where it is. No kernel may run.
    pub(crate) async fn move_to(&mut self, config: &Config) -> Result<Option<SiteInstaller>, Error> {
        match self {
            Self::Local(local) => {
                local.move_to(config).await?;
                Ok(Some(SiteInstaller::Local(Box::new(local.installer()))))
            }
            Self::Remote(_) | Self::Pod(_) => Ok(None),
        }
    }

    /// Forgets cached state that may have kept a kernel from starting.
    pub(crate) async fn forget(&self) {
        match self {
            Self::Local(local) => local.forget().await,
            Self::Remote(_) | Self::Pod(_) => {}
        }
    }

    /// Kills a kernel.
    pub(crate) async fn kill(&mut self, kernel: Kernel) {
        if !kernel.kill().await
            && let Self::Local(local) = self
        {
            tracing::warn!("the sandbox does not end its kernel; ending the sandbox");
            local.end_sandbox_for_all().await;
        }
    }

    /// The state that the place of the kernel gets when that ends since nobody uses it.
    ///
    /// # Errors
    /// A cluster does not tell whether files would be lost.
    pub(crate) async fn rest_for(&self) -> Result<PodRest, Error> {
        match self {
            Self::Local(_) | Self::Remote(_) => Ok(PodRest::Stays),
            Self::Pod(pod) => pod.rest_for().await,
        }
    }

    /// Ends the kernel that nobody uses, if it lives, and what it needs; this becomes of its place.
    pub(crate) async fn rest(&mut self, kernel: Option<Kernel>, rest: PodRest) {
        let has_ended = match self {
            Self::Local(local) => local.end_sandbox().await,
            Self::Remote(_) | Self::Pod(_) => false,
        };
        if let Some(kernel) = kernel.filter(|_| !has_ended) {
            self.kill(kernel).await;
        }
        if let Self::Pod(pod) = self {
            pod.rest(rest).await;
        }
    }

    /// Whether they hold a pod for themselves alone.
    pub(crate) fn hold_pod(&self) -> bool {
        matches!(self, Self::Pod(pod) if pod.is_alone())
    }

    /// Kills a kernel that another one replaces at once; a Jupyter server restarts it instead.
    pub(crate) async fn replace(&mut self, kernel: Kernel) {
        match self {
            Self::Local(_) | Self::Pod(_) => self.kill(kernel).await,
            Self::Remote(remote) => remote.keep_for_restart(kernel).await,
        }
    }

    /// Ends the kernel, and its sandbox.
    pub(crate) async fn end(&mut self, kernel: Option<Kernel>) {
        match self {
            Self::Local(local) => {
                // The kernel ends with its sandbox, which is quicker than first the one, then the other.
                if !local.end_sandbox().await
                    && let Some(kernel) = kernel
                {
                    kernel.kill().await;
                }
                local.end_template().await;
                local.end_held().await;
                local.end_copy().await;
            }
            Self::Remote(remote) => {
                drop(kernel);
                remote.end().await;
            }
            Self::Pod(pod) => {
                if let Some(kernel) = kernel {
                    kernel.kill().await;
                }
                pod.end().await;
            }
        }
    }
}
