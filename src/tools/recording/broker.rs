//! Answers the calls of a replayed session: from its recording, or by the living servers, as the mode says.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::comparison::{self, OutputLikeness, diff};
use super::line::{CellItem, RecordedCall, RecordedFailure};
use super::matching::{AskedCall, FoundCall, RecordedCalls};
use crate::ground::text::Redactor;

/// The destination of a replay's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a new mode is a new promise")]
pub enum ReplayMode {
    /// To the recording; the first that differs ends the replay.
    Strict,
    /// To the recording; those that differ fail in the code, which goes on. The report lists all that may write.
    Dry,
    /// Those that read, as their servers say, to the living servers; the others to the recording.
    Reads,
    /// To the living servers.
    Live,
    /// Nowhere, since no code runs: the policy is asked about those that are recorded.
    Policy,
}

/// A difference between the calls of a recording and of its replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallDifference {
    pub(crate) kind: CallDifferenceKind,
    /// `server.tool`.
    pub(crate) call: String,
    /// Lines with `-` of the recording and `+` of the replay.
    pub(crate) diff: Vec<String>,
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallDifferenceKind {
    /// The recording has no such call.
    Unknown,
    /// It came before one that it had followed.
    Reordered,
    /// The recording has it, and the replay has not.
    Missing,
    /// A living server has answered otherwise.
    Result,
    /// The recording does not have its answer.
    LeftOut,
}

impl CallDifferenceKind {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Unknown => "a call that the recording does not have",
            Self::Reordered => "a call before one that it had followed",
            Self::Missing => "a recorded call was not made",
            Self::Result => "the living server answered otherwise",
            Self::LeftOut => "the recording does not have the answer",
        }
    }

    /// In a word, for programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown_call",
            Self::Reordered => "reordered_call",
            Self::Missing => "missing_call",
            Self::Result => "changed_result",
            Self::LeftOut => "left_out_answer",
        }
    }
}

/// The calls of a cell.
#[derive(Debug, Default)]
pub(crate) struct ReplayedCalls {
    /// The number of calls that are as recorded.
    pub(crate) alike: usize,
    pub(crate) differences: Vec<CallDifference>,
    /// The rules by which calls were the same.
    pub(crate) rules: BTreeSet<&'static str>,
    /// The calls that may write, as people read them; none was sent in the modes that send none.
    pub(crate) writes: Vec<String>,
}

/// Answers the calls of a replay.
pub(crate) struct ReplayBroker {
    mode: ReplayMode,
    redactor: Redactor,
    /// The values of placeholders that are filled, by name.
    filled: Vec<(String, String)>,
    /// The recorded workspace, and that of the replay.
    moved: (String, String),
    /// Whether the recorded calls have answers.
    has_answers: bool,
    state: Mutex<ReplayState>,
    /// Cancelled at the difference that ends the replay.
    stopped: CancellationToken,
}

struct ReplayState {
    calls: RecordedCalls,
    /// The cell that runs.
    cell: u64,
    of_cell: ReplayedCalls,
    /// The places of the recorded calls that code has made again, in its order.
    used: Vec<usize>,
}

/// A living server's answer that is to be compared.
pub(crate) struct AwaitedAnswer {
    broker: Arc<ReplayBroker>,
    /// The recorded call; `None` if there is none.
    place: Option<usize>,
}

/// The fate of a call.
pub(crate) enum BrokeredCall {
    /// It is answered so.
    Known(Value),
    /// It fails so.
    Refused(String),
    /// A living server answers.
    Living(AwaitedAnswer),
}

impl ReplayBroker {
    pub(crate) fn new(
        mode: ReplayMode,
        calls: Vec<RecordedCall>,
        redactor: Redactor,
        filled: Vec<(String, String)>,
        moved: (String, String),
        has_answers: bool,
    ) -> Self {
        let state = ReplayState {
            calls: RecordedCalls::new(calls),
            cell: 0,
            of_cell: ReplayedCalls::default(),
            used: Vec::new(),
        };
        Self {
            mode,
            redactor,
            filled,
            moved,
            has_answers,
            state: Mutex::new(state),
            stopped: CancellationToken::new(),
        }
    }

    /// Cancelled at the difference that ends the replay.
    pub(crate) fn stopped(&self) -> &CancellationToken {
        &self.stopped
    }

    /// The places of the recorded calls that code has made again, in its order.
    pub(crate) fn used(&self) -> Vec<usize> {
        self.state.lock().used.clone()
    }

    /// A cell of this number begins.
    pub(crate) fn cell_begins(&self, cell: u64) {
        let mut state = self.state.lock();
        (state.cell, state.of_cell) = (cell, ReplayedCalls::default());
    }

    /// A cell has ended. Returns what there is to say about its calls.
    pub(crate) fn cell_ended(&self) -> ReplayedCalls {
        let mut state = self.state.lock();
        let mut of_cell = std::mem::take(&mut state.of_cell);
        let missing = state.calls.missing(state.cell).into_iter().map(|call| CallDifference {
            kind: CallDifferenceKind::Missing,
            call: format!("{}.{}", call.server, call.tool),
            diff: diff(&call.words(), ""),
        });
        // After the difference that ended the replay, calls are missing because of it.
        if !self.stopped.is_cancelled() {
            of_cell.differences.extend(missing);
        }
        of_cell
    }

    /// Code makes a call; `is_read` if its server says that it changes nothing.
    pub(crate) fn ask(
        self: &Arc<Self>,
        server: &str,
        tool: &str,
        arguments: &Map<String, Value>,
        is_read: bool,
    ) -> BrokeredCall {
        let asked = self.asked(server, tool, arguments);
        let mut state = self.state.lock();
        if self.stopped.is_cancelled() {
            return BrokeredCall::Refused("the replay has ended at a call that differs".to_owned());
        }
        if !is_read {
            state.of_cell.writes.push(asked.words().trim_end().to_owned());
        }
        let cell = state.cell;
        let found = state.calls.find(cell, &asked);
        let is_living = match self.mode {
            ReplayMode::Strict | ReplayMode::Dry | ReplayMode::Policy => false,
            ReplayMode::Reads => is_read,
            ReplayMode::Live => true,
        };
        match found {
            Some(found) => {
                let place = found.place;
                state.used.push(place);
                self.note_order(&mut state, found, &asked);
                if self.stopped.is_cancelled() {
                    return BrokeredCall::Refused("the call is not in its place in the recording".to_owned());
                }
                if is_living {
                    return BrokeredCall::Living(AwaitedAnswer {
                        broker: Arc::clone(self),
                        place: Some(place),
                    });
                }
                self.known(&mut state, place)
            }
            None => {
                let difference = unknown(&state, &asked);
                let words = difference.diff.join("\n");
                state.of_cell.differences.push(difference);
                self.stop_if_strict();
                if is_living {
                    return BrokeredCall::Living(AwaitedAnswer { broker: Arc::clone(self), place: None });
                }
                BrokeredCall::Refused(format!("the recording does not have this call\n{words}"))
            }
        }
    }

    fn note_order(&self, state: &mut ReplayState, found: FoundCall, asked: &AskedCall) {
        if let OutputLikeness::ByRules(rules) = found.likeness {
            state.of_cell.rules.extend(rules);
        }
        match found.overtaken {
            None => state.of_cell.alike += 1,
            Some(earlier) => {
                let diff = diff(&state.calls.get(earlier).words(), &asked.words());
                let call = format!("{}.{}", asked.server, asked.tool);
                let difference = CallDifference { kind: CallDifferenceKind::Reordered, call, diff };
                state.of_cell.differences.push(difference);
                self.stop_if_strict();
            }
        }
    }

    fn known(&self, state: &mut ReplayState, place: usize) -> BrokeredCall {
        let call = state.calls.get(place);
        if let Some(answer) = &call.answer {
            return BrokeredCall::Known(self.fill(answer.clone()));
        }
        let name = format!("{}.{}", call.server, call.tool);
        let why = match call.left_out {
            Some(bytes) => format!("it had {bytes} bytes, too many for a recording"),
            None if self.has_answers => "code did not wait for it".to_owned(),
            None => {
                "a notebook has no answers; the modes `live` and `reads` ask the living servers".to_owned()
            }
        };
        let message = format!("the recording does not have the answer of `{name}`: {why}");
        if call.left_out.is_some() || !self.has_answers {
            let difference =
                CallDifference { kind: CallDifferenceKind::LeftOut, call: name, diff: vec![why] };
            state.of_cell.differences.push(difference);
            self.stop_if_strict();
        }
        BrokeredCall::Refused(message)
    }

    fn stop_if_strict(&self) {
        if self.mode == ReplayMode::Strict {
            self.stopped.cancel();
        }
    }

    /// The call with its secrets replaced, as a recording has it.
    fn asked(&self, server: &str, tool: &str, arguments: &Map<String, Value>) -> AskedCall {
        let redacted = self.redactor.redact_json(Value::Object(arguments.clone()));
        let arguments = match with_texts(redacted, &|text| self.text_moved_back(&text)) {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        AskedCall {
            server: self.redactor.redact(server).into_owned(),
            tool: self.redactor.redact(tool).into_owned(),
            arguments,
        }
    }

    /// As code gets it: with the placeholders filled that the user has named, and paths of this workspace.
    fn fill(&self, value: Value) -> Value {
        with_texts(value, &|text| self.fill_text(text))
    }

    /// A text, or code, as code gets it.
    pub(crate) fn fill_text(&self, text: String) -> String {
        let filled =
            |text: String, (name, value): &(String, String)| text.replace(&format!("${{{name}}}"), value);
        let (recorded, here) = &self.moved;
        self.filled.iter().fold(replaced(&text, recorded, here), filled)
    }

    /// An output of the replay with paths of the recorded workspace.
    pub(crate) fn moved_back(&self, item: CellItem) -> CellItem {
        let text = |text: &String| self.text_moved_back(text);
        match item {
            CellItem::Text(shown) => CellItem::Text(text(&shown)),
            CellItem::Data(data) => {
                let moved = |(kind, value)| (kind, with_texts(value, &|shown| text(&shown)));
                CellItem::Data(data.into_iter().map(moved).collect())
            }
            CellItem::Error(RecordedFailure { name, value, traceback }) => CellItem::Error(RecordedFailure {
                name,
                value: text(&value),
                traceback: traceback.iter().map(text).collect(),
            }),
        }
    }

    fn text_moved_back(&self, text: &str) -> String {
        let (recorded, here) = &self.moved;
        replaced(text, here, recorded)
    }
}

/// `text` with one path in place of another, unless that is the root.
fn replaced(text: &str, path: &str, other: &str) -> String {
    if path.len() > 1 && path.starts_with('/') { text.replace(path, other) } else { text.to_owned() }
}

/// A value with each text in it changed.
fn with_texts(value: Value, change: &dyn Fn(String) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| with_texts(item, change)).collect()),
        Value::Object(members) => {
            let changed = members.into_iter().map(|(name, value)| (change(name), with_texts(value, change)));
            Value::Object(changed.collect())
        }
        value => value,
    }
}

fn unknown(state: &ReplayState, asked: &AskedCall) -> CallDifference {
    let nearest = state.calls.nearest(state.cell, asked).map(RecordedCall::words).unwrap_or_default();
    CallDifference {
        kind: CallDifferenceKind::Unknown,
        call: format!("{}.{}", asked.server, asked.tool),
        diff: diff(&nearest, &asked.words()),
    }
}

impl AwaitedAnswer {
    /// The living server has answered.
    pub(crate) fn came(self, answer: Value) {
        let Some(place) = self.place else { return };
        let answer = self.broker.redactor.redact_json(answer);
        let mut state = self.broker.state.lock();
        let call = state.calls.get(place);
        let Some(recorded) = &call.answer else { return };
        match comparison::values(recorded, &answer) {
            OutputLikeness::Same => {}
            OutputLikeness::ByRules(rules) => state.of_cell.rules.extend(rules),
            OutputLikeness::Different => {
                let lines = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
                let difference = CallDifference {
                    kind: CallDifferenceKind::Result,
                    call: format!("{}.{}", call.server, call.tool),
                    diff: diff(&lines(recorded), &lines(&answer)),
                };
                state.of_cell.differences.push(difference);
            }
        }
    }
}
