//! The decisions that a session has had, as its audit log has them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::action::{Action, Target};
use super::review::Record;
use super::shown::question;

/// How much of the end of the file is read, in bytes.
const TAIL_BYTES: u64 = 1024 * 1024;

/// How many decisions are returned at most: the newest.
const DECISIONS: usize = 200;

/// How long a call may be, in characters.
const CALL_CHARS: usize = 400;

/// A decision of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastDecision {
    /// When, as in the log.
    pub at: String,
    /// What it was about.
    pub call: String,
    /// How it was decided, and by whom.
    pub how: String,
}

/// The newest decisions of this session in the file of decisions, the newest last. Blocks.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(path: &Path, session: &str) -> io::Result<Vec<PastDecision>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let records = tail.split(|byte| *byte == b'\n').filter_map(Record::read);
    let decisions = records.filter(|record| record.session == session && record.event == "decision");
    let mut decisions: Vec<_> = decisions.map(decided).collect();
    decisions.drain(..decisions.len().saturating_sub(DECISIONS));
    Ok(decisions)
}

fn decided(record: Record) -> PastDecision {
    let decision = record.decision.unwrap_or_default();
    let by = match record.by.as_deref().unwrap_or_default() {
        "policy" => format!("{decision} by the policy"),
        "rule" => format!("{decision} by the policy, {}", record.rule.unwrap_or_default()),
        "once" => "allowed once".to_owned(),
        "session" => "allowed for this session".to_owned(),
        "always" => "allowed always".to_owned(),
        "no" => "denied".to_owned(),
        "consent" => "allowed beforehand".to_owned(),
        "expiry" => "not answered in time".to_owned(),
        "nobody" => "denied: nobody could be asked".to_owned(),
        "withdrawal" => "taken back".to_owned(),
        other => format!("{decision} ({other})"),
    };
    let how = if record.earlier { format!("{by}, by an earlier answer") } else { by };
    let (server_name, tool_name) = (record.server.unwrap_or_default(), record.tool.unwrap_or_default());
    let tool_args = match record.arguments.unwrap_or_default() {
        Value::Object(arguments) => arguments,
        // What was too long for the log.
        other => Map::from_iter([("arguments".to_owned(), other)]),
    };
    let short = format!("{server_name}.{tool_name}(…)");
    let action = Action::new(server_name, tool_name, tool_args, Target::Host);
    let call = question(&action).unwrap_or(short);
    PastDecision { at: record.time, call: crate::ground::text::shortened(&call, CALL_CHARS), how }
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
        ] {
            writeln!(file, "{line}").unwrap();
        }
        let decisions = read(file.path(), "s").unwrap();
        let shown: Vec<_> =
            decisions.iter().map(|each| (each.at.as_str(), each.call.as_str(), each.how.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("1", "mail.send(to='a')", "allowed once, by an earlier answer"),
                ("4", "mail.send(to='a')", "accepted by the policy, rule 1")
            ]
        );
        assert!(read(Path::new("/nowhere/log"), "s").is_err());
    }
}
