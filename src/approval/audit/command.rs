//! The records of a command of the user about the changes of a session.

use std::path::PathBuf;

use super::event::{LogBegin, SessionFace, SettledFiles};
use super::handle::{Audit, AuditContents, AuditLogSettings, Error};
use crate::ground::text::Redactor;

/// The command's word in the log.
const COMMAND: &str = "command";
/// The number of renamed files that are kept, as by sessions.
const KEPT_FILES: usize = 5;

/// The audit log of a session, for a command.
pub struct CommandLog(Audit);

impl CommandLog {
    /// Opens the log of a session in `workspace`, which is rotated from so many bytes on.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(file: PathBuf, max_bytes: u64, workspace: PathBuf) -> Result<Self, Error> {
        let settings = AuditLogSettings {
            path: file,
            contents: AuditContents::default(),
            max_bytes,
            kept_files: KEPT_FILES,
            workspace,
            face: SessionFace::Command,
            begin: LogBegin::AtOnce,
        };
        Audit::open(settings, Redactor::default()).map(Self)
    }

    /// Records that changes were settled, if they were, and ends.
    pub async fn end(self, settled: Option<&SettledFiles>) {
        if let Some(settled) = settled {
            self.0.settled(settled, COMMAND);
        }
        self.0.close().await;
    }
}
