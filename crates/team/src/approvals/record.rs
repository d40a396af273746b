//! The record of approvers' decisions: a file of the server's own, which no session can write.
//!
//! A decision is written before anybody hears of it, and so is the same after the server was killed.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The part of the end of the file that is read at the start, in bytes: what still waits was decided lately, if at all.
const TAIL_BYTES: u64 = 4 * 1024 * 1024;
/// The number of decisions that are remembered.
const REMEMBERED: usize = 10_000;

/// A decision of an approver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedDecision {
    /// When, in seconds since 1970.
    pub(crate) time: u64,
    /// The id of the question, which the audit log of the session's user has too.
    pub(crate) question: String,
    /// The key of the user in whose session it waited.
    pub(crate) user: String,
    pub(crate) session: String,
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) rule: String,
    /// The digest of the call, and of those who were to decide.
    pub(crate) digest: String,
    pub(crate) is_allowed: bool,
    /// The approver.
    pub(crate) by: String,
}

/// All decisions.
pub(crate) struct DecisionRecord {
    written: Mutex<WrittenDecisions>,
}

struct WrittenDecisions {
    file: File,
    known: HashMap<String, RecordedDecision>,
    /// The oldest first.
    order: VecDeque<String>,
}

impl DecisionRecord {
    /// Those in a file, which is made if there is none.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut tail = Vec::new();
        (&mut file).take(TAIL_BYTES).read_to_end(&mut tail)?;
        if tail.last().is_some_and(|last| *last != b'\n') {
            // The server was killed while it wrote this line, which nobody has heard of.
            file.write_all(b"\n")?;
        }
        let mut written = WrittenDecisions { file, known: HashMap::new(), order: VecDeque::new() };
        for line in tail.split(|byte| *byte == b'\n') {
            if let Ok(decision) = serde_json::from_slice(line) {
                written.remember(decision);
            }
        }
        Ok(Self { written: Mutex::new(written) })
    }

    /// The decision about a question, if there is one.
    pub(crate) fn find(&self, question: &str) -> Option<RecordedDecision> {
        self.written.lock().known.get(question).cloned()
    }

    /// Writes a decision. Blocks.
    ///
    /// # Errors
    /// It is not written, and must not count.
    pub(crate) fn write(&self, decision: RecordedDecision) -> io::Result<()> {
        let mut line = serde_json::to_vec(&decision)?;
        line.push(b'\n');
        let mut written = self.written.lock();
        written.file.write_all(&line)?;
        written.file.sync_data()?;
        written.remember(decision);
        Ok(())
    }
}

impl WrittenDecisions {
    fn remember(&mut self, decision: RecordedDecision) {
        self.order.push_back(decision.question.clone());
        self.known.insert(decision.question.clone(), decision);
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(question: &str) -> RecordedDecision {
        let text = || "x".to_owned();
        RecordedDecision {
            time: 1,
            question: question.to_owned(),
            user: text(),
            session: text(),
            server: text(),
            tool: text(),
            rule: text(),
            digest: text(),
            is_allowed: true,
            by: text(),
        }
    }

    #[test]
    fn a_decision_is_known_after_a_start_and_half_a_line_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("decisions");
        DecisionRecord::open(&path).unwrap().write(decision("a")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let mut torn = whole.clone();
        torn.extend_from_slice(&whole[..whole.len() / 2]);
        std::fs::write(&path, torn).unwrap();
        let record = DecisionRecord::open(&path).unwrap();
        record.write(decision("b")).unwrap();
        let record = DecisionRecord::open(&path).unwrap();
        assert_eq!(["a", "b"].map(|id| record.find(id)), [Some(decision("a")), Some(decision("b"))]);
        assert_eq!(record.find("c"), None);
    }
}
