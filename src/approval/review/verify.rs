//! Whether the chain of a log is whole, and if not, where it is broken and how.
//!
//! Each line is looked at once, in order. A break is named when it is sure what it is: a record that is missing here may
//! come later. What is kept is bounded: the state of the chain, the last number of each session, the last hashes.

use std::collections::{HashMap, VecDeque};

use super::breaks::{BreakKind, ChainBreaks, LinePlace};
use super::lines::AuditLine;
use crate::approval::audit::AuditRecord;
use crate::approval::audit::chain::{self, ChainHead};

/// The distance at which a record is looked for that another one says it follows.
const WINDOW: usize = 4096;

/// The number of sessions that are distinguished; the records of further ones are checked without their numbers.
const SESSIONS: usize = 50_000;

/// Verifies a log.
#[derive(Debug, Default)]
pub(super) struct ChainVerifier {
    /// After the last line.
    head: ChainHead,
    /// After the last record with a hash, if there is one.
    linked: Option<ChainHead>,
    /// Lines without a hash since then.
    between: Between,
    /// The last records: hash, place, number of the line.
    window: VecDeque<(ChainHead, LinePlace, u64)>,
    /// Records that follow one that has not come yet.
    pending: Vec<PendingGap>,
    /// Lines of records that came too late.
    moved: Vec<u64>,
    sessions: HashMap<String, Numbers>,
    /// Edited records that belong to no known place in a session: each explains one missing number.
    unplaced: u64,
    /// Sessions last seen before this line may have records in a file that is not here.
    gaps_before: u64,
    line: u64,
    /// The last line: its place, and whether it is cut.
    last: Option<(LinePlace, bool)>,
    part_has_records: bool,
    pub(super) findings: AuditFindings,
    pub(super) breaks: ChainBreaks,
}

/// The remarks on a log beside breaks.
#[derive(Debug, Default)]
pub(super) struct AuditFindings {
    /// Records with a hash.
    pub(super) records: u64,
    /// Records without one: of an earlier version, or stripped.
    pub(super) without_hash: u64,
    /// Lines that are no records, and that the next record vouches for.
    pub(super) torn: u64,
    /// The state before the first record, unless that begins a log.
    pub(super) begins_after: Option<ChainHead>,
    /// Files that begin a chain of their own after others.
    pub(super) begun_anew: Vec<usize>,
    /// The state at the end.
    pub(super) head: Option<ChainHead>,
    /// Wanted heads that were not found yet.
    pub(super) wanted: Vec<ChainHead>,
    /// Sessions without a last record.
    pub(super) open: Vec<String>,
    pub(super) sessions: usize,
}

#[derive(Debug, Default)]
struct Between {
    first: Option<LinePlace>,
    count: u64,
    are_records: bool,
}

#[derive(Debug)]
struct PendingGap {
    missing: ChainHead,
    place: LinePlace,
    before: Option<LinePlace>,
    line: u64,
    gap: u64,
}

#[derive(Debug, Clone, Copy)]
struct Numbers {
    last: u64,
    line: u64,
    has_ended: bool,
}

impl ChainVerifier {
    /// Records with the hashes `wanted` have to be in the log.
    pub(super) fn new(wanted: Vec<ChainHead>) -> Self {
        Self { findings: AuditFindings { wanted, ..AuditFindings::default() }, ..Self::default() }
    }

    /// Whether something is not as it should be so far, though it may only be in another order.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.breaks.is_empty() || !self.pending.is_empty()
    }

    /// The next file begins.
    pub(super) fn next_part(&mut self) {
        self.part_has_records = false;
    }

    /// Looks at a line; `record` is what could be read of it.
    pub(super) fn line(&mut self, place: LinePlace, line: &AuditLine<'_>, record: Option<&AuditRecord>) {
        self.line += 1;
        let split = if line.is_too_long { None } else { chain::split(line.bytes) };
        let is_old = record.is_some() && self.linked.is_none() && split.is_none();
        self.last = Some((place, !line.is_ended && !is_old));
        match split {
            Some((hashed, hash)) => {
                self.linked(place, chain::is_intact(hashed, hash), hash, record);
                self.linked = Some(hash);
                self.between = Between::default();
                self.head = hash;
            }
            None => {
                self.findings.without_hash += u64::from(record.is_some());
                self.between.are_records =
                    record.is_some() && (self.between.are_records || self.between.count == 0);
                self.between.first.get_or_insert(place);
                self.between.count += 1;
                self.head = ChainHead::after(line.bytes);
            }
        }
    }

    fn linked(&mut self, place: LinePlace, is_intact: bool, hash: ChainHead, record: Option<&AuditRecord>) {
        self.findings.records += 1;
        let fields = record.and_then(|record| {
            Some((record, record.number?, ChainHead::parse(record.previous.as_ref()?.as_bytes())?))
        });
        if is_intact && let Some((record, number, previous)) = fields {
            self.follows(place, previous, hash);
            self.number(place, record, number);
            self.findings
                .wanted
                .retain(|wanted| *wanted != hash && Some(*wanted) != self.findings.begins_after);
        } else {
            let why = if is_intact {
                "it has a hash, but is no record"
            } else {
                "its hash is not that of its content"
            };
            self.breaks.add(place, BreakKind::Edited, why);
            if !fields.is_some_and(|(record, number, _)| self.is_next(record, number)) {
                self.unplaced += 1;
            }
        }
        self.part_has_records = true;
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back((hash, place, self.line));
    }

    /// Checks that a record follows the line before it.
    fn follows(&mut self, place: LinePlace, previous: ChainHead, hash: ChainHead) {
        if previous == self.head {
            if self.linked.is_some() && !self.between.are_records {
                self.findings.torn += self.between.count;
            }
        } else if self.linked.is_none() && self.between.count == 0 {
            self.findings.begins_after = Some(previous);
            self.gaps_before = self.line;
        } else if !self.part_has_records && previous == ChainHead::BEGINNING {
            self.findings.begun_anew.push(place.part);
            self.gaps_before = self.line;
        } else if let Some((_, copied)) = self.earlier(hash) {
            self.breaks.add(place, BreakKind::Inserted, format!("it is a copy of {}", copied.line_words()));
        } else if let Some(first) = self.between.first {
            if Some(previous) == self.linked {
                let words = "it has no hash, and the next record does not follow it";
                self.breaks.add(first, BreakKind::Inserted, words);
            } else {
                self.breaks.add(first, BreakKind::Edited, "it is not what the next record follows");
                self.unplaced += 1;
            }
        } else if let Some(found) = self.pending.iter().position(|pending| pending.missing == hash) {
            let early = self.pending.remove(found);
            self.moved.push(self.line);
            self.breaks.add(
                place,
                BreakKind::OutOfOrder,
                format!("it belongs before {}", early.place.line_words()),
            );
        } else if let Some((line, after)) = self.earlier(previous) {
            // What was moved explains itself.
            if !(line + 1..self.line).all(|line| self.moved.contains(&line)) {
                let words = format!("the record after it follows {} and not this one", after.line_words());
                let first =
                    self.window.iter().find(|(_, _, at)| *at > line).map_or(place, |(_, place, _)| *place);
                self.breaks.add(first, BreakKind::Inserted, words);
            }
        } else if self.pending.len() < ChainBreaks::MOST {
            let before = self.window.back().map(|(_, place, _)| *place);
            self.pending.push(PendingGap { missing: previous, place, before, line: self.line, gap: 0 });
        } else {
            self.breaks.add(place, BreakKind::Removed, "it does not follow the record before it");
        }
    }

    fn earlier(&self, head: ChainHead) -> Option<(u64, LinePlace)> {
        self.window.iter().rev().find(|(hash, ..)| *hash == head).map(|(_, place, line)| (*line, *place))
    }

    fn is_next(&mut self, record: &AuditRecord, number: u64) -> bool {
        let line = self.line;
        match self.sessions.get_mut(&record.session) {
            Some(numbers) if numbers.last + 1 == number => {
                *numbers = Numbers { last: number, line, has_ended: record.event == "session_ended" };
                true
            }
            _ => false,
        }
    }

    /// Checks that a record is the next one of its session.
    fn number(&mut self, place: LinePlace, record: &AuditRecord, number: u64) {
        let has_ended = record.event == "session_ended";
        let is_full = self.sessions.len() >= SESSIONS;
        let Some(numbers) = self.sessions.get(&record.session).copied() else {
            if is_full {
                return;
            }
            self.sessions
                .insert(record.session.clone(), Numbers { last: number, line: self.line, has_ended });
            if number > 1 && self.findings.begins_after.is_none() && self.gaps_before == 0 {
                self.gap(place, record, 0, number);
            }
            return;
        };
        if number > numbers.last + 1 && numbers.line >= self.gaps_before {
            self.gap(place, record, numbers.last, number);
        } else if number <= numbers.last && self.breaks.is_empty() && self.pending.is_empty() {
            self.breaks.add(place, BreakKind::Inserted, "its session had a record of this number before");
        }
        let last = number.max(numbers.last);
        self.sessions.insert(
            record.session.clone(),
            Numbers { last, line: self.line, has_ended: numbers.has_ended || has_ended },
        );
    }

    /// Records `last + 1` to `number - 1` of a session are missing.
    fn gap(&mut self, place: LinePlace, record: &AuditRecord, last: u64, number: u64) {
        let since =
            if last == 0 { 0 } else { self.sessions.get(&record.session).map_or(0, |known| known.line) };
        let missing = (number - last - 1).saturating_sub(self.unplaced);
        self.unplaced = self.unplaced.saturating_sub(number - last - 1);
        if missing == 0 {
            return;
        }
        // A record that is out of order is missing until it comes.
        if let Some(pending) =
            self.pending.iter_mut().find(|pending| pending.line > since && pending.line <= self.line)
        {
            pending.gap += missing;
        } else {
            let words = format!(
                "before it, {missing} record(s) of session {} are missing",
                super::shown(&record.session)
            );
            self.breaks.add(place, BreakKind::Removed, words);
        }
    }

    /// The end of the log.
    pub(super) fn finish(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            let is_open =
                self.sessions.values().any(|session| !session.has_ended && session.line < pending.line);
            match (pending.gap, pending.before) {
                (0, Some(before)) if !is_open => {
                    self.breaks.add(before, BreakKind::Edited, "the record after it follows another one");
                }
                (0, _) => self.breaks.add(
                    pending.place,
                    BreakKind::Removed,
                    "the record that it follows was removed, or written anew",
                ),
                (missing, _) => self.breaks.add(
                    pending.place,
                    BreakKind::Removed,
                    format!("the record that it follows was removed, {missing} at least in all"),
                ),
            }
        }
        let has_hashes = self.findings.records > 0;
        match (self.last, self.between.first) {
            (Some((place, true)), _) => {
                self.breaks.add(place, BreakKind::Truncated, "the log ends in the middle of a line");
            }
            (_, Some(first)) if has_hashes && self.between.are_records => self.breaks.add(
                first,
                BreakKind::Inserted,
                "it has no hash: somebody else wrote it, or an earlier version of ipybox",
            ),
            (_, Some(first)) if has_hashes => {
                self.breaks.add(first, BreakKind::Edited, "it is no record, and nothing follows it");
            }
            _ => {}
        }
        let mut open: Vec<(u64, &String)> = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.has_ended)
            .map(|(id, session)| (session.line, id))
            .collect();
        open.sort_unstable();
        self.findings.open = open.into_iter().map(|(_, id)| id.clone()).collect();
        self.findings.sessions = self.sessions.len();
        self.findings.head = self.linked;
        for wanted in &self.findings.wanted {
            self.breaks.add_to_all(
                BreakKind::Removed,
                format!("the record with the hash {wanted} is not there: it was removed or rewritten, or is in an earlier file"),
            );
        }
        self.breaks.sort();
    }
}
