//! The sums of a log by session: cells, calls by server and tool, decisions. Bounded, whatever a log contains.

use std::collections::{BTreeMap, HashMap};

use indexmap::IndexMap;
use serde::Serialize;

use super::{AuditFilter, arguments};
use crate::approval::audit::AuditRecord;

/// The number of sessions that are distinguished.
const SESSIONS: usize = 5_000;

/// The number of tools that are distinguished, in all sessions.
const TOOLS: usize = 20_000;

/// The number of calls of a tool in a session that are shown with their arguments, of those that may write.
const SHOWN_CALLS: usize = 20;

/// The number of calls that are shown in all.
const SHOWN_IN_ALL: usize = 50_000;

/// The number of calls that may wait for their ends. Calls that never end (of killed sessions, shell commands) fill this.
const OPEN_CALLS: usize = 100_000;

/// The number of words that are distinguished where a log should have a few.
const WORDS: usize = 32;

/// Counts by a word of the log.
type WordCounts = BTreeMap<String, u64>;

/// The sums over sessions.
#[derive(Debug, Default)]
pub(super) struct AuditTally {
    pub(super) sessions: IndexMap<String, SessionTally>,
    /// Records that were not counted, since there are too many sessions or tools.
    pub(super) not_counted: u64,
    tools: usize,
    shown: usize,
    open: HashMap<String, TalliedCall>,
}

/// The sums of a session.
#[derive(Debug, Default, Serialize)]
pub(super) struct SessionTally {
    pub(super) begun: Option<String>,
    pub(super) last: Option<String>,
    pub(super) has_ended: bool,
    pub(super) face: Option<String>,
    pub(super) version: Option<String>,
    pub(super) workspace: Option<String>,
    pub(super) cells: u64,
    pub(super) cell_ends: WordCounts,
    pub(super) events_lost: u64,
    /// The deciding parties, in words.
    pub(super) decisions: WordCounts,
    #[serde(serialize_with = "as_list")]
    pub(super) tools: IndexMap<(String, String), ToolTally>,
}

/// The sums over the calls of a tool.
#[derive(Debug, Default, Serialize)]
pub(super) struct ToolTally {
    pub(super) permitted: u64,
    pub(super) denied: u64,
    /// Of the permitted ones.
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) decisions: WordCounts,
    /// Permitted calls of a tool that is not known to be read-only.
    pub(super) may_have_written: u64,
    /// The first of these.
    pub(super) writes: Vec<TalliedWrite>,
}

/// A call that may have written something.
#[derive(Debug, Serialize)]
pub(super) struct TalliedWrite {
    pub(super) time: String,
    pub(super) cell: Option<u64>,
    pub(super) target: String,
    pub(super) arguments: String,
    pub(super) decided: String,
    pub(super) outcome: Option<String>,
}

#[derive(Debug, Clone)]
struct TalliedCall {
    session: usize,
    tool: usize,
    write: Option<usize>,
}

impl AuditTally {
    pub(super) fn add(&mut self, record: &AuditRecord, filter: &AuditFilter) {
        // The end of a call counts if its decision does.
        if record.event == "call_ended" {
            return self.end_call(record);
        }
        if !filter.has_session(&record.session) || !filter.has_time(record.instant()) {
            return;
        }
        if !self.sessions.contains_key(&record.session) && self.sessions.len() >= SESSIONS {
            self.not_counted += 1;
            return;
        }
        let entry = self.sessions.entry(record.session.clone());
        let index = entry.index();
        let session = entry.or_default();
        session.begun.get_or_insert_with(|| time(record));
        session.last = Some(time(record));
        match record.event.as_str() {
            "session_started" => {
                session.face = record.face.as_deref().map(word);
                session.version = record.version.as_deref().map(word);
                session.workspace = record.workspace.as_deref().map(|path| arguments::shortened(path, 200));
            }
            "session_ended" => session.has_ended = true,
            "cell_started" => session.cells += 1,
            "cell_ended" => count(&mut session.cell_ends, record.end.as_deref().unwrap_or("unknown")),
            "events_lost" => {
                session.events_lost = session.events_lost.saturating_add(record.count.unwrap_or(1))
            }
            "decision" if filter.has_server(record.server.as_deref()) => self.decide(index, record),
            // Later versions may have more events.
            _ => {}
        }
    }

    fn decide(&mut self, index: usize, record: &AuditRecord) {
        let Some((_, session)) = self.sessions.get_index_mut(index) else { return };
        let decided = by(record);
        count(&mut session.decisions, &decided);
        let key = (name(&record.server), name(&record.tool));
        if !session.tools.contains_key(&key) {
            if self.tools >= TOOLS {
                self.not_counted += 1;
                return;
            }
            self.tools += 1;
        }
        let entry = session.tools.entry(key);
        let place = entry.index();
        let tool = entry.or_default();
        count(&mut tool.decisions, &decided);
        if !record.is_accepted() {
            tool.denied += 1;
            return;
        }
        tool.permitted += 1;
        let is_read_only = record.annotations.is_some_and(|hints| hints.read_only == Some(true));
        tool.may_have_written += u64::from(!is_read_only);
        let is_shown = !is_read_only && tool.writes.len() < SHOWN_CALLS && self.shown < SHOWN_IN_ALL;
        if is_shown {
            self.shown += 1;
            tool.writes.push(TalliedWrite {
                time: time(record),
                cell: record.cell,
                target: arguments::shortened(record.target.as_deref().unwrap_or_default(), 200),
                arguments: arguments::of(record.arguments.as_ref()),
                decided,
                outcome: None,
            });
        }
        let write = is_shown.then(|| tool.writes.len() - 1);
        if let Some(call) = record.call.as_ref().filter(|call| call.len() <= 64)
            && self.open.len() < OPEN_CALLS
        {
            self.open.insert(call.clone(), TalliedCall { session: index, tool: place, write });
        }
    }

    fn end_call(&mut self, record: &AuditRecord) {
        let Some(open) = record.call.as_ref().and_then(|call| self.open.remove(call)) else { return };
        let session = self.sessions.get_index_mut(open.session).map(|(_, session)| session);
        let Some((_, tool)) = session.and_then(|session| session.tools.get_index_mut(open.tool)) else {
            return;
        };
        let outcome = record.outcome.as_deref().unwrap_or("unknown");
        match outcome {
            "result" => tool.succeeded += 1,
            "error" => tool.failed += 1,
            // Its next decision is in the log, too.
            "decided_anew" => tool.permitted -= 1,
            _ => tool.cancelled += 1,
        }
        if let Some(write) = open.write.and_then(|write| tool.writes.get_mut(write)) {
            write.outcome = Some(word(outcome));
        }
    }
}

/// The deciding party, in words.
pub(super) fn by(record: &AuditRecord) -> String {
    let mut words = word(record.by.as_deref().unwrap_or("unknown"));
    if record.earlier {
        words.push_str(" (remembered)");
    }
    if let Some(approver) = &record.approver {
        words.push(' ');
        words.push_str(&name(&Some(approver.clone())));
    }
    if let Some(via) = &record.via {
        words.push_str(" by ");
        words.push_str(&word(via));
    }
    words
}

/// A word of the log, which may be anything.
pub(super) fn word(text: &str) -> String {
    arguments::shortened(text, 40)
}

pub(super) fn time(record: &AuditRecord) -> String {
    word(&record.time)
}

/// The name of a server or a tool.
pub(super) fn name(name: &Option<String>) -> String {
    arguments::shortened(name.as_deref().unwrap_or("?"), 100)
}

fn count(counts: &mut WordCounts, word: &str) {
    let word = arguments::shortened(word, 100);
    let word = if counts.len() < WORDS || counts.contains_key(&word) { word } else { "other".to_owned() };
    *counts.entry(word).or_default() += 1;
}

fn as_list<S: serde::Serializer>(
    tools: &IndexMap<(String, String), ToolTally>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct ToolRow<'a> {
        server: &'a str,
        tool: &'a str,
        #[serde(flatten)]
        tally: &'a ToolTally,
    }
    serializer.collect_seq(tools.iter().map(|((server, tool), tally)| ToolRow { server, tool, tally }))
}
