//! The place of kernels, from the settings.

use std::sync::Arc;

use super::remote::pods;
use super::{ChangesMode, Error, KernelChoices, RemoteServer, SessionLimits, Settings};
use crate::ground::env::Variables;
use crate::kernels::kernel::PodSource;
use crate::kernels::sandbox::{Confinement, ExposedPlaces};

/// The place of kernels. It is decided only here.
#[derive(Debug, Clone)]
pub(crate) enum KernelSite {
    /// On this machine.
    Local,
    /// In a sandbox on this machine.
    Sandboxed {
        /// The plan of the sandbox.
        confinement: Arc<Confinement>,
        /// The exposed places.
        exposed: Box<ExposedPlaces>,
        /// When what code writes in the workspace is there.
        changes: ChangesMode,
    },
    /// On a Jupyter server.
    Remote(RemoteServer),
    /// In a pod.
    Pod(KernelChoices<PodSource>),
}

impl KernelSite {
    /// The place that settings name; a sandbox is put around a local one later.
    pub(super) fn of(settings: &Settings, variables: &Variables) -> Result<Self, Error> {
        if settings.kernel.idle_timeout.is_some() && !settings.kernel.checkpoint {
            return Err(Error::UnsavedIdle);
        }
        let Some(remote) = &settings.remote else {
            let has_both = settings.branch_files && settings.sandbox.is_some();
            return if has_both { Err(Error::BranchFilesInSandbox) } else { Ok(Self::Local) };
        };
        let local = [
            ("a sandbox", settings.sandbox.is_some()),
            ("a Python interpreter", settings.kernel.python.is_some()),
            ("a checkpoint of variables", settings.kernel.checkpoint && !remote.is_pod),
            ("limits around the session", settings.limits != SessionLimits::default()),
            ("files of branches", settings.branch_files),
        ];
        if let Some((what, _)) = local.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Error::NotRemote { what });
        }
        Ok(if remote.is_pod {
            Self::Pod(pods(remote, variables)?)
        } else {
            Self::Remote(RemoteServer::new(remote, variables)?)
        })
    }

    /// The names by which the kernels of a further session can be chosen.
    pub(crate) fn kernel_names(&self) -> Vec<&str> {
        match self {
            Self::Local | Self::Sandboxed { .. } => Vec::new(),
            Self::Remote(server) => server.servers.names(),
            Self::Pod(pods) => pods.names(),
        }
    }

    /// The name of the kernels, if they were chosen.
    pub(crate) fn chosen_kernels(&self) -> Option<&str> {
        match self {
            Self::Local | Self::Sandboxed { .. } => None,
            Self::Remote(server) => server.servers.chosen(),
            Self::Pod(pods) => pods.chosen(),
        }
    }

    /// The same with kernels of this name; `None` if there are none.
    pub(super) fn with_kernels(&self, name: &str) -> Option<Self> {
        match self {
            Self::Local | Self::Sandboxed { .. } => None,
            Self::Remote(server) => {
                Some(Self::Remote(RemoteServer { servers: server.servers.choose(name)?, ..server.clone() }))
            }
            Self::Pod(pods) => Some(Self::Pod(pods.choose(name)?)),
        }
    }
}
