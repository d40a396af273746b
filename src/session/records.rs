//! The records of a session: its audit log and its notebook.

use std::path::Path;
use std::sync::Arc;

use crate::approval::{Audit, AuditError, LogSettings, SessionFace};
use crate::config::{Config, NotebookPlace};
use crate::session::notebook::Notebook;

/// The notebook that the settings ask for. That of a branch begins with a link to its origin's.
pub(super) fn notebook(config: &Config, origin: Option<&Path>) -> Option<Arc<Notebook>> {
    let random = || uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    let session = config.session.clone().unwrap_or_else(random);
    let secrets = config.variables.redactor().clone();
    let opened = match &config.notebook {
        NotebookPlace::None => return None,
        NotebookPlace::Private(directory) => Notebook::private(directory.clone(), &session, secrets, origin),
        NotebookPlace::Named(file) => Notebook::named(&config.workspace, file, &session, secrets, origin),
        NotebookPlace::Beside(file) => {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let file = file.with_file_name(format!("{stem}-{session}.ipynb"));
            Notebook::named(&config.workspace, &file, &session, secrets, origin)
        }
    };
    match opened {
        Ok(notebook) => {
            tracing::info!(path = %notebook.path().display(), "the session has a notebook");
            Some(notebook)
        }
        Err(error) => {
            tracing::warn!(%error, "there is no notebook of this session");
            None
        }
    }
}

/// The number of files of the audit log beside the one that is written, so that it never takes all of a disk.
const KEPT_LOG_FILES: usize = 5;

/// The audit log that the settings ask for.
pub(super) fn open_audit(config: &Config, face: SessionFace) -> Result<Audit, AuditError> {
    let Some(file) = &config.audit.file else { return Ok(Audit::off()) };
    let settings = LogSettings {
        path: file.clone(),
        contents: config.audit.contents,
        max_bytes: config.audit.max_bytes,
        kept_files: KEPT_LOG_FILES,
        workspace: config.workspace.clone(),
        face,
    };
    Audit::open(settings, config.variables.redactor().clone())
}
