//! Changes that wait in copies of the workspace are applied or discarded, which the audit log records.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::Session;
use super::site::{AppliedChanges, ChangedCopies, NoChangedCopy};
use crate::approval::{SettleAction, SettledFiles};

/// The page's word in the audit log.
const PAGE: &str = "page";

/// Why changes were neither applied nor discarded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettleError {
    /// There is no such copy.
    #[error(transparent)]
    Copy(#[from] NoChangedCopy),
    /// They cannot be read or written.
    #[error("settle the changes")]
    Changes(#[from] io::Error),
}

impl Session {
    /// The copies of the workspace in which changes may wait.
    pub(crate) fn copies(&self) -> ChangedCopies {
        ChangedCopies::of(&self.opened.config.state_dir)
    }

    /// Applies or discards the changes of a copy that a person has seen on a page: by path, with their digests.
    ///
    /// # Errors
    /// See [`SettleError`].
    pub(crate) async fn settle_changes(
        &self,
        id: String,
        action: SettleAction,
        seen: BTreeMap<PathBuf, String>,
    ) -> Result<AppliedChanges, SettleError> {
        let copy = self.copies().find(&id)?;
        let gate = Arc::clone(&self.gate);
        // A session that ends waits for it: whatever is done is recorded.
        let settled = self.stopping.spawn_blocking(move || {
            let settled = match action {
                SettleAction::Apply => copy.apply_seen(&seen),
                SettleAction::Discard => copy.discard_seen(&seen),
            }?;
            let files = settled.digests.iter();
            let files = files.map(|(path, digest)| (path.to_string_lossy().into_owned(), digest.clone()));
            let record = SettledFiles::new(id, action, files.collect(), settled.refused.len());
            gate.audit().settled(&record, PAGE);
            Ok(settled)
        });
        settled.await.map_err(io::Error::other)?
    }
}
