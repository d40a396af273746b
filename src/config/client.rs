//! A session whose code gets no more than the commands of its MCP client, which has told what these may do.

use std::sync::Arc;

use super::{Config, Error, KernelSite, SandboxBackend, SandboxSettings};
use crate::ground::env::on_path;
use crate::kernels::sandbox::{ClientPermissions, SandboxPolicy};

impl Config {
    /// These settings, with kernels in a sandbox that allows no more than `newest` and all of `others`, and no more than
    /// the sandbox of these settings, if there is one.
    ///
    /// # Errors
    /// Nothing on this machine can hold that.
    pub(crate) fn within(
        &self,
        newest: &Arc<ClientPermissions>,
        others: &[Arc<ClientPermissions>],
    ) -> Result<Self, Error> {
        let mut config = self.clone();
        match &self.site {
            KernelSite::Remote(_) | KernelSite::Pod(_) => return Err(Error::ClientBeyond),
            KernelSite::Local => {
                let policy = SandboxPolicy::of_client(newest, &self.workspace, &self.home);
                config.confine_by(
                    policy,
                    SandboxSettings { backend: self.backend()?, ..SandboxSettings::default() },
                )?;
            }
            KernelSite::Sandboxed { .. } => {}
        }
        if let KernelSite::Sandboxed { confinement, .. } = &mut config.site {
            Arc::make_mut(confinement).clients = others.iter().chain([newest]).map(Arc::clone).collect();
        }
        Ok(config)
    }

    /// The program that makes sandboxes on this machine: bubblewrap if it is there, since it needs nothing else.
    fn backend(&self) -> Result<SandboxBackend, Error> {
        let path = self.variables.in_process("PATH").unwrap_or_default();
        let is_there = |backend: &SandboxBackend| on_path(backend.name(), path).is_some();
        let has_bubblewrap = cfg!(target_os = "linux");
        let backends = [SandboxBackend::Bubblewrap, SandboxBackend::Srt];
        let mut backends = backends.into_iter().skip(usize::from(!has_bubblewrap));
        backends.find(is_there).ok_or(Error::ClientWithoutSandbox)
    }
}
