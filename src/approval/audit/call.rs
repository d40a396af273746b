//! A call on record: what was asked, what was decided, how it ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::Value;

use super::event::{Asked, Event, Keep, Outcome, Verdict, millis};
use super::handle::{Audit, Log};
use super::shown;
use crate::approval::gate::{By, Decision};
use crate::approval::{Action, Answer, Target};

/// A permitted call. Dropped before its end is told, it was cancelled.
#[must_use = "a call whose end is not told is recorded as cancelled"]
pub(crate) struct OpenCall(Option<Running>);

struct Running {
    log: Arc<Log>,
    call: String,
    begun: Instant,
}

/// A decision that is being made. Dropped before it is made, it is recorded as withdrawn.
#[must_use = "a question whose decision is not recorded is recorded as withdrawn"]
pub(in crate::approval) struct Question(Option<Asking>);

struct Asking {
    log: Arc<Log>,
    subject: Subject,
    asked: Option<Asked>,
    begun: Instant,
}

impl Audit {
    /// Notes that permission for `action` is asked.
    pub(in crate::approval) fn question(&self, action: &Action) -> Question {
        Question(self.log().map(|log| Asking {
            log: Arc::clone(log),
            subject: Subject::of(action),
            asked: Some(asked(log, action)),
            begun: Instant::now(),
        }))
    }
}

impl Question {
    /// Writes the decision, and waits until it is written.
    ///
    /// # Errors
    /// The log cannot be written: what was permitted must not run.
    pub(in crate::approval) async fn decided(self, decision: &Decision) -> io::Result<OpenCall> {
        let Some(mut asking) = self.0 else { return Ok(OpenCall(None)) };
        let Some(asked) = asking.asked.take() else { unreachable!("only this line and its drop take it") };
        let (log, call) = (&asking.log, asked.call.clone());
        let (by, earlier) = word(&decision.by);
        let is_permitted = decision.outcome.is_ok();
        let event = Event::Decision {
            asked,
            decision: if is_permitted { Verdict::Accepted } else { Verdict::Denied },
            by,
            rule: rule(&decision.by).map(|rule| shown::text(&log.redactor, rule)),
            earlier,
            waited_ms: millis(decision.waited),
            reason: decision
                .outcome
                .as_ref()
                .err()
                .map(|denied| shown::text(&log.redactor, &denied.to_string())),
        };
        // Made before the wait for the record, in which this may be dropped. What was denied has no end to be recorded.
        let running = Running { log: Arc::clone(log), call, begun: Instant::now() };
        let mut open = OpenCall(is_permitted.then_some(running));
        let written = log.writer.record(&event, asking.subject.keep(log, &decision.by)).await;
        if let Err(error) = &written
            && error.kind() != io::ErrorKind::TimedOut
        {
            // What is not begun on record does not end there. After a timeout it may still come to be.
            open.0 = None;
        }
        written.map(|()| open)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        self.log.note(&Event::Decision {
            asked,
            decision: Verdict::Denied,
            by: "withdrawal",
            rule: None,
            earlier: false,
            waited_ms: millis(self.begun.elapsed()),
            reason: Some("whoever asked did not wait for the answer".to_owned()),
        });
    }
}

impl OpenCall {
    /// Records that the call gave what `value` makes, which is not called if nothing is recorded.
    pub(crate) fn result(mut self, value: impl FnOnce() -> Value) {
        if self.0.is_some() {
            self.end(Outcome::Result, &value());
        }
    }

    /// The kernel does it itself: nobody sees how it ends.
    pub(crate) fn leave_to_the_kernel(mut self) {
        self.0 = None;
    }

    /// Records that the call failed, and what was said of it.
    pub(crate) fn error(mut self, message: &str) {
        self.end(Outcome::Error, &Value::from(message));
    }

    fn end(&mut self, outcome: Outcome, value: &Value) {
        let Some(Running { log, call, begun }) = self.0.take() else { return };
        let (result, result_bytes) = match value {
            Value::String(text) => (shown::text(&log.redactor, text).into(), text.len()),
            Value::Null => (Value::Null, 0),
            value => shown::json(&log.redactor, value),
        };
        log.note(&Event::CallEnded {
            call,
            outcome,
            duration_ms: millis(begun.elapsed()),
            result_bytes,
            result: (log.tells_everything() && !matches!(outcome, Outcome::Cancelled)).then_some(result),
        });
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.end(Outcome::Cancelled, &Value::Null);
    }
}

/// What a decision is about, as far as it matters to how long it is kept.
struct Subject {
    server: String,
    /// The tool, if the server has it: code chooses names freely.
    tool: Option<String>,
    is_of_the_host: bool,
}

impl Subject {
    fn of(action: &Action) -> Self {
        let is_known = action.annotations.is_some() || action.target == Target::Kernel;
        Self {
            server: action.server_name.clone(),
            tool: is_known.then(|| action.tool_name.clone()),
            is_of_the_host: action.target == Target::Host,
        }
    }

    /// What somebody decided, and what was done for the client, no code can do as often as it likes.
    fn keep(&self, log: &Log, by: &By) -> Keep {
        match by {
            _ if self.is_of_the_host => Keep::Evidence,
            By::Answer(_) | By::Expiry => Keep::Evidence,
            _ => log.keep_of_policy(&self.server, self.tool.as_deref()),
        }
    }
}

fn asked(log: &Log, action: &Action) -> Asked {
    let text = |text: &str| shown::text(&log.redactor, text);
    let cell = match action.target {
        // Done for the client, and not by a cell.
        Target::Host => 0,
        _ => log.running.load(Ordering::Relaxed),
    };
    Asked {
        call: uuid::Uuid::new_v4().to_string(),
        cell: (cell > 0).then_some(cell),
        server: text(&action.server_name),
        tool: text(&action.tool_name),
        target: text(&action.target.to_string()),
        annotations: action.annotations,
        arguments: shown::json(&log.redactor, &action.tool_args).0,
    }
}

/// Who decided, in a word, and whether earlier.
fn word(by: &By) -> (&'static str, bool) {
    match by {
        By::Policy(None) => ("policy", false),
        By::Policy(Some(_)) => ("rule", false),
        By::Answer(answer) => (answer_word(*answer), false),
        By::Standing(answer) => (answer_word(*answer), true),
        By::Consent => ("consent", false),
        By::Expiry => ("expiry", false),
        By::Nobody => ("nobody", false),
    }
}

fn answer_word(answer: Answer) -> &'static str {
    match answer {
        Answer::Once => "once",
        Answer::Session => "session",
        Answer::Always => "always",
        Answer::No => "no",
    }
}

fn rule(by: &By) -> Option<&str> {
    match by {
        By::Policy(rule) => rule.as_deref(),
        _ => None,
    }
}
