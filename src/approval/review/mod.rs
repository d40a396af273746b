//! Reading an audit log: whether it is whole, what sessions did; and judging its decisions by another policy.
//!
//! ```text
//! files → lines → record ┬ verify   the chain: breaks, open sessions, the head
//!                        ├ tally    sessions, servers, tools
//!                        └ export   events of OCSF, until a break
//!                                   → report, as text or JSON
//! line of a log, or call of a recording → judgement by a policy
//! ```
//!
//! A log is read once, in order, and what is kept of it is bounded. Nothing in it is believed: names and numbers
//! may be anything.

mod arguments;
mod breaks;
mod export;
mod judgement;
mod lines;
mod report;
mod tally;
#[cfg(test)]
mod tests;
mod text;
mod verify;

use std::io::{self, BufRead, Write};

use chrono::{DateTime, Utc};
use serde_json::Value;

use self::breaks::LinePlace;
use self::export::OcsfExport;
pub(crate) use self::judgement::{JudgedCall, LoggedDecision, PastJudgement};
use self::lines::LineReader;
pub use self::report::AuditReport;
use self::tally::AuditTally;
use self::verify::ChainVerifier;
use crate::approval::audit::AuditRecord;
use crate::approval::audit::chain::{self, ChainHead};

/// The records that are counted. The chain is verified with all of them.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AuditFilter {
    /// Only sessions whose ids begin so.
    pub session: Option<String>,
    /// Only calls of this server.
    pub server: Option<String>,
    /// Only what happened then or later, in seconds since 1970.
    pub since: Option<f64>,
    /// Only what happened then or earlier.
    pub until: Option<f64>,
}

/// Reads the files of a log in their order, the oldest first.
#[derive(Debug)]
pub struct AuditReview {
    filter: AuditFilter,
    names: Vec<String>,
    verifier: ChainVerifier,
    tally: AuditTally,
    export: Option<OcsfExport>,
}

/// A text is no hash of a record.
#[derive(Debug, thiserror::Error)]
#[error("use `{0}` as a head: it is 64 hexadecimal digits, as `ipybox audit` prints them")]
pub struct NoHead(String);

impl AuditReview {
    /// Begins a review. Records with the hashes `heads` have to be in the log.
    ///
    /// # Errors
    /// A head is no hash.
    pub fn new(filter: AuditFilter, heads: &[String]) -> Result<Self, NoHead> {
        let head = |text: &String| {
            ChainHead::parse(text.to_ascii_lowercase().as_bytes())
                .ok_or_else(|| NoHead(arguments::shortened(text, 80)))
        };
        let heads = heads.iter().map(head).collect::<Result<_, _>>()?;
        let verifier = ChainVerifier::new(heads);
        Ok(Self { filter, names: Vec::new(), verifier, tally: AuditTally::default(), export: None })
    }

    /// Has the records written to `output` as events of OCSF, one a line: those before the first place at which the chain is in
    /// doubt. Nothing is read after it. `user` is the user whose log it is, as OCSF describes users.
    #[must_use]
    pub fn exporting(mut self, user: Option<Value>, output: Box<dyn Write + Send>) -> Self {
        self.export = Some(OcsfExport::new(user, output));
        self
    }

    /// Reads the next file, which is called `name` in the report.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&mut self, name: &str, input: impl BufRead) -> io::Result<()> {
        if self.export.is_some() && self.verifier.is_in_doubt() {
            return Ok(());
        }
        let part = self.names.len();
        self.names.push(arguments::shortened(name, 1000));
        self.verifier.next_part();
        let mut lines = LineReader::new(input);
        let mut number = 0;
        while let Some(line) = lines.next()? {
            number += 1;
            let record = if line.is_too_long { None } else { AuditRecord::read(line.bytes) };
            self.verifier.line(LinePlace { part, line: number }, &line, record.as_ref());
            if let Some(export) = &mut self.export {
                if self.verifier.is_in_doubt() {
                    return Ok(());
                }
                if record.is_some() && chain::split(line.bytes).is_some() {
                    export.add(line.bytes, &self.filter)?;
                }
            }
            if let Some(record) = &record {
                self.tally.add(record, &self.filter);
            }
        }
        Ok(())
    }

    /// Ends an export: the last record is written if it is sure, too.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish_export(mut self) -> io::Result<AuditReport> {
        self.verifier.finish();
        if !self.verifier.is_in_doubt()
            && let Some(export) = &mut self.export
        {
            export.finish(&self.filter)?;
        }
        Ok(AuditReport::new(self.names, self.verifier, self.tally))
    }

    /// Ends the review.
    pub fn finish(mut self) -> AuditReport {
        self.verifier.finish();
        AuditReport::new(self.names, self.verifier, self.tally)
    }
}

impl AuditFilter {
    fn has_session(&self, id: &str) -> bool {
        self.session.as_deref().is_none_or(|wanted| id.starts_with(wanted))
    }

    fn has_server(&self, name: Option<&str>) -> bool {
        self.server.is_none() || self.server.as_deref() == name
    }

    /// A record without a time is at no time.
    fn has_time(&self, time: Option<DateTime<Utc>>) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        time.is_some_and(|time| {
            let seconds = time.timestamp_millis() as f64 / 1000.0;
            self.since.is_none_or(|since| seconds >= since) && self.until.is_none_or(|until| seconds <= until)
        })
    }
}

/// A time of RFC 3339 in seconds since 1970; `None` if it is none.
pub fn rfc3339_seconds(text: &str) -> Option<f64> {
    DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_millis() as f64 / 1000.0)
}

/// A session's id as people are shown it.
fn shown(id: &str) -> String {
    arguments::shortened(id, 64)
}
