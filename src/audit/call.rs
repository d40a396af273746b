//! A call on the record: what was asked, what was decided, how it ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::Value;

use super::event::{Asked, Event, Keep, Outcome, Verdict, millis};
use super::handle::{Audit, Log};
use super::shown;
use crate::approval::{Action, Answer, Approver, By, Denied, Gate, Permit, Target};

/// Why something may not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// So it was decided.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// It was permitted, but what is not on the record does not run.
    #[error("`{call}` may not run, since the audit log cannot be written")]
    Unrecorded {
        /// `server.tool`.
        call: String,
        /// Why.
        source: io::Error,
    },
}

/// A permitted call. Dropped before its end is told, it was cancelled.
#[must_use = "a call whose end is not told is recorded as cancelled"]
pub(crate) struct OpenCall(Option<Running>);

struct Running {
    log: Arc<Log>,
    call: String,
    begun: Instant,
}

/// Lets `gate` decide about `action`, and puts the decision on the record before it takes effect.
///
/// Dropping the future withdraws the question, which is recorded too.
///
/// # Errors
/// The action is denied, or it is permitted and that could not be recorded.
pub(crate) async fn decide_on_record(
    audit: &Audit,
    gate: &Gate,
    action: Action,
    approver: &Approver,
) -> Result<(Permit, OpenCall), Refusal> {
    let Some(log) = audit.log() else {
        return Ok((gate.decide(action, approver).await.outcome?, OpenCall(None)));
    };
    let subject = Subject::of(&action);
    let mut question = Question { log, asked: Some(asked(log, &action)), begun: Instant::now() };
    let ruling = gate.decide(action, approver).await;
    let Some(asked) = question.asked.take() else { unreachable!("only this line and its drop take it") };
    let call = asked.call.clone();
    let (by, earlier) = word(&ruling.by);
    let decision = Event::Decision {
        asked,
        decision: if ruling.outcome.is_ok() { Verdict::Accepted } else { Verdict::Denied },
        by,
        rule: rule(&ruling.by).map(|rule| shown::text(&log.redactor, rule)),
        earlier,
        waited_ms: millis(ruling.waited),
        reason: ruling.outcome.as_ref().err().map(|denied| shown::text(&log.redactor, &denied.to_string())),
    };
    let keep = subject.keep(log, &ruling.by);
    let permit = match ruling.outcome {
        Ok(permit) => permit,
        Err(denied) => {
            // A failure is logged; what was denied does not run in any case.
            drop(log.writer.record(&decision, keep).await);
            return Err(denied.into());
        }
    };
    // Before the wait for the record, in which this may be dropped.
    let mut open = OpenCall(Some(Running { log: Arc::clone(log), call, begun: Instant::now() }));
    match log.writer.record(&decision, keep).await {
        Ok(()) => Ok((permit, open)),
        Err(source) => {
            if source.kind() != io::ErrorKind::TimedOut {
                // What is not begun on the record does not end there. After a timeout it may still come to be.
                open.0 = None;
            }
            let Action { server_name, tool_name, .. } = permit.action();
            Err(Refusal::Unrecorded { call: format!("{server_name}.{tool_name}"), source })
        }
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

/// A question that waits. Dropped before its decision, it is recorded as withdrawn.
struct Question<'a> {
    log: &'a Log,
    asked: Option<Asked>,
    begun: Instant,
}

impl Drop for Question<'_> {
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
