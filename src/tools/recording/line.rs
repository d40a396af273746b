//! The lines of a recording: JSON objects, each of the kind that its member `line` names. `docs/record.md` describes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::approval::ToolAnnotations;
use ipybox_codegen::{ResourcesAndPrompts, Tool};

/// The version of the format.
pub(super) const FORMAT: u32 = 1;

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub(crate) enum RecordingLine {
    /// The first one.
    Session(RecordedSession),
    /// A kernel has started, with this Python and these packages.
    Environment(RecordedEnvironment),
    /// A kernel has started: the variables of cells before are gone.
    Kernel(RecordedMoment),
    /// The newest cells were undone.
    Undo(RecordedUndo),
    /// A server, before the first cell that can call it as it is now.
    Server(Box<RecordedServer>),
    /// A call of code that has ended.
    Call(Box<RecordedCall>),
    /// A server has asked the user.
    Answer(RecordedAnswer),
    /// Packages were installed for the kernel.
    Installation(RecordedInstallation),
    /// A cell that has ended.
    Cell(Box<RecordedCell>),
    /// The session has ended. A recording without it is that of a session that was killed.
    End(RecordedMoment),
}

/// The session of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedSession {
    /// The version of the format.
    pub(crate) format: u32,
    /// The version of ipybox.
    pub(crate) ipybox: String,
    /// The id of the session.
    pub(crate) session: String,
    /// The time at which it began.
    pub(crate) time: String,
    /// Its workspace.
    pub(crate) workspace: String,
    /// `local`, `sandboxed` or `remote`.
    pub(crate) site: String,
    /// The seed of hashes, `random`, `numpy.random` and `uuid.uuid4`.
    pub(crate) seed: u32,
    /// The kernel's locale and time zone.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// The recording of the session whose kernel was copied, if it is a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) branch_of: Option<String>,
}

impl RecordedSession {
    /// The time at which it began; `None` of a notebook.
    pub(super) fn began(&self) -> Option<DateTime<Utc>> {
        DateTime::parse_from_rfc3339(&self.time).ok().map(|time| time.to_utc())
    }

    /// The time that a clock is ahead which begins there now.
    pub(crate) fn clock_ahead(&self) -> Option<TimeDelta> {
        self.began().map(|began| began - DateTime::<Utc>::from(SystemTime::now()))
    }
}

/// The Python of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedEnvironment {
    pub(crate) python: String,
    pub(crate) platform: String,
    /// The versions of the packages, by their names.
    pub(crate) packages: BTreeMap<String, String>,
}

/// The moment after so many cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedMoment {
    pub(crate) cells: u64,
}

/// An installation after so many cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedInstallation {
    pub(crate) cells: u64,
    pub(crate) packages: Vec<String>,
}

/// An undo after so many cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedUndo {
    pub(crate) cells: u64,
    /// The number of the kernel's newest cell that is left.
    pub(crate) last: u64,
}

/// A server as code knew it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedServer {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// For people who read the recording: a replay never starts it.
    pub(crate) parameters: Map<String, Value>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) annotations: BTreeMap<String, ToolAnnotations>,
    /// The tools that code does not call.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) for_apps: BTreeSet<String>,
    pub(crate) others: ResourcesAndPrompts,
}

/// A call of code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedCall {
    /// The cell that ran when it began; 0 if none did.
    pub(crate) cell: u64,
    pub(crate) server: String,
    /// The tool; a method of MCP for resources and prompts.
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
    /// The answer that code got, in the tool server's form; `None` if code did not wait, or it was too large.
    pub(crate) answer: Option<Value>,
    /// The size of an answer that was too large, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<usize>,
    /// `accepted` or `denied`.
    pub(crate) decision: String,
    /// The deciding party, as in the audit log.
    pub(crate) by: String,
    pub(crate) duration_ms: u64,
    /// Its beginning and end among those of all calls: two that overlap have no order.
    pub(crate) order: [u64; 2],
}

/// The answer of the user to a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedAnswer {
    pub(crate) cell: u64,
    pub(crate) server: String,
    pub(crate) question: Map<String, Value>,
    /// The fields that the user has filled in; `None` without an answer. The values are for the server alone.
    pub(crate) fields: Option<Vec<String>>,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedCell {
    /// Its number in the recording, from 1.
    pub(crate) cell: u64,
    /// `agent` or `person`.
    pub(crate) author: String,
    pub(crate) code: String,
    /// The end in the audit log's word.
    pub(crate) end: String,
    pub(crate) outputs: Vec<CellItem>,
    /// Whether outputs are missing or cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_cut: bool,
    pub(crate) duration_ms: u64,
}

/// An output of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CellItem {
    Text(String),
    /// The representations of an object; of images their digest and size.
    Data(BTreeMap<String, Value>),
    Error(RecordedFailure),
}

/// The exception of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedFailure {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) traceback: Vec<String>,
}

impl CellItem {
    /// An object of these representations. A picture is no text that people review: it is recorded by its digest.
    pub(crate) fn object(bundle: impl IntoIterator<Item = (String, Value)>) -> Self {
        let digested = |(kind, value): (String, Value)| match value {
            Value::String(data) if kind.starts_with("image/") && kind != "image/svg+xml" => {
                let digest = format!("{:x}", Sha256::digest(data.as_bytes()));
                (kind, json!({ "sha256": digest, "base64_chars": data.len() }))
            }
            value => (kind, value),
        };
        Self::Data(bundle.into_iter().map(digested).collect())
    }
}
