//! The calls that code has made in a cell, noted for the notebook of its session.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use super::event::millis;
use super::redacted;
use crate::approval::action::{Action, Target};
use crate::approval::decision::Decision;
use crate::ground::text::Redactor;

/// The number of calls of a cell that are noted.
const MOST_CALLS: usize = 500;

/// The bytes of arguments and messages of a cell's calls that are noted, together.
const MOST_BYTES: usize = 256 * 1024;

/// The number of characters of an error's message or of a reason that are noted.
const MESSAGE_CHARS: usize = 1_000;

/// Notes the calls of one session's code.
pub(crate) struct CallNotes {
    redactor: Redactor,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    calls: Vec<Arc<Mutex<CallNote>>>,
    bytes: usize,
    left_out: usize,
}

/// A call as a notebook shows it. Secrets are replaced in it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CallNote {
    server: String,
    tool: String,
    /// A text if they are long.
    arguments: Value,
    /// `accepted` or `denied`.
    decision: &'static str,
    /// The deciding party, as in the audit log.
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    waited_ms: u64,
    /// `result`, `error` or `cancelled`; nothing if it was denied, or goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

/// The calls of a cell.
#[derive(Debug, Default)]
pub(crate) struct CellCalls {
    pub(crate) calls: Vec<CallNote>,
    /// The number of calls that were left out.
    pub(crate) left_out: usize,
}

/// A permitted call whose end is to be noted.
pub(in crate::approval) struct NotedCall {
    note: Arc<Mutex<CallNote>>,
    redactor: Redactor,
    begun: Instant,
}

impl CallNotes {
    /// Secrets that `redactor` knows are replaced.
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self { redactor, noted: Mutex::default() }
    }

    /// The calls since the last ones were taken.
    pub(crate) fn take(&self) -> CellCalls {
        let Noted { calls, left_out, .. } = std::mem::take(&mut *self.noted.lock());
        CellCalls { calls: calls.iter().map(|call| call.lock().clone()).collect(), left_out }
    }

    /// Notes a call that was decided about. Returns what notes its end, if that is to be noted.
    pub(in crate::approval) fn note(&self, action: &Action, decision: &Decision) -> Option<NotedCall> {
        // An action for the client is no call of code.
        if action.target == Target::Host {
            return None;
        }
        let mut noted = self.noted.lock();
        if noted.calls.len() >= MOST_CALLS {
            noted.left_out += 1;
            return None;
        }
        let (arguments, bytes) = redacted::json(&self.redactor, &action.tool_args);
        let arguments = if noted.bytes + bytes <= MOST_BYTES {
            noted.bytes += bytes;
            arguments
        } else {
            Value::from(format!("[{bytes} bytes, left out]"))
        };
        let name = |name: &str| message(&self.redactor, name);
        let denied = decision.outcome.as_ref().err();
        let note = CallNote {
            server: name(&action.server_name),
            tool: name(&action.tool_name),
            arguments,
            decision: if denied.is_none() { "accepted" } else { "denied" },
            by: decision.by.word(),
            reason: denied.map(|denied| message(&self.redactor, &denied.to_string())),
            waited_ms: millis(decision.waited),
            outcome: None,
            error: None,
            duration_ms: None,
        };
        let note = Arc::new(Mutex::new(note));
        noted.calls.push(Arc::clone(&note));
        let ongoing = NotedCall { note, redactor: self.redactor.clone(), begun: Instant::now() };
        denied.is_none().then_some(ongoing)
    }
}

impl NotedCall {
    /// The call begins now, and not when it was permitted.
    pub(in crate::approval) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// The call has ended.
    pub(in crate::approval) fn end(&self, outcome: &'static str, error: Option<&str>) {
        let mut note = self.note.lock();
        note.outcome = Some(outcome);
        note.error = error.map(|error| message(&self.redactor, error));
        note.duration_ms = Some(millis(self.begun.elapsed()));
    }
}

fn message(redactor: &Redactor, text: &str) -> String {
    crate::ground::text::shortened(&redacted::text(redactor, text), MESSAGE_CHARS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Map, json};

    use super::super::Audit;
    use super::*;
    use crate::approval::gate::Gate;
    use crate::approval::policy::{ApprovalEffect, ApprovalPolicy};
    use crate::approval::question::Approver;
    use crate::approval::standing::StandingAnswers;

    fn gate(effect: ApprovalEffect) -> (Gate, Arc<CallNotes>) {
        let gate = Gate::new(
            ApprovalPolicy::always(effect),
            StandingAnswers::default(),
            Duration::ZERO,
            Audit::off(),
        );
        let redactor = Redactor::default();
        redactor.note("KEY", "the-secret");
        let calls = Arc::new(CallNotes::new(redactor));
        gate.keep_calls(Arc::clone(&calls));
        (gate, calls)
    }

    fn action(target: Target, argument: &str) -> Action {
        let arguments = Map::from_iter([("a".to_owned(), json!(argument))]);
        Action::new("s".to_owned(), "t".to_owned(), arguments, target)
    }

    fn call(argument: &str) -> Action {
        action(Target::Command("x".to_owned()), argument)
    }

    fn taken(calls: &CallNotes) -> Value {
        let mut value = serde_json::to_value(calls.take().calls).unwrap();
        for call in value.as_array_mut().unwrap() {
            for time in ["waited_ms", "duration_ms"] {
                call.as_object_mut().unwrap().remove(time);
            }
        }
        value
    }

    #[tokio::test]
    async fn calls_are_noted_with_their_ends_and_without_secrets() {
        let (gate, calls) = gate(ApprovalEffect::Allow);
        let nobody = Approver::Nobody("a test");
        for argument in ["the-secret", "2", "3"] {
            let (_, on_record) = gate.decide(call(argument), &nobody).await.unwrap();
            match argument {
                "2" => on_record.error("no the-secret"),
                "3" => drop(on_record),
                _ => on_record.result(|| json!(1)),
            }
        }
        let (_, running) = gate.decide(call("4"), &nobody).await.unwrap();
        let (_, of_the_host) = gate.decide(action(Target::Host, "5"), &nobody).await.unwrap();
        let accepted = json!({"server": "s", "tool": "t", "decision": "accepted", "by": "policy"});
        let noted = |more: Value| {
            let mut all = accepted.as_object().unwrap().clone();
            all.extend(more.as_object().unwrap().clone());
            Value::Object(all)
        };
        assert_eq!(
            taken(&calls),
            json!([
                noted(json!({"arguments": {"a": "${KEY}"}, "outcome": "result"})),
                noted(json!({"arguments": {"a": "2"}, "outcome": "error", "error": "no ${KEY}"})),
                noted(json!({"arguments": {"a": "3"}, "outcome": "cancelled"})),
                noted(json!({"arguments": {"a": "4"}})),
            ])
        );
        drop((running, of_the_host));
        assert_eq!(taken(&calls), json!([]));
    }

    #[tokio::test]
    async fn what_was_denied_is_noted_with_the_reason() {
        let (gate, calls) = gate(ApprovalEffect::Deny);
        assert!(gate.decide(call("1"), &Approver::Consent).await.is_err());
        let noted = taken(&calls);
        assert_eq!((&noted[0]["decision"], &noted[0]["by"]), (&json!("denied"), &json!("policy")));
        assert!(noted[0]["reason"].as_str().unwrap().contains("s.t"), "{noted}");
    }

    #[tokio::test]
    async fn a_flood_of_calls_is_counted() {
        let (gate, calls) = gate(ApprovalEffect::Allow);
        let long = "x".repeat(MOST_BYTES / 8);
        for _ in 0..MOST_CALLS + 7 {
            let (_, on_record) = gate.decide(call(&long), &Approver::Consent).await.unwrap();
            on_record.result(|| Value::Null);
        }
        let CellCalls { calls, left_out } = calls.take();
        assert_eq!((calls.len(), left_out), (MOST_CALLS, 7));
        assert!(serde_json::to_vec(&calls).unwrap().len() < 2 * MOST_BYTES);
    }
}
