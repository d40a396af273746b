//! The records of a session: its audit log, its notebook, its recording.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use chrono::{DateTime, Utc};

use crate::approval::{Audit, AuditError, LogBegin, LogSettings, SessionFace};
use crate::config::{Config, KernelSite, NotebookPlace, RecordingPlace};
use crate::session::notebook::Notebook;
use crate::tools::recording::{RecordedConditions, RecordingError, SessionRecorder};

/// The notebook that the settings ask for. That of a branch begins with a link to its origin's.
pub(super) fn notebook(config: &Config, origin: Option<&Path>) -> Option<Arc<Notebook>> {
    let session = session_id(config);
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
        begin: if config.is_temporary() { LogBegin::WithFirstEvent } else { LogBegin::AtOnce },
    };
    Audit::open(settings, config.variables.redactor().clone())
}

/// The recording that the settings ask for. That of a branch names its origin's.
pub(super) fn recorder(
    config: &Config,
    origin: Option<&Path>,
) -> Result<Option<Arc<SessionRecorder>>, RecordingError> {
    let session = session_id(config);
    let path = match &config.recording {
        RecordingPlace::None => return Ok(None),
        RecordingPlace::Named(path) | RecordingPlace::Beside(path) if path.is_dir() => {
            let time = DateTime::<Utc>::from(SystemTime::now()).format("%Y-%m-%d-%H%M%S");
            path.join(format!("{time}-{session}.jsonl"))
        }
        RecordingPlace::Named(path) => path.clone(),
        RecordingPlace::Beside(path) => {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!("{stem}-{session}.jsonl"))
        }
    };
    let is_exposed = path.parent().and_then(|parent| parent.canonicalize().ok());
    if is_exposed.is_some_and(|parent| parent.starts_with(&config.workspace)) {
        tracing::warn!("the recording is in the workspace, where code in the kernel can change it");
    }
    let conditions = RecordedConditions {
        session,
        workspace: config.workspace.clone(),
        site: site_name(&config.site),
        seed: config.seed.unwrap_or_default(),
        environment: config.kernel_locale(),
        branch_of: origin.map(Path::to_owned),
    };
    let recorder = SessionRecorder::start(path, conditions, config.variables.redactor().clone())?;
    tracing::info!(path = %recorder.path().display(), "the session is recorded");
    Ok(Some(recorder))
}

/// The site of a session's kernels, as recordings name it.
pub(super) fn site_name(site: &KernelSite) -> &'static str {
    match site {
        KernelSite::Local => "local",
        KernelSite::Sandboxed { .. } => "sandboxed",
        KernelSite::Remote(_) => "remote",
        KernelSite::Pod(_) => "pod",
    }
}

/// The id of the session; a random one without another.
fn session_id(config: &Config) -> String {
    let random = || uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    config.session.clone().unwrap_or_else(random)
}
