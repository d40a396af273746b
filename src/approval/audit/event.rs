//! The events of the log, one a line; `docs/audit.md` describes them for users.

use std::io;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;

use crate::approval::ToolAnnotations;
use crate::text::visible;

/// An event. All its texts are redacted and of bounded length.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
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
        asked: Asked,
        decision: Verdict,
        by: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// A standing answer decided.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        earlier: bool,
        waited_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A permitted call has ended.
    CallEnded {
        call: String,
        outcome: Outcome,
        duration_ms: u64,
        result_bytes: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
    },
    /// So many events before this line could not be written.
    EventsLost { count: u64 },
}

/// How long a line is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// As long as there is room: code can cause any number of such lines.
    Traffic,
    /// Longer, also in a file of their own: a user's decisions, and some of the policy's.
    Evidence,
}

/// The action that a decision is about.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Asked {
    pub(super) call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cell: Option<u64>,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<ToolAnnotations>,
    pub(super) arguments: Value,
}

/// A decision.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Accepted,
    Denied,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Result,
    Error,
    /// The call was cancelled: nobody waited for its end.
    Cancelled,
}

/// The fields that each line begins with.
#[derive(Debug, Clone)]
pub(super) struct Session {
    id: String,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    session: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

impl Session {
    pub(super) fn new() -> Self {
        Self { id: uuid::Uuid::new_v4().to_string() }
    }

    /// The line for `event` at the current time, with its newline.
    pub(super) fn line(&self, event: &Event) -> io::Result<String> {
        let time = rfc3339(SystemTime::now());
        let mut line = visible::json(&serde_json::to_string(&Line { time, session: &self.id, event })?);
        line.push('\n');
        Ok(line)
    }
}

fn rfc3339(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_in_utc_to_the_millisecond() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(951_782_400_012_999);
        assert_eq!(rfc3339(time), "2000-02-29T00:00:00.012Z");
    }

    #[test]
    fn an_event_is_one_line() {
        let event = Event::CellStarted { cell: 1, chars: 3, code: Some("a\nb".to_owned()) };
        let line = Session::new().line(&event).unwrap();
        assert_eq!(line.find('\n'), Some(line.len() - 1));
        assert!(line.contains(r#","event":"cell_started","cell":1,"chars":3,"code":"a\nb"}"#), "{line}");
    }
}
