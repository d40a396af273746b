//! Whether and where a session saves its variables, and for which later kernels.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::config::{Config, Site};
use crate::kernels::checkpoint::{Checkpoint, Conditions};

/// The checkpoint that the settings ask for.
pub(super) fn of(config: &Config) -> Option<Arc<Checkpoint>> {
    let conditions = match &config.site {
        _ if !config.kernel.checkpoint => return None,
        // The settings exclude it.
        Site::Remote(_) => return None,
        Site::Local => Conditions { site: "without a sandbox".to_owned(), policy: String::new() },
        Site::Sandboxed { confinement, .. } => Conditions {
            site: format!("in a sandbox ({})", confinement.backend.name()),
            policy: format!("{:x}", Sha256::digest(confinement.policy.text())),
        },
    };
    Some(Arc::new(Checkpoint::new(&config.state_dir, conditions)))
}
