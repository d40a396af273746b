//! The events of the log, one a line; `docs/audit.md` describes them for users.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::action::ToolAnnotations;
use crate::approval::provenance::{Label, Provenance};
use crate::ground::text::{rfc3339, visible};

/// The approver who decided about an action.
#[derive(Debug, Serialize)]
pub(super) struct DecidingApprover {
    pub(super) approver: String,
    /// The id of the question, by which the team server has recorded the decision.
    pub(super) question: String,
}

/// An event. All its texts are redacted and of bounded length.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum AuditEvent {
    /// The session begins: its first record.
    SessionStarted {
        /// ipybox's version.
        version: &'static str,
        face: SessionFace,
        process: u32,
        workspace: String,
    },
    /// The session is a branch: its kernel began as a copy of another session's.
    Branch {
        /// That session.
        parent: String,
        /// The newest of its cells.
        cell: u64,
    },
    /// The kernel is as it was before a cell again.
    Undo {
        /// That cell.
        cell: u64,
        /// The number of cells that are undone: it, and those after it in its session.
        cells: usize,
        /// The cell before that one: the newest whose effects the variables have; 0 without one.
        parent: u64,
    },
    /// Changes that waited in a copy of the workspace were applied or discarded.
    Changes {
        /// The id of the copy.
        copy: String,
        action: SettleAction,
        /// By which face somebody has decided so.
        via: &'static str,
        /// The first ones, with their digests by path.
        files: BTreeMap<String, String>,
        /// The number of all.
        count: usize,
        /// The number of those that were refused.
        refused: usize,
    },
    /// The session has ended: its last record.
    SessionEnded {},
    /// A cell starts.
    CellStarted {
        cell: u64,
        chars: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// A cell has ended, whether or not its code ran.
    CellEnded {
        cell: u64,
        end: &'static str,
        duration_ms: u64,
        output_chars: usize,
        images: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<String>,
    },
    /// An action was permitted or denied.
    Decision {
        #[serde(flatten)]
        asked: DecidedAction,
        decision: AuditVerdict,
        by: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// A standing answer decided.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        earlier: bool,
        /// The grant that decided, or was given.
        #[serde(skip_serializing_if = "Option::is_none")]
        grant: Option<Box<Value>>,
        /// By which face somebody answered, or consented.
        #[serde(skip_serializing_if = "Option::is_none")]
        via: Option<&'static str>,
        #[serde(flatten)]
        approver: Option<Box<DecidingApprover>>,
        waited_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A grant was ended before its time.
    GrantRevoked { grant: u64 },
    /// A permitted call has ended.
    CallEnded {
        call: String,
        outcome: CallOutcome,
        duration_ms: u64,
        result_bytes: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// The labels of what the session had read when the call ran, with their servers.
        #[serde(skip_serializing_if = "Option::is_none")]
        read: Option<BTreeMap<Label, BTreeSet<String>>>,
    },
    /// So many events before this line could not be written.
    EventsLost { count: u64 },
}

/// The time at which a session begins in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogBegin {
    /// At once.
    AtOnce,
    /// With its first event: a kernel that waits for work, and may get none, leaves no line.
    WithFirstEvent,
}

/// By which face a session is held, and its questions are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionFace {
    /// MCP clients.
    Mcp,
    /// An application in Rust.
    RustLibrary,
    /// An application in Python.
    PythonLibrary,
    /// No session: a command of the user that decides about the changes of one.
    Command,
}

/// The fate of changes that wait in a copy of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "there are no other ones")]
pub enum SettleAction {
    /// They are written to the workspace.
    Apply,
    /// The copy is as the workspace again.
    Discard,
}

/// Changes that were applied or discarded.
#[derive(Debug)]
#[non_exhaustive]
pub struct SettledFiles {
    /// The id of the copy of the workspace.
    pub copy: String,
    /// Their fate.
    pub action: SettleAction,
    /// Those that were done, with their digests by path.
    pub files: BTreeMap<String, String>,
    /// The number of those that were refused.
    pub refused: usize,
}

impl SettledFiles {
    /// These files of a copy.
    #[must_use]
    pub fn new(copy: String, action: SettleAction, files: BTreeMap<String, String>, refused: usize) -> Self {
        Self { copy, action, files, refused }
    }
}

impl SessionFace {
    /// The face's word for an answer of somebody there.
    pub(super) fn answers(self) -> &'static str {
        match self {
            Self::Mcp => "mcp_elicitation",
            Self::RustLibrary => "rust_library",
            Self::PythonLibrary => "python_library",
            Self::Command => "command",
        }
    }
}

/// The time that a line is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineRetention {
    /// As long as there is room: code can cause any number of such lines.
    Traffic,
    /// Longer, also in a file of their own: a user's decisions, and some of the policy's.
    Evidence,
}

/// The action that a decision is about.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DecidedAction {
    pub(super) call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cell: Option<u64>,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<ToolAnnotations>,
    pub(super) arguments: Value,
    /// In which batch the code has announced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<Box<AnnouncedBatch>>,
    /// The origins of the data in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provenance: Option<Box<Provenance>>,
}

/// A batch of calls.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AnnouncedBatch {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) size: usize,
}

/// A decision.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AuditVerdict {
    Accepted,
    Denied,
}

/// The end of a call.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallOutcome {
    Result,
    Error,
    /// The call was cancelled: nobody waited for its end.
    Cancelled,
    /// The call did not run: what had been read since its decision needed another one.
    DecidedAnew,
}

/// The session whose records these are.
#[derive(Debug, Clone)]
pub(super) struct AuditedSession {
    id: String,
}

#[derive(Serialize)]
struct Record<'a> {
    time: String,
    session: &'a str,
    #[serde(flatten)]
    event: &'a AuditEvent,
}

impl AuditedSession {
    pub(super) fn new() -> Self {
        Self { id: uuid::Uuid::new_v4().to_string() }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The record of `event` at the current time: JSON in one line, to which the chain is added where it is appended.
    pub(super) fn record(&self, event: &AuditEvent) -> io::Result<String> {
        let time = rfc3339(SystemTime::now());
        Ok(visible::json(&serde_json::to_string(&Record { time, session: &self.id, event })?))
    }
}

/// Whole milliseconds.
pub(in crate::approval) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let event = AuditEvent::CellStarted { cell: 1, chars: 3, code: Some("a\nb".to_owned()) };
        let line = AuditedSession::new().record(&event).unwrap();
        assert_eq!(line.find('\n'), None);
        assert!(line.contains(r#","event":"cell_started","cell":1,"chars":3,"code":"a\nb"}"#), "{line}");
    }
}
