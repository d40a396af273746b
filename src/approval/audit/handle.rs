//! The handle by which other rooms write to the audit log.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Deserialize;

use super::event::{AuditEvent, LineRetention, LogBegin, SessionFace, SettledFiles};
use super::file::LogFile;
use super::history::{self, PastDecision};
use super::redacted;
use super::writer::AuditWriter;
use crate::ground::text::Redactor;

/// The number of decisions of the policy on one tool that are evidence in a session. That many show that code has
/// called it; more of them must not displace other evidence.
const FIRST_DECISIONS: u32 = 10;

/// The number of files that a record about changes names.
const SETTLED_FILES: usize = 300;

/// The contents of an audit log beside names, decisions, durations and sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditContents {
    /// The arguments of calls.
    #[default]
    Arguments,
    /// The arguments and results of calls, the code and output of cells.
    Everything,
}

/// The settings of a log.
#[derive(Debug, Clone)]
pub(crate) struct AuditLogSettings {
    /// The file. Its directory must exist.
    pub(crate) path: PathBuf,
    /// The contents of the log.
    pub(crate) contents: AuditContents,
    /// The size from which on the file is rotated.
    pub(crate) max_bytes: u64,
    /// The number of renamed files that are kept; at least 1.
    pub(crate) kept_files: usize,
    /// The workspace, which code in the kernel can write: a log in it gets a warning.
    pub(crate) workspace: PathBuf,
    /// The face that holds the session, and answers questions.
    pub(crate) face: SessionFace,
    pub(crate) begin: LogBegin,
}

/// Why the log could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file's directory does not exist.
    #[error(
        "open the audit log `{path}`: its directory does not exist\n\
         hint: create it first",
        path = path.display()
    )]
    NoDirectory {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened for appending.
    #[error("open the audit log `{path}`", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// An audit log, or none. Clones write to the same one.
#[derive(Clone, Default)]
pub(crate) struct Audit(Option<Arc<OpenAuditLog>>);

/// An open log.
pub(super) struct OpenAuditLog {
    pub(super) writer: AuditWriter,
    /// The file in which decisions are kept longer.
    evidence: PathBuf,
    pub(super) redactor: Redactor,
    contents: AuditContents,
    pub(super) face: SessionFace,
    /// The number of cells that have begun.
    pub(super) cells: AtomicU64,
    /// The cell that runs now; 0 if none does.
    pub(super) running: AtomicU64,
    /// The number of decisions of the policy, by server and tool.
    decisions: Mutex<HashMap<(String, Option<String>), u32>>,
}

impl Audit {
    /// No log.
    pub(crate) fn off() -> Self {
        Self::default()
    }

    /// Opens the log, creates its file if need be, and begins a session in it.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) fn open(settings: AuditLogSettings, redactor: Redactor) -> Result<Self, Error> {
        let AuditLogSettings { path, contents, max_bytes, kept_files, workspace, face, begin } = settings;
        let not_opened = |source| Error::Open { path: path.clone(), source };
        // The working directory may change later.
        let absolute = std::path::absolute(&path).map_err(not_opened)?;
        let directory = absolute.parent().unwrap_or(Path::new("/"));
        if !directory.is_dir() {
            return Err(Error::NoDirectory { path });
        }
        if directory.canonicalize().is_ok_and(|directory| directory.starts_with(&workspace)) {
            tracing::warn!("the audit log is in the workspace, where code in the kernel can change it");
        }
        let file = LogFile::open(&absolute, max_bytes, kept_files).map_err(not_opened)?;
        let decisions = evidence(&absolute);
        let evidence = LogFile::open(&decisions, max_bytes, kept_files).map_err(not_opened)?;
        let started = AuditEvent::SessionStarted {
            version: env!("CARGO_PKG_VERSION"),
            face,
            process: std::process::id(),
            workspace: redacted::text(&redactor, &workspace.to_string_lossy()),
        };
        let writer = AuditWriter::start(file, evidence, &started, begin).map_err(not_opened)?;
        let cells = AtomicU64::new(0);
        let running = AtomicU64::new(0);
        Ok(Self(Some(Arc::new(OpenAuditLog {
            writer,
            evidence: decisions,
            redactor,
            contents,
            face,
            cells,
            running,
            decisions: Mutex::default(),
        }))))
    }

    /// Records that this session is a branch of the one whose log that is.
    pub(crate) fn branched_from(&self, parent: &Self) {
        if let (Some(log), Some(parent)) = (&self.0, &parent.0) {
            let cell = parent.cells.load(Ordering::Relaxed);
            let event = AuditEvent::Branch { parent: parent.writer.session().to_owned(), cell };
            log.note(&event);
        }
    }

    /// Records that so many cells are undone, from this one on; `parent` is the newest one that is not.
    pub(crate) fn undone(&self, cell: u64, cells: usize, parent: u64) {
        if let Some(log) = &self.0 {
            log.note(&AuditEvent::Undo { cell, cells, parent });
        }
    }

    /// Records that changes of code were applied or discarded.
    pub(crate) fn settled(&self, settled: &SettledFiles, via: &'static str) {
        let Some(log) = &self.0 else { return };
        let SettledFiles { copy, action, files, refused } = settled;
        let first = files.iter().take(SETTLED_FILES);
        let first = first.map(|(path, digest)| (redacted::text(&log.redactor, path), digest.clone()));
        let event = AuditEvent::Changes {
            copy: copy.clone(),
            action: *action,
            via,
            files: first.collect(),
            count: files.len(),
            refused: *refused,
        };
        log.writer.note(&event, LineRetention::Evidence);
    }

    /// Writes the queued events, and nothing from then on: an action that has to be recorded does not run any
    /// more. Takes at most 2 seconds.
    pub(crate) async fn close(&self) {
        if let Some(log) = &self.0 {
            log.writer.close().await;
        }
    }

    /// The newest decisions of the session; none without a log, or if it cannot be read.
    pub(crate) async fn decisions(&self) -> Vec<PastDecision> {
        let Some(log) = self.0.clone() else { return Vec::new() };
        let read =
            tokio::task::spawn_blocking(move || history::read(&log.evidence, log.writer.session())).await;
        read.map_err(io::Error::other).flatten().unwrap_or_else(|error| {
            tracing::warn!(%error, "the decisions in the audit log could not be read");
            Vec::new()
        })
    }

    pub(super) fn log(&self) -> Option<&Arc<OpenAuditLog>> {
        self.0.as_ref()
    }
}

impl OpenAuditLog {
    pub(super) fn has_everything(&self) -> bool {
        self.contents == AuditContents::Everything
    }

    /// Writes an event that may be displaced by many others.
    pub(super) fn note(&self, event: &AuditEvent) {
        self.writer.note(event, LineRetention::Traffic);
    }

    /// The time that a decision of the policy is kept: the first ones on each tool longer.
    ///
    /// `tool` is `None` if the server has no such tool; these count as one tool.
    pub(super) fn keep_of_policy(&self, server: &str, tool: Option<&str>) -> LineRetention {
        let mut decisions = self.decisions.lock();
        let count = decisions.entry((server.to_owned(), tool.map(str::to_owned))).or_default();
        *count = count.saturating_add(1);
        if *count <= FIRST_DECISIONS { LineRetention::Evidence } else { LineRetention::Traffic }
    }
}

/// The file in which decisions are kept longer, beside the log.
pub(crate) fn evidence(log: &Path) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(".decisions");
    name.into()
}
