//! The configuration of a session that tries something out in a directory of its own, and ends.

use std::path::Path;

use super::apart::DEFAULT_IMAGES;
use super::{
    AuditSettings, ChangesMode, Config, Error, KernelSite, NotebookPlace, RecordingPlace, create_workspace,
};

impl Config {
    /// The same in another workspace: the same Python, limits and sandbox, and none of what a session keeps. Its code has no more
    /// rights than that of this session, whose workspace it cannot write in a sandbox.
    ///
    /// # Errors
    /// The sandbox cannot be made.
    pub(crate) fn for_trial(&self, workspace: &Path, seed: u32) -> Result<Self, Error> {
        let mut config = self.beside_another();
        config.workspace = create_workspace(workspace)?;
        config.origin = Some(self.workspace.clone());
        config.images_dir = config.workspace.join(DEFAULT_IMAGES);
        config.notebook = NotebookPlace::None;
        config.recording = RecordingPlace::None;
        config.audit = AuditSettings { file: None, ..self.audit.clone() };
        config.kernel.checkpoint = false;
        config.kernel.idle_timeout = None;
        config.undo_memory = 0;
        config.branch_files = false;
        config.seed = Some(seed);
        // A remote kernel stays with its Jupyter server, and has its directory there.
        if !matches!(self.site, KernelSite::Remote(_) | KernelSite::Pod(_)) {
            config.site = KernelSite::Local;
        }
        if let Some(settings) = &self.sandbox {
            let policy = settings.policy(&self.workspace)?;
            let mut settings = settings.clone();
            // Nothing that it writes is kept.
            settings.changes = ChangesMode::Write;
            // What is hidden there is hidden here too, the log also if nothing is written to it.
            let secrets = &self.secrets;
            settings.hide = secrets.named.iter().chain(&secrets.clients).cloned().collect();
            settings.hide.extend(self.log_directory());
            config.confine_by(policy, settings)?;
        }
        Ok(config)
    }
}
