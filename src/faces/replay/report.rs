//! The report of a replay: which cells are the same, by which rules, and which differ and why.

use std::collections::BTreeSet;

use serde::Serialize;

use super::ReplayOptions;
use crate::ground::text::{listed, printed};
use crate::tools::recording::{CallDifference, ReplayMode, rules};

/// The report of a replay.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The recording.
    pub file: String,
    /// The destination of calls.
    pub mode: &'static str,
    /// Whether the recorded session has ended as sessions end.
    pub is_complete: bool,
    /// Whether a difference has ended the replay.
    pub is_stopped: bool,
    /// The cells, in order.
    pub cells: Vec<ReplayedCell>,
    /// Remarks that are no differences: another Python, packages, files that were not there.
    pub notes: Vec<String>,
    /// The differences between recorded and living servers.
    pub servers: Vec<String>,
    /// The rules by which something was the same, and what they do.
    pub rules: Vec<(&'static str, &'static str)>,
}

/// A replayed cell.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ReplayedCell {
    /// Its number.
    pub cell: u64,
    /// Its session, if it is in an audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `same`, `same_by_rules`, `different`, or `not_run` if it was interrupted when it was recorded.
    pub result: &'static str,
    /// The rules by which it is the same.
    pub rules: BTreeSet<&'static str>,
    /// The differences.
    pub differences: Vec<CellDifference>,
    /// The number of calls that are as recorded.
    pub calls: usize,
    /// The calls that may write: what was sent, or would have been.
    pub writes: Vec<String>,
}

/// A difference in a cell.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct CellDifference {
    /// `end`, `output`, `unknown_call`, `reordered_call`, `missing_call`, `changed_result`, `left_out_answer`; `decision` or
    /// `unknown_decision` of a policy.
    pub kind: &'static str,
    /// In words.
    pub words: String,
    /// Lines with `-` of the recording and `+` of the replay.
    pub diff: Vec<String>,
}

impl From<CallDifference> for CellDifference {
    fn from(difference: CallDifference) -> Self {
        let CallDifference { kind, call, diff } = difference;
        Self { kind: kind.name(), words: format!("`{call}`: {}", kind.words()), diff }
    }
}

impl ReplayReport {
    pub(super) fn new(options: &ReplayOptions, is_complete: bool) -> Self {
        Self {
            file: options.file.display().to_string(),
            mode: match options.mode {
                ReplayMode::Strict => "strict",
                ReplayMode::Dry => "dry",
                ReplayMode::Reads => "reads",
                ReplayMode::Live => "live",
                ReplayMode::Policy => "policy",
            },
            is_complete,
            is_stopped: false,
            cells: Vec::new(),
            notes: Vec::new(),
            servers: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Whether nothing differs.
    pub fn is_same(&self) -> bool {
        self.servers.is_empty()
            && !self.is_stopped
            && self.cells.iter().all(|cell| cell.result != "different")
    }

    /// Names the rules that were needed.
    pub(super) fn finish(mut self) -> Self {
        let used: BTreeSet<_> = self.cells.iter().flat_map(|cell| cell.rules.iter().copied()).collect();
        self.rules = rules().filter(|(name, _)| used.contains(name)).collect();
        self
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let count = |result: &str| self.cells.iter().filter(|cell| cell.result == result).count();
        let calls: usize = self.cells.iter().map(|cell| cell.calls).sum();
        let mut lines = vec![format!(
            "{} cells: {} the same, {} the same by rules, {} different, {} not run again; {calls} calls as recorded ({})",
            self.cells.len(),
            count("same"),
            count("same_by_rules"),
            count("different"),
            count("not_run"),
            self.mode
        )];
        for cell in self.cells.iter().filter(|cell| cell.result == "different") {
            for difference in &cell.differences {
                let session = cell.session.as_ref().map(|id| format!("session {id} ")).unwrap_or_default();
                lines.push(format!("{session}cell {}: {}", cell.cell, difference.words));
                lines.extend(difference.diff.iter().map(|line| format!("    {line}")));
            }
        }
        lines.extend(self.servers.iter().map(|change| format!("server {change}")));
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        if !self.is_complete {
            lines.push(
                "note: the recording has no end: its session was killed, or the file was cut".to_owned(),
            );
        }
        if self.is_stopped {
            lines.push("The replay has ended at the first call that differs.".to_owned());
        }
        lines.extend(self.rules.iter().map(|(name, words)| format!("rule {name}: {words}")));
        if self.mode == "dry" {
            let writes: Vec<&String> = self.cells.iter().flat_map(|cell| &cell.writes).collect();
            lines.push(format!("{} calls may write; none was sent", writes.len()));
            lines.extend(writes.into_iter().map(|call| format!("    {}", call.replace('\n', "\n    "))));
        }
        printed(&(lines.join("\n") + "\n"))
    }

    /// Notes in which packages two environments differ.
    pub(super) fn note_packages(&mut self, changed: &[String]) {
        if !changed.is_empty() {
            self.notes.push(format!("other packages: {}", listed(changed.iter().map(String::as_str))));
        }
    }
}
