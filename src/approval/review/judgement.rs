//! The decision that a policy would have made about a call of the past. Pure.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::arguments::{self, shortened};
use crate::approval::action::{Action, ELICITATION, OURSELVES, Target, ToolAnnotations};
use crate::approval::audit::AuditRecord;
use crate::approval::policy::{ApprovalEffect, ApprovalPolicy};
use crate::approval::provenance::Provenance;

/// A call of an audit log or a recording that somebody has decided about.
#[derive(Debug)]
pub(crate) struct JudgedCall {
    pub(crate) server: String,
    pub(crate) tool: String,
    /// An object, or the text of one that was cut.
    pub(crate) arguments: Option<Value>,
    /// The command line or URL behind the name of the server.
    pub(crate) target: String,
    pub(crate) annotations: Option<ToolAnnotations>,
    /// The origins of its arguments; `None` if they are not known.
    pub(crate) provenance: Option<Provenance>,
    pub(crate) is_accepted: bool,
    /// The deciding party, as in the audit log.
    pub(crate) by: String,
}

/// A decision of an audit log.
#[derive(Debug)]
pub(crate) struct LoggedDecision {
    pub(crate) session: String,
    /// The cell that ran; 0 if none did.
    pub(crate) cell: u64,
    pub(crate) call: JudgedCall,
}

/// The judgement of a policy about a call of the past.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PastJudgement {
    /// It would have decided the same.
    Same,
    /// It would have decided otherwise; in words.
    Otherwise(String),
    /// It needs more than is known; why.
    Unknown(&'static str),
}

impl LoggedDecision {
    /// Reads a line of a log; `None` if it is no decision.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let record = AuditRecord::read(line).filter(|record| record.event == "decision")?;
        let is_accepted = record.is_accepted();
        Some(Self {
            session: record.session,
            cell: record.cell.unwrap_or_default(),
            call: JudgedCall {
                server: record.server.unwrap_or_default(),
                tool: record.tool.unwrap_or_default(),
                arguments: record.arguments,
                target: record.target.unwrap_or_default(),
                annotations: record.annotations,
                provenance: record.provenance,
                is_accepted,
                by: record.by.unwrap_or_default(),
            },
        })
    }
}

impl ApprovalPolicy {
    /// Judges a call of the past.
    pub(crate) fn judge_past(&self, call: &JudgedCall) -> PastJudgement {
        let (action, gap) = call.action();
        let gap = gap.filter(|_| self.reads_arguments(&action));
        // What a rule is in doubt about is not what it would have decided.
        let is_unread = action.known.is_none() && self.reads_provenance(&action);
        if let Some(why) = gap.or(is_unread.then_some("it is not known what the session had read")) {
            return PastJudgement::Unknown(why);
        }
        let judgement = self.judge(&action);
        let would = match judgement.effect {
            // A policy can only deny what the user alone can do.
            ApprovalEffect::Allow if action.is_of_client() => ApprovalEffect::Ask,
            effect => effect,
        };
        if would == call.effect() {
            return PastJudgement::Same;
        }
        let was = if call.is_accepted { "permitted" } else { "denied" };
        let would = match would {
            ApprovalEffect::Allow => "allow",
            ApprovalEffect::Ask => "ask",
            ApprovalEffect::Deny => "deny",
        };
        let rule = judgement.rule.map_or_else(|| "its default".to_owned(), |rule| shortened(&rule, 200));
        PastJudgement::Otherwise(format!(
            "was {was} ({}), would be `{would}` by {rule}",
            shortened(&call.by, 40)
        ))
    }
}

impl JudgedCall {
    /// The call as people are shown it.
    pub(crate) fn words(&self) -> String {
        let arguments = arguments::of(self.arguments.as_ref());
        format!("{}.{}({arguments})", shortened(&self.server, 100), shortened(&self.tool, 100))
    }

    /// The effect of the policy of that time: only policies decide without a question.
    fn effect(&self) -> ApprovalEffect {
        match (self.by.as_str(), self.is_accepted) {
            ("policy" | "rule", true) => ApprovalEffect::Allow,
            ("policy" | "rule", false) => ApprovalEffect::Deny,
            _ => ApprovalEffect::Ask,
        }
    }

    /// The action that was decided about, and what is not known of its arguments.
    fn action(&self) -> (Action, Option<&'static str>) {
        let (tool_args, gap) = match &self.arguments {
            Some(Value::Object(arguments)) => {
                let is_redacted = arguments.iter().any(|(name, value)| has_placeholder(name, value));
                (arguments.clone(), is_redacted.then_some("its arguments were redacted"))
            }
            Some(Value::String(_)) => (Map::new(), Some("its arguments were cut")),
            _ => (Map::new(), Some("its arguments are not in the log")),
        };
        let may_be_ours = self.server == OURSELVES || self.tool == ELICITATION;
        let action = Action {
            annotations: self.annotations,
            known: self.provenance.clone().map(Arc::new),
            ..Action::new(
                self.server.clone(),
                self.tool.clone(),
                tool_args,
                target(&self.target, may_be_ours),
            )
        };
        (action, gap)
    }
}

fn target(words: &str, may_be_ours: bool) -> Target {
    if may_be_ours && words == Target::Kernel.to_string() {
        Target::Kernel
    } else if may_be_ours && words == Target::Host.to_string() {
        Target::Host
    } else if words.starts_with("http://") || words.starts_with("https://") {
        Target::Url(words.to_owned())
    } else {
        Target::Command(words.to_owned())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const POLICY: &str = "[[rule]]\ntool = 'read_*'\neffect = 'allow'\n\
        [[rule]]\ntool = 'write'\narguments = [{ pointer = '/text', equals = 'no' }]\neffect = 'deny'\n\
        [[rule]]\ntool = 'write'\neffect = 'allow'\n";

    #[track_caller]
    fn check(tool: &str, arguments: Value, decision: &str, by: &str, expected: &str) {
        let line = json!({"session": "s", "event": "decision", "server": "server", "tool": tool, "target": "x",
                          "arguments": arguments, "decision": decision, "by": by});
        let logged = LoggedDecision::read(line.to_string().as_bytes()).unwrap();
        let words = match ApprovalPolicy::parse(POLICY).unwrap().judge_past(&logged.call) {
            PastJudgement::Same => "same".to_owned(),
            PastJudgement::Otherwise(words) => words,
            PastJudgement::Unknown(why) => why.to_owned(),
        };
        assert!(words.starts_with(expected), "{line}: {words}");
    }

    #[test]
    fn decisions_of_the_past_are_compared_with_those_of_a_policy() {
        check("read_a", json!({}), "accepted", "policy", "same");
        check("read_a", json!({}), "accepted", "once", "was permitted (once), would be `allow` by rule 1");
        check(
            "write",
            json!({"text": "no"}),
            "accepted",
            "rule",
            "was permitted (rule), would be `deny` by rule 2",
        );
        check("write", json!({"text": "yes"}), "accepted", "rule", "same");
        check("write", json!({"text": "${KEY}"}), "accepted", "rule", "its arguments were redacted");
        check(
            "write",
            json!("{\"text\":\"… [70000 bytes in all]"),
            "accepted",
            "rule",
            "its arguments were cut",
        );
        check("read_b", json!("{… [70000 bytes in all]"), "accepted", "rule", "same");
        check("other", json!({}), "denied", "rule", "was denied (rule), would be `ask`");
        check("other", json!({}), "denied", "no", "same");
        check("elicitation/create", json!({}), "accepted", "once", "same");
    }

    #[test]
    fn only_decisions_are_read() {
        assert!(LoggedDecision::read(b"{\"session\":\"s\",\"event\":\"cell_started\"}").is_none());
        assert!(LoggedDecision::read(b"no log").is_none());
    }
}
