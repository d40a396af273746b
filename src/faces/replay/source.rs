//! The file of a replay: a recording, a notebook or an audit log, told apart by how it begins.

use std::path::Path;

use serde_json::Value;

use super::notebook;
use crate::ground::files::small;
use crate::tools::recording::{FILE_BYTES, ReadRecording, UnreadableRecording};

/// The length of a first line that may be that of an audit log, in bytes.
const FIRST_LINE_BYTES: usize = 64 * 1024;

/// The content of the file.
pub(super) enum ReplaySource {
    /// A recording, or a notebook.
    Recording(ReadRecording),
    AuditLog(Vec<u8>),
}

impl ReplaySource {
    /// Reads a file. Blocks.
    pub(super) fn read(path: &Path) -> Result<Self, UnreadableRecording> {
        let bytes = small::read(path, FILE_BYTES)
            .map_err(|source| UnreadableRecording::File { path: path.to_owned(), source })?;
        if is_audit_log(&bytes) {
            return Ok(Self::AuditLog(bytes));
        }
        let recording = if notebook::is_notebook(&bytes) {
            notebook::read(&bytes).map_err(|(cell, why)| UnreadableRecording::Notebook {
                path: path.to_owned(),
                cell,
                why,
            })
        } else {
            ReadRecording::of(path, &bytes)
        };
        recording.map(Self::Recording)
    }
}

fn is_audit_log(bytes: &[u8]) -> bool {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    first.len() <= FIRST_LINE_BYTES
        && serde_json::from_slice::<Value>(first)
            .is_ok_and(|line| line["event"].is_string() && line["session"].is_string())
}
