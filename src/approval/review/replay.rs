//! The decisions of a policy about the calls of a log.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::tally::{by, name, time};
use super::{AuditFilter, arguments};
use crate::approval::action::{Action, ELICITATION, OURSELVES, Target};
use crate::approval::audit::AuditRecord;
use crate::approval::policy::{ApprovalEffect, ApprovalPolicy};

/// The number of differences that are listed.
const LISTED: usize = 1_000;

/// The result of replaying calls through a policy.
#[derive(Debug, Serialize)]
pub(super) struct PolicyReplay {
    #[serde(skip)]
    policy: ApprovalPolicy,
    /// Decisions that the policy would have made too.
    pub(super) same: u64,
    /// Decisions that it would have made otherwise.
    pub(super) different: u64,
    /// Calls that it would have decided about by arguments which the log has not whole.
    pub(super) unknown: u64,
    pub(super) differences: Vec<ReplayDifference>,
    pub(super) unknowns: Vec<UnknownCall>,
}

/// A decision that the policy would have made otherwise.
#[derive(Debug, Serialize)]
pub(super) struct ReplayDifference {
    #[serde(flatten)]
    pub(super) call: LoggedCall,
    /// `permitted` or `denied`.
    pub(super) was: &'static str,
    pub(super) by: String,
    /// `allow`, `ask` or `deny`.
    pub(super) would: &'static str,
    pub(super) rule: Option<String>,
}

/// A call about which the log does not say enough.
#[derive(Debug, Serialize)]
pub(super) struct UnknownCall {
    #[serde(flatten)]
    pub(super) call: LoggedCall,
    pub(super) why: &'static str,
}

/// A call of the log.
#[derive(Debug, Serialize)]
pub(super) struct LoggedCall {
    pub(super) time: String,
    pub(super) session: String,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) arguments: String,
}

/// The log is of an earlier version, or of a session in which nobody needed to know.
const UNREAD: &str = "the log does not say what the session had read";

impl PolicyReplay {
    pub(super) fn new(policy: ApprovalPolicy) -> Self {
        let differences = Vec::new();
        let unknowns = Vec::new();
        Self { policy, same: 0, different: 0, unknown: 0, differences, unknowns }
    }

    pub(super) fn add(&mut self, record: &AuditRecord, filter: &AuditFilter) {
        if record.event != "decision" || !filter.has(record) {
            return;
        }
        let (action, gap) = action(record);
        let gap = gap.filter(|_| self.policy.reads_arguments(&action));
        // What a rule is in doubt about is not what it would have decided.
        let is_unread = action.known.is_none() && self.policy.reads_provenance(&action);
        if let Some(why) = gap.or(is_unread.then_some(UNREAD)) {
            self.unknown += 1;
            if self.unknowns.len() < LISTED {
                self.unknowns.push(UnknownCall { call: call(record), why });
            }
            return;
        }
        let judgement = self.policy.judge(&action);
        let would = match judgement.effect {
            // A policy can only deny what the user alone can do.
            ApprovalEffect::Allow if action.is_of_client() => ApprovalEffect::Ask,
            effect => effect,
        };
        if would == effect(record) {
            self.same += 1;
            return;
        }
        self.different += 1;
        if self.differences.len() < LISTED {
            self.differences.push(ReplayDifference {
                call: call(record),
                was: if record.is_accepted() { "permitted" } else { "denied" },
                by: by(record),
                would: word(would),
                rule: judgement.rule.as_deref().map(|rule| arguments::shortened(rule, 200)),
            });
        }
    }
}

/// The effect of the policy of that time: only policies decide without a question.
fn effect(record: &AuditRecord) -> ApprovalEffect {
    match (record.by.as_deref(), record.is_accepted()) {
        (Some("policy" | "rule"), true) => ApprovalEffect::Allow,
        (Some("policy" | "rule"), false) => ApprovalEffect::Deny,
        _ => ApprovalEffect::Ask,
    }
}

fn word(effect: ApprovalEffect) -> &'static str {
    match effect {
        ApprovalEffect::Allow => "allow",
        ApprovalEffect::Ask => "ask",
        ApprovalEffect::Deny => "deny",
    }
}

/// The action that was decided about, and what is not known of its arguments.
fn action(record: &AuditRecord) -> (Action, Option<&'static str>) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let server_name = text(&record.server);
    let tool_name = text(&record.tool);
    let (tool_args, gap) = match &record.arguments {
        Some(Value::Object(arguments)) => {
            let is_redacted = arguments.iter().any(|(name, value)| has_placeholder(name, value));
            (arguments.clone(), is_redacted.then_some("its arguments were redacted"))
        }
        Some(Value::String(_)) => (Map::new(), Some("its arguments were cut")),
        _ => (Map::new(), Some("its arguments are not in the log")),
    };
    let target = target(text(&record.target), server_name == OURSELVES || tool_name == ELICITATION);
    let known = record.provenance.clone().map(Arc::new);
    let action = Action {
        annotations: record.annotations,
        known,
        ..Action::new(server_name, tool_name, tool_args, target)
    };
    (action, gap)
}

fn target(words: String, may_be_ours: bool) -> Target {
    if may_be_ours && words == Target::Kernel.to_string() {
        Target::Kernel
    } else if may_be_ours && words == Target::Host.to_string() {
        Target::Host
    } else if words.starts_with("http://") || words.starts_with("https://") {
        Target::Url(words)
    } else {
        Target::Command(words)
    }
}

/// Whether a `${NAME}` may be in the place of a secret.
fn has_placeholder(name: &str, value: &Value) -> bool {
    let text = |text: &str| text.split_once("${").is_some_and(|(_, rest)| rest.contains('}'));
    text(name)
        || match value {
            Value::String(value) => text(value),
            Value::Array(values) => values.iter().any(|value| has_placeholder("", value)),
            Value::Object(fields) => fields.iter().any(|(name, value)| has_placeholder(name, value)),
            _ => false,
        }
}

fn call(record: &AuditRecord) -> LoggedCall {
    LoggedCall {
        time: time(record),
        session: arguments::shortened(&record.session, 64),
        server: name(&record.server),
        tool: name(&record.tool),
        arguments: arguments::of(record.arguments.as_ref()),
    }
}
