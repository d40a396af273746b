//! The place that each call of code passes: it is recorded, or answered from a recording.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::LINE_BYTES;
use super::broker::{AwaitedAnswer, BrokeredCall, ReplayBroker};
use super::recorder::{OpenRecord, SessionRecorder};

/// The tape of a session's calls.
#[derive(Clone, Default)]
pub(crate) enum CallTape {
    /// There is none.
    #[default]
    Off,
    Recording(Arc<SessionRecorder>),
    Replaying(Arc<ReplayBroker>),
}

/// A call that has begun.
pub(crate) enum TapedCall {
    /// It is decided about and made.
    Made(AnswerWitness),
    /// It is answered so.
    Known(Value),
    /// It fails so.
    Refused(String),
}

/// Gets the answer of a call that is made.
pub(crate) enum AnswerWitness {
    /// Nobody needs it.
    Nobody,
    Record(OpenRecord),
    Comparison(AwaitedAnswer),
}

impl CallTape {
    /// Whether calls pass it at all.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether the calls are those of a replay.
    pub(crate) fn is_replay(&self) -> bool {
        matches!(self, Self::Replaying(_))
    }

    /// The recorder of the calls, if there is one.
    pub(crate) fn recorder(&self) -> Option<&Arc<SessionRecorder>> {
        match self {
            Self::Recording(recorder) => Some(recorder),
            Self::Off | Self::Replaying(_) => None,
        }
    }

    /// A call begins; `is_read` if its server says that it changes nothing. Code makes it beside the others of its `burst`.
    pub(crate) fn begin(
        &self,
        server: &str,
        tool: &str,
        arguments: &Map<String, Value>,
        burst: Option<u64>,
        is_read: bool,
    ) -> TapedCall {
        match self {
            Self::Off => TapedCall::Made(AnswerWitness::Nobody),
            Self::Recording(recorder) => {
                let record = recorder.call_begins(server, tool, arguments, burst);
                TapedCall::Made(AnswerWitness::Record(record))
            }
            Self::Replaying(broker) => match broker.ask(server, tool, arguments, is_read) {
                BrokeredCall::Known(answer) => TapedCall::Known(answer),
                BrokeredCall::Refused(message) => TapedCall::Refused(message),
                BrokeredCall::Living(awaited) => TapedCall::Made(AnswerWitness::Comparison(awaited)),
            },
        }
    }

    /// As [`begin`](Self::begin), of a call that is made in any case.
    pub(crate) fn record(&self, server: &str, tool: &str, arguments: &Map<String, Value>) -> AnswerWitness {
        match self {
            Self::Recording(recorder) => {
                AnswerWitness::Record(recorder.call_begins(server, tool, arguments, None))
            }
            Self::Off | Self::Replaying(_) => AnswerWitness::Nobody,
        }
    }

    /// The user has answered a server, or has not.
    pub(crate) fn user_answers(
        &self,
        server: &str,
        question: Map<String, Value>,
        content: Option<&Map<String, Value>>,
    ) {
        if let Self::Recording(recorder) = self {
            recorder.user_answers(server, question, content.map(|content| content.keys().cloned().collect()));
        }
    }
}

impl AnswerWitness {
    /// Whether nobody needs the answer.
    pub(crate) fn is_nobody(&self) -> bool {
        matches!(self, Self::Nobody)
    }

    /// The largest answer that is needed, in bytes.
    pub(crate) fn most_bytes(&self) -> usize {
        match self {
            Self::Record(record) => record.most_bytes(),
            Self::Nobody | Self::Comparison(_) => LINE_BYTES,
        }
    }

    /// The answer has come.
    pub(crate) fn answered(self, answer: Value, decision: &'static str, by: &'static str) {
        match self {
            Self::Nobody => {}
            Self::Record(record) => record.answered(answer, decision, by),
            Self::Comparison(awaited) => awaited.came(answer),
        }
    }

    /// The answer is too large.
    pub(crate) fn left_out(self, bytes: usize, by: &'static str) {
        if let Self::Record(record) = self {
            record.left_out(bytes, by);
        }
    }
}
