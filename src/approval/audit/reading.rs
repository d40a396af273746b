//! A record of the log as it is read: all fields may be missing, and unknown ones are ignored.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use crate::approval::action::ToolAnnotations;
use crate::approval::provenance::Provenance;

/// A record. `event` writes new fields; here are those that the review uses.
#[derive(Debug, Default, Deserialize)]
pub(in crate::approval) struct AuditRecord {
    #[serde(default)]
    pub(in crate::approval) time: String,
    #[serde(default)]
    pub(in crate::approval) session: String,
    pub(in crate::approval) event: String,
    pub(in crate::approval) number: Option<u64>,
    pub(in crate::approval) previous: Option<String>,

    pub(in crate::approval) version: Option<String>,
    pub(in crate::approval) face: Option<String>,
    pub(in crate::approval) workspace: Option<String>,

    pub(in crate::approval) cell: Option<u64>,
    pub(in crate::approval) end: Option<String>,

    pub(in crate::approval) call: Option<String>,
    pub(in crate::approval) server: Option<String>,
    pub(in crate::approval) tool: Option<String>,
    pub(in crate::approval) target: Option<String>,
    pub(in crate::approval) annotations: Option<ToolAnnotations>,
    pub(in crate::approval) arguments: Option<Value>,
    pub(in crate::approval) provenance: Option<Provenance>,
    pub(in crate::approval) decision: Option<String>,
    pub(in crate::approval) by: Option<String>,
    pub(in crate::approval) rule: Option<String>,
    pub(in crate::approval) via: Option<String>,
    pub(in crate::approval) approver: Option<String>,
    #[serde(default)]
    pub(in crate::approval) earlier: bool,
    pub(in crate::approval) grant: Option<Value>,
    pub(in crate::approval) outcome: Option<String>,

    pub(in crate::approval) count: Option<u64>,
}

/// The longest id of a session; ours have 36 characters.
const LONGEST_ID: usize = 64;

impl AuditRecord {
    /// Reads a line; `None` if it is no record.
    pub(in crate::approval) fn read(line: &[u8]) -> Option<Self> {
        // As text first: JSON is UTF-8, and fields that are not used are checked too.
        let record: Self = serde_json::from_str(std::str::from_utf8(line).ok()?).ok()?;
        (record.session.len() <= LONGEST_ID).then_some(record)
    }

    pub(in crate::approval) fn instant(&self) -> Option<DateTime<Utc>> {
        DateTime::parse_from_rfc3339(&self.time).ok().map(|time| time.to_utc())
    }

    pub(in crate::approval) fn is_accepted(&self) -> bool {
        self.decision.as_deref() == Some("accepted")
    }
}
