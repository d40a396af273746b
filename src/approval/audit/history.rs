//! The decisions that a session has had, as its audit log has them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::reading::AuditRecord;
use crate::approval::action::Action;
use crate::approval::decision::{DecidedBy, Decision};
use crate::ground::text::{rfc3339, shortened};

/// The part of the end of the file that is read, in bytes.
const TAIL_BYTES: u64 = 1024 * 1024;

/// The most decisions that are returned: the newest.
const DECISIONS: usize = 200;

/// The part of a text in the arguments that is kept, in characters.
const TEXT_CHARS: usize = 400;

/// A decision of the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastDecision {
    /// When, as in the log.
    pub at: String,
    /// The server of the call.
    pub server: String,
    /// Its tool.
    pub tool: String,
    /// Its arguments, of which long texts are shortened.
    pub arguments: Map<String, Value>,
    /// The way it was decided, and by whom.
    pub how: String,
}

impl PastDecision {
    /// A decision about `action` that has just been made.
    pub(crate) fn made_now(action: &Action, how: String) -> Self {
        Self {
            at: rfc3339(SystemTime::now()),
            server: action.server_name.clone(),
            tool: action.tool_name.clone(),
            arguments: action.tool_args.iter().map(|(name, value)| (name.clone(), brief(value))).collect(),
            how,
        }
    }
}

/// A value with short texts.
fn brief(value: &Value) -> Value {
    match value {
        Value::String(text) => shortened(text, TEXT_CHARS).into(),
        Value::Array(items) => items.iter().map(brief).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, member)| (shortened(key, TEXT_CHARS), brief(member))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The way a call was decided, in words for people.
pub(in crate::approval) fn in_words(decision: &Decision) -> String {
    let Decision { outcome, by, .. } = decision;
    let grant = match by {
        DecidedBy::Grant(used) => Some(used.id),
        DecidedBy::Granted(given) => Some(given.id),
        _ => None,
    };
    if let Some(decided) = by.approver() {
        return by_approver(outcome.is_ok(), &decided.by);
    }
    let how = how(by.word(), outcome.is_ok(), by.rule(), grant);
    if by.is_earlier() { by_earlier_answer(how) } else { how }
}

/// The same, of a decision as the log has it.
fn how(by: &str, is_permitted: bool, rule: Option<&str>, grant: Option<u64>) -> String {
    let verdict = if is_permitted { "allowed" } else { "denied" };
    match by {
        "policy" => format!("{verdict} by the policy"),
        "rule" => format!("{verdict} by the policy, {}", rule.unwrap_or_default()),
        "once" => "allowed once".to_owned(),
        "session" => "allowed for this session".to_owned(),
        "always" => "allowed always".to_owned(),
        "grant" => grant.map_or("allowed by a grant".to_owned(), |id| format!("allowed by grant {id}")),
        "no" => "denied".to_owned(),
        "consent" => "allowed beforehand".to_owned(),
        "expiry" => "not answered in time".to_owned(),
        "nobody" => "denied: nobody could be asked".to_owned(),
        "withdrawal" => "taken back".to_owned(),
        other => format!("{verdict} ({other})"),
    }
}

fn by_approver(is_permitted: bool, approver: &str) -> String {
    format!("{} by {approver}", if is_permitted { "allowed" } else { "denied" })
}

fn by_earlier_answer(how: String) -> String {
    if how.contains("grant") { how } else { format!("{how}, by an earlier answer") }
}

/// The newest decisions of this session in the file of decisions, the newest last. Blocks.
///
/// # Errors
/// The file cannot be read.
pub(in crate::approval) fn read(path: &Path, session: &str) -> io::Result<Vec<PastDecision>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let records = tail.split(|byte| *byte == b'\n').filter_map(AuditRecord::read);
    let decisions = records.filter(|record| record.session == session && record.event == "decision");
    let mut decisions: Vec<_> = decisions.map(decided).collect();
    decisions.drain(..decisions.len().saturating_sub(DECISIONS));
    Ok(decisions)
}

fn decided(record: AuditRecord) -> PastDecision {
    let is_permitted = record.decision.as_deref() == Some("accepted");
    let grant = record.grant.as_ref().and_then(|grant| grant["id"].as_u64());
    let how = match &record.approver {
        Some(approver) => by_approver(is_permitted, approver),
        None => how(record.by.as_deref().unwrap_or_default(), is_permitted, record.rule.as_deref(), grant),
    };
    let arguments = match brief(&record.arguments.unwrap_or_default()) {
        Value::Object(arguments) => arguments,
        // What was too long for the log.
        other => Map::from_iter([("arguments".to_owned(), other)]),
    };
    PastDecision {
        at: record.time,
        server: record.server.unwrap_or_default(),
        tool: record.tool.unwrap_or_default(),
        arguments,
        how: if record.earlier { by_earlier_answer(how) } else { how },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_decisions_of_a_session_are_read_and_nothing_else() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let decision = r#""event":"decision","server":"mail","tool":"send","arguments":{"to":"a"},"decision":"accepted""#;
        for line in [
            "half a line\"}".to_owned(),
            format!(r#"{{"time":"1","session":"s",{decision},"by":"once","earlier":true,"waited_ms":1}}"#),
            format!(r#"{{"time":"2","session":"other",{decision},"by":"once"}}"#),
            r#"{"time":"3","session":"s","event":"cell_started","cell":1}"#.to_owned(),
            format!(r#"{{"time":"4","session":"s",{decision},"by":"rule","rule":"rule 1"}}"#),
            format!(
                r#"{{"time":"5","session":"s",{decision},"by":"grant","grant":{{"id":3,"left":2}},"earlier":true}}"#
            ),
        ] {
            writeln!(file, "{line}").unwrap();
        }
        let decisions = read(file.path(), "s").unwrap();
        let shown: Vec<_> =
            decisions.iter().map(|each| (each.at.as_str(), each.tool.as_str(), each.how.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("1", "send", "allowed once, by an earlier answer"),
                ("4", "send", "allowed by the policy, rule 1"),
                ("5", "send", "allowed by grant 3"),
            ]
        );
        assert_eq!(Value::Object(decisions[0].arguments.clone()), serde_json::json!({"to": "a"}));
        assert!(read(Path::new("/nowhere/log"), "s").is_err());
    }
}
