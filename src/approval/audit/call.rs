//! A call in the audit log: its request, decision and end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::Value;

use super::event::{
    AnnouncedBatch, AuditEvent, AuditVerdict, CallOutcome, DecidedAction, DecidingApprover, LineRetention,
    millis,
};
use super::handle::{Audit, OpenAuditLog};
use super::notes::NotedCall;
use super::redacted;
use crate::approval::action::{Action, ApprovalBatch, CallInFlight, Target};
use crate::approval::decision::{AskedUsers, DecidedBy, Decision, DenialReason};
use crate::approval::provenance::{Label, Provenance};

/// A permitted call. If dropped before its end is recorded, it is recorded as cancelled.
#[derive(Default)]
#[must_use = "a call that is dropped before its end is recorded as cancelled"]
pub(crate) struct OpenCall {
    /// `None` without a log.
    running: Option<RunningCall>,
    /// `None` without a notebook.
    noted: Option<NotedCall>,
    /// Since it was sent.
    in_flight: Option<CallInFlight>,
}

struct RunningCall {
    log: Arc<OpenAuditLog>,
    call: String,
    begun: Instant,
    /// The labels of what the session had read when it ran; `None` if nobody needs to know, or it did not run.
    read: Option<BTreeMap<Label, BTreeSet<String>>>,
}

/// A pending decision about an action. If dropped before it is made, it is recorded as withdrawn.
#[must_use = "a question whose decision is not recorded is recorded as withdrawn"]
pub(in crate::approval) struct PendingDecision {
    action: Arc<Action>,
    /// `None` without a log.
    asking: Option<Asking>,
}

/// An action that a written decision permits.
#[must_use = "a call that is dropped before its end is recorded as cancelled"]
pub(in crate::approval) struct PermittedAction {
    action: Arc<Action>,
    on_record: OpenCall,
}

struct Asking {
    log: Arc<OpenAuditLog>,
    asked: Option<DecidedAction>,
    begun: Instant,
}

impl Audit {
    /// Starts the record of a decision about `action`.
    pub(in crate::approval) fn question(&self, action: Arc<Action>) -> PendingDecision {
        let asking = self.log().map(|log| Asking {
            log: Arc::clone(log),
            asked: Some(asked(log, &action)),
            begun: Instant::now(),
        });
        PendingDecision { action, asking }
    }

    /// Records that a grant was revoked.
    pub(in crate::approval) fn grant_revoked(&self, grant: u64) {
        if let Some(log) = self.log() {
            log.note(&AuditEvent::GrantRevoked { grant });
        }
    }
}

impl PendingDecision {
    /// The id of the call, if there is a log.
    pub(in crate::approval) fn call(&self) -> Option<&str> {
        self.asking.as_ref()?.asked.as_ref().map(|asked| asked.call.as_str())
    }

    /// Writes the decision, and waits until it is written.
    ///
    /// # Errors
    /// The action is denied, or it is permitted and the log cannot be written.
    pub(in crate::approval) async fn decided(
        self,
        decision: &Decision,
    ) -> Result<PermittedAction, DenialReason> {
        let Self { action, asking } = self;
        let written = match asking {
            Some(asking) => asking.decided(&action, decision).await,
            None => Ok(OpenCall::default()),
        };
        decision.outcome.clone()?;
        match written {
            Ok(on_record) => Ok(PermittedAction { action, on_record }),
            Err(error) => Err(DenialReason::Unrecorded { call: action.name(), why: error.to_string() }),
        }
    }
}

impl PermittedAction {
    /// The action, and the record of its call.
    pub(in crate::approval) fn into_parts(self) -> (Arc<Action>, OpenCall) {
        (self.action, self.on_record)
    }
}

impl Asking {
    async fn decided(mut self, action: &Action, decision: &Decision) -> io::Result<OpenCall> {
        let Some(asked) = self.asked.take() else { unreachable!("only this line and its drop take it") };
        let log = &self.log;
        let call = asked.call.clone();
        let by = &decision.by;
        let is_permitted = decision.outcome.is_ok();
        let event = AuditEvent::Decision {
            asked,
            decision: if is_permitted { AuditVerdict::Accepted } else { AuditVerdict::Denied },
            by: by.word(),
            rule: by.rule().map(|rule| redacted::text(&log.redactor, rule)),
            earlier: by.is_earlier(),
            grant: grant(log, by).map(Box::new),
            via: (by.was_asked() || *by == DecidedBy::Consent).then(|| match decision.consulted {
                AskedUsers::Users(Some(via)) => via.word(),
                _ => log.face.answers(),
            }),
            approver: by.approver().map(|decided| {
                let approver = redacted::text(&log.redactor, &decided.by);
                Box::new(DecidingApprover { approver, question: decided.question.clone() })
            }),
            waited_ms: millis(decision.waited),
            reason: decision
                .outcome
                .as_ref()
                .err()
                .map(|denied| redacted::text(&log.redactor, &denied.to_string())),
        };
        // Created before the wait for the write, in which this future may be dropped. A denied call has no
        // end to record.
        let running = RunningCall { log: Arc::clone(log), call, begun: Instant::now(), read: None };
        let mut open = OpenCall { running: is_permitted.then_some(running), noted: None, in_flight: None };
        let written = log.writer.record(&event, keep(log, action, by)).await;
        if let Err(error) = &written
            && error.kind() != io::ErrorKind::TimedOut
        {
            // Without a recorded start, record no end. After a timeout the start may still be written.
            open.running = None;
        }
        written.map(|()| open)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        self.log.note(&AuditEvent::Decision {
            asked,
            decision: AuditVerdict::Denied,
            by: "withdrawal",
            rule: None,
            earlier: false,
            grant: None,
            via: None,
            approver: None,
            waited_ms: millis(self.begun.elapsed()),
            reason: Some("whoever asked did not wait for the answer".to_owned()),
        });
    }
}

impl OpenCall {
    /// Has the end of the call noted for the notebook, too.
    pub(in crate::approval) fn noted_by(mut self, noted: Option<NotedCall>) -> Self {
        self.noted = noted;
        self
    }

    /// The call is sent now, and is in flight until its end is recorded.
    pub(in crate::approval) fn flies(&mut self, in_flight: CallInFlight) {
        self.in_flight = Some(in_flight);
    }

    /// The call runs now, and the session has read data with these labels.
    pub(in crate::approval) fn runs_with(&mut self, read: &BTreeMap<Label, BTreeSet<String>>) {
        if let Some(running) = &mut self.running {
            let server = |server: &String| redacted::text(&running.log.redactor, server);
            let redacted = read.iter().map(|(label, servers)| (*label, servers.iter().map(server).collect()));
            running.read = Some(redacted.collect());
        }
    }

    /// Records that the call did not run, since it was decided about anew.
    pub(in crate::approval) fn decided_anew(mut self) {
        if let Some(noted) = self.noted.take() {
            noted.end("decided_anew", None);
        }
        self.end(CallOutcome::DecidedAnew, &Value::Null);
    }

    /// Records the call's result, made by `value`, which is not called without a log.
    pub(crate) fn result(mut self, value: impl FnOnce() -> Value) {
        if let Some(noted) = self.noted.take() {
            noted.end("result", None);
        }
        if self.running.is_some() {
            self.end(CallOutcome::Result, &value());
        }
    }

    /// The call begins now, and not when it was permitted.
    pub(crate) fn begin(&mut self) {
        if let Some(running) = &mut self.running {
            running.begun = Instant::now();
        }
        if let Some(noted) = &mut self.noted {
            noted.begin();
        }
    }

    /// The kernel runs the action itself: no end is recorded.
    pub(crate) fn leave_to_the_kernel(mut self) {
        (self.running, self.noted) = (None, None);
    }

    /// Records that the call failed, with its error message.
    pub(crate) fn error(mut self, message: &str) {
        if let Some(noted) = self.noted.take() {
            noted.end("error", Some(message));
        }
        self.end(CallOutcome::Error, &Value::from(message));
    }

    fn end(&mut self, outcome: CallOutcome, value: &Value) {
        let Some(RunningCall { log, call, begun, read }) = self.running.take() else { return };
        let (result, result_bytes) = match value {
            Value::String(text) => (redacted::text(&log.redactor, text).into(), text.len()),
            Value::Null => (Value::Null, 0),
            value => redacted::json(&log.redactor, value),
        };
        log.note(&AuditEvent::CallEnded {
            call,
            outcome,
            duration_ms: millis(begun.elapsed()),
            result_bytes,
            result: (log.has_everything() && matches!(outcome, CallOutcome::Result | CallOutcome::Error))
                .then_some(result),
            read,
        });
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(noted) = self.noted.take() {
            noted.end("cancelled", None);
        }
        self.end(CallOutcome::Cancelled, &Value::Null);
    }
}

/// A user's decisions and actions for the client are evidence: code cannot cause them as often as it
/// likes.
fn keep(log: &OpenAuditLog, action: &Action, by: &DecidedBy) -> LineRetention {
    if action.target == Target::Host || by.was_asked() {
        return LineRetention::Evidence;
    }
    // The tool, if the server has one of that name: code may send any name.
    let is_known = action.annotations.is_some() || action.target == Target::Kernel;
    log.keep_of_policy(&action.server_name, is_known.then_some(action.tool_name.as_str()))
}

fn asked(log: &OpenAuditLog, action: &Action) -> DecidedAction {
    let text = |text: &str| redacted::text(&log.redactor, text);
    let cell = match action.target {
        // An action for the client belongs to no cell.
        Target::Host => 0,
        _ => log.running.load(Ordering::Relaxed),
    };
    DecidedAction {
        call: uuid::Uuid::new_v4().to_string(),
        cell: (cell > 0).then_some(cell),
        server: text(&action.server_name),
        tool: text(&action.tool_name),
        target: text(&action.target.to_string()),
        annotations: action.annotations,
        arguments: redacted::json(&log.redactor, &action.tool_args).0,
        provenance: action.known.as_deref().map(|known| Box::new(redacted(log, known))),
        batch: action.batch.as_ref().map(|place| Box::new(announced(log, place.batch()))),
    }
}

/// Code chooses the names of arguments, and of tools that do not exist.
fn redacted(log: &OpenAuditLog, known: &Provenance) -> Provenance {
    let mut known = known.clone();
    for origin in &mut known.origins {
        for name in [&mut origin.argument, &mut origin.server, &mut origin.tool] {
            *name = redacted::text(&log.redactor, name);
        }
    }
    known
}

fn announced(log: &OpenAuditLog, batch: &ApprovalBatch) -> AnnouncedBatch {
    let title = redacted::text(&log.redactor, batch.title());
    AnnouncedBatch { id: batch.id().to_owned(), title, size: batch.size() }
}

/// The grant that decided: its id and what is left of it; all of it where it was given.
fn grant(log: &OpenAuditLog, by: &DecidedBy) -> Option<Value> {
    match by {
        DecidedBy::Granted(given) => Some(redacted::json(&log.redactor, given).0),
        DecidedBy::Grant(used) => Some(redacted::json(&log.redactor, used).0),
        _ => None,
    }
}
