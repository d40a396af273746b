//! The checkpoint of a session: where it saves its variables and for which later kernels, and when the worker does so.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::worker::KernelWorker;
use crate::config::{Config, KernelSite};
use crate::kernels::checkpoint::{Checkpoint, CheckpointConditions};

/// The checkpoint that the settings ask for.
pub(super) fn of(config: &Config) -> Option<Arc<Checkpoint>> {
    let conditions = conditions(config).filter(|_| config.kernel.checkpoint)?;
    Some(Arc::new(Checkpoint::new(&config.state_dir, conditions)))
}

/// The conditions under which kernels run; `None` on a Jupyter server, for which the settings exclude checkpoints.
pub(super) fn conditions(config: &Config) -> Option<CheckpointConditions> {
    match &config.site {
        KernelSite::Remote(_) => None,
        KernelSite::Local => {
            Some(CheckpointConditions { site: "without a sandbox".to_owned(), policy: String::new() })
        }
        KernelSite::Sandboxed { confinement, .. } => {
            let mut digest = Sha256::new();
            digest.update(confinement.policy.text());
            // What one client may not do, another one's kernels must not do for it.
            confinement.clients.iter().for_each(|client| digest.update(format!("{client:?}")));
            let site = format!("in a sandbox ({})", confinement.backend.name());
            Some(CheckpointConditions { site, policy: format!("{:x}", digest.finalize()) })
        }
    }
}

impl KernelWorker {
    /// Saves the variables after each cell; `None` if they are not saved.
    pub(super) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.tools.as_ref()?.checkpoint.as_deref()
    }

    /// Has the kernel save its variables, unless it is doing so: then it is asked again later.
    pub(super) fn save_variables(&mut self) {
        let checkpoint = self.tools.as_ref().and_then(|tools| tools.checkpoint.as_ref());
        let (Some(checkpoint), Some(kernel)) = (checkpoint, &mut self.kernel) else { return };
        // A kernel that has ended saves nothing, and the next cell notices that it has.
        if let Some(number) = checkpoint.begin()
            && let Err(error) = kernel.save_variables(number)
        {
            tracing::debug!(%error, "the kernel was not asked for its variables");
        }
    }
}
