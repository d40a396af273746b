//! The place of a session's kernels: on this machine, in a sandbox on it, or where a Jupyter server runs them.
//!
//! [`config::Site`](crate::config::Site) decides it; [`open()`] makes the starter of kernels and the installer
//! of packages for it.

mod installer;
mod local;
mod modules;
mod remote;
mod sandboxed;
mod uploads;

use std::path::Path;
use std::sync::Arc;

use self::installer::LocalInstaller;
pub(crate) use self::installer::{SiteInstallError, SiteInstaller};
use self::local::Local;
use self::sandboxed::Sandboxed;
use crate::config::{Config, Site};
use crate::ground::files::TemporaryDirectory;
/// The reading of an installer's output, also of one that a remote kernel has run.
pub(super) use crate::kernels::environment::{explained, summarised};
use crate::kernels::kernel::{self, Kernel, RemoteLaunch};
use crate::kernels::{environment, sandbox};
use crate::tools::tool_server::Endpoint;

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
    /// The kernel's Python is on another machine.
    #[error(
        "name the kernel's Python: it is where the Jupyter server runs the kernel; `sys.executable` in a cell shows it"
    )]
    RemotePython,
    /// The directories that a kernel needs cannot be made.
    #[error("make the directories that the kernel needs")]
    Files(#[source] std::io::Error),
}

/// Starts a session's kernels, one at a time. Their code can call tools if there is a tool server.
pub(crate) enum Kernels {
    /// On this machine, in a sandbox or not.
    Local(Box<Local>),
    /// On a Jupyter server.
    Remote(Box<RemoteLaunch>),
}

/// An open site.
pub(crate) struct OpenSite {
    pub(crate) kernels: Kernels,
    pub(crate) installer: SiteInstaller,
    /// The files of kernels on this machine: to be removed after these.
    pub(crate) directory: Option<TemporaryDirectory>,
}

/// Prepares the site that `config` names.
pub(crate) fn open(config: &Config, tool_server: Option<&Arc<Endpoint>>) -> std::io::Result<OpenSite> {
    if let Site::Remote(server) = &config.site {
        let remote = remote::launch(config, server, tool_server.cloned());
        let installer = SiteInstaller::Remote { workspace: config.workspace.clone() };
        return Ok(OpenSite { kernels: Kernels::Remote(Box::new(remote)), installer, directory: None });
    }
    let private = TemporaryDirectory::from(kernel::private_directory()?);
    let directory = private.path();
    let sandboxed = match &config.site {
        Site::Local | Site::Remote(_) => None,
        Site::Sandboxed { confinement, .. } => Some(Sandboxed::new(config, confinement, directory)?),
    };
    let environment = Arc::new(environment::SharedEnvironment::new(environment::EnvironmentSettings {
        python: config.kernel.python.clone(),
        state_dir: config.state_dir.clone(),
        workspace: config.workspace.clone(),
        variables: Arc::clone(&config.variables),
        is_sandboxed: sandboxed.is_some(),
    }));
    let installer = LocalInstaller::new(Arc::clone(&environment), config, sandboxed.as_ref(), directory);
    let local = Local::new(config, environment, sandboxed, directory, tool_server.cloned());
    let (kernels, installer) = (Kernels::Local(Box::new(local)), SiteInstaller::Local(Box::new(installer)));
    Ok(OpenSite { kernels, installer, directory: Some(private) })
}

impl Kernels {
    /// Starts a kernel.
    pub(crate) async fn start(&mut self, report: &(dyn Fn(&str) + Send + Sync)) -> Result<Kernel, Error> {
        match self {
            Self::Local(local) => local.start_kernel(report).await,
            Self::Remote(remote) => {
                report("starting the IPython kernel on the Jupyter server");
                let kernel = Kernel::start_remote(remote).await?;
                tracing::info!(server = remote.server.name(), "the kernel is ready");
                Ok(kernel)
            }
        }
    }

    /// A file that the sandbox of the kernel no longer protects, since a program of the host has removed or replaced it.
    pub(crate) fn replaced(&self) -> Option<&Path> {
        match self {
            Self::Local(local) => local.replaced(),
            Self::Remote(_) => None,
        }
    }

    /// The top level of the workspace, if code in a sandbox can write there.
    pub(crate) fn top_level(&self) -> Option<sandbox::TopLevel> {
        match self {
            Self::Local(local) => local.top_level(),
            Self::Remote(_) => None,
        }
    }

    /// The notes about the sandbox for the answer of the next cell, if there is one.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        match self {
            Self::Local(local) => local.take_notes(),
            Self::Remote(_) => Vec::new(),
        }
    }

    /// Forgets cached state that may have kept a kernel from starting.
    pub(crate) async fn forget(&self) {
        match self {
            Self::Local(local) => local.forget().await,
            Self::Remote(_) => {}
        }
    }

    /// Kills a kernel.
    pub(crate) async fn kill(&mut self, kernel: Kernel) {
        if !kernel.kill().await
            && let Self::Local(local) = self
        {
            tracing::warn!("the sandbox does not end its kernel; ending the sandbox");
            local.end_sandbox().await;
        }
    }

    /// Kills a kernel that another one replaces at once; a Jupyter server restarts it instead.
    pub(crate) async fn replace(&mut self, kernel: Kernel) {
        match self {
            Self::Local(_) => self.kill(kernel).await,
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
            }
            Self::Remote(remote) => {
                drop(kernel);
                remote.end().await;
            }
        }
    }
}
