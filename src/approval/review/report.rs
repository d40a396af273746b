//! The report on a log.

use serde::Serialize;

use super::breaks::ChainBreak;
use super::tally::{AuditTally, SessionTally};
use super::verify::{AuditFindings, ChainVerifier};
use crate::ground::text::visible;

/// The number of open sessions that are named.
const NAMED_SESSIONS: usize = 20;

/// The report on a log. `Display` writes it for people.
#[derive(Debug)]
pub struct AuditReport {
    pub(super) names: Vec<String>,
    pub(super) findings: AuditFindings,
    pub(super) breaks: Vec<ChainBreak>,
    pub(super) break_count: u64,
    pub(super) tally: AuditTally,
}

/// The report as JSON, whose keys do not change.
#[derive(Serialize)]
struct ReportDocument<'a> {
    whole: bool,
    complete: bool,
    records: u64,
    records_without_hash: u64,
    torn_lines: u64,
    head: Option<String>,
    begins_after: Option<String>,
    break_count: u64,
    breaks: Vec<DocumentBreak<'a>>,
    open_sessions: &'a [String],
    notes: Vec<String>,
    sessions: Vec<DocumentSession<'a>>,
    records_not_counted: u64,
}

#[derive(Serialize)]
struct DocumentBreak<'a> {
    file: Option<&'a str>,
    line: Option<u64>,
    kind: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct DocumentSession<'a> {
    session: &'a str,
    #[serde(flatten)]
    tally: &'a SessionTally,
}

impl AuditReport {
    pub(super) fn new(names: Vec<String>, verifier: ChainVerifier, tally: AuditTally) -> Self {
        let ChainVerifier { findings, breaks, .. } = verifier;
        let break_count = breaks.count;
        let breaks = breaks.first;
        Self { names, findings, breaks, break_count, tally }
    }

    /// Whether no break was found.
    pub fn is_whole(&self) -> bool {
        self.break_count == 0
    }

    /// Whether it is sure, too, that nothing is missing at the beginning, and that each session has come to its end: a log
    /// of which something was removed there looks the same as one that is rotated or still written.
    pub fn is_complete(&self) -> bool {
        let findings = &self.findings;
        let is_old = findings.records == 0 && findings.without_hash > 0;
        self.is_whole()
            && (is_old
                || findings.records > 0
                    && findings.open.is_empty()
                    && findings.begins_after.is_none()
                    && findings.begun_anew.is_empty())
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Never: all of it can be written.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let findings = &self.findings;
        let breaks = self.breaks.iter().map(|found| DocumentBreak {
            file: found.place.map(|place| self.names[place.part].as_str()),
            line: found.place.map(|place| place.line),
            kind: found.kind.word(),
            message: &found.words,
        });
        let sessions = self.tally.sessions.iter();
        let document = ReportDocument {
            whole: self.is_whole(),
            complete: self.is_complete(),
            records: findings.records,
            records_without_hash: findings.without_hash,
            torn_lines: findings.torn,
            head: findings.head.map(|head| head.to_string()),
            begins_after: findings.begins_after.map(|head| head.to_string()),
            break_count: self.break_count,
            breaks: breaks.collect(),
            open_sessions: &findings.open,
            notes: self.notes(),
            sessions: sessions.map(|(session, tally)| DocumentSession { session, tally }).collect(),
            records_not_counted: self.tally.not_counted,
        };
        Ok(visible::json(&serde_json::to_string_pretty(&document)?))
    }

    /// The remarks beside the breaks.
    pub(super) fn notes(&self) -> Vec<String> {
        let findings = &self.findings;
        let mut notes = Vec::new();
        if findings.records == 0 && findings.without_hash == 0 {
            notes.push("there is no record".to_owned());
        }
        if findings.without_hash > 0 {
            notes.push(format!(
                "{} without a hash: an earlier version of ipybox wrote them, or their hashes were removed; they cannot \
                 be verified",
                records(findings.without_hash)
            ));
        }
        if let Some(head) = findings.begins_after {
            notes.push(format!(
                "the log begins after other records, the last of which has the hash {head}: they are in an earlier file \
                 (FILE.1 for FILE), or were removed"
            ));
        }
        for part in &findings.begun_anew {
            notes.push(format!("{} begins a chain of its own", self.names[*part]));
        }
        if findings.torn > 0 {
            notes.push(format!(
                "{} no whole record: a process was killed while it wrote; the next record continues from there",
                if findings.torn == 1 { "1 line is".to_owned() } else { format!("{} lines are", findings.torn) }
            ));
        }
        for id in findings.open.iter().take(NAMED_SESSIONS) {
            notes.push(format!(
                "session {} has no last record: it runs still, was killed, or the end of the log was removed",
                super::shown(id)
            ));
        }
        if let Some(more @ 1..) = findings.open.len().checked_sub(NAMED_SESSIONS) {
            notes.push(format!("{more} more sessions have no last record"));
        }
        if self.tally.not_counted > 0 {
            notes.push(format!(
                "{} verified, but not counted below: there are too many sessions or tools",
                records(self.tally.not_counted)
            ));
        }
        notes
    }
}

pub(super) fn records(count: u64) -> String {
    if count == 1 { "1 record".to_owned() } else { format!("{count} records") }
}
