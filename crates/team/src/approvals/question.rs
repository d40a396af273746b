//! A question that waits, and the people who may answer it.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::actions::ActionTable;
use crate::login::{LOCAL_ISSUER, TeamUser, UserIdentity};
use crate::users::user_key;

/// The rule that names the approvers of published actions.
const PUBLISHING: &str = "`[actions]` of the server";

/// The user in whose session a question waits.
#[derive(Debug, Clone)]
pub(crate) struct QuestionAsker {
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) identity: UserIdentity,
}

/// A question of a session to the approvers that a rule names, as the session sends it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AskedApproval {
    /// The session's id of it, which no other question has.
    pub(crate) question: String,
    approvers: Vec<String>,
    includes_user: bool,
    rule: String,
    left_ms: u64,
    /// The call, which is shown and not understood.
    call: Map<String, Value>,
    /// More about it, as the server knows.
    #[serde(skip)]
    note: Option<String>,
}

/// Those who may answer.
pub(crate) enum QuestionFor {
    /// The user in whose session it waits.
    Asker {
        /// The session's number of the question.
        number: u64,
    },
    /// The approvers that a rule names.
    Approvers(Box<AskedApproval>),
}

/// A question that waits.
pub(crate) struct WaitingQuestion {
    pub(crate) number: u64,
    pub(crate) asker: QuestionAsker,
    /// The id of the session.
    pub(crate) session: String,
    pub(crate) is_for: QuestionFor,
    /// The message of the session about it, as for any page.
    message: Map<String, Value>,
    until: Option<Instant>,
    /// Takes lines for the session.
    pub(crate) answers: mpsc::Sender<Value>,
}

impl AskedApproval {
    /// Distinguishes the call, and those who are to decide, from all others.
    pub(crate) fn digest(&self) -> String {
        let text = json!([self.approvers, self.includes_user, self.rule, self.call]).to_string();
        format!("{:x}", Sha256::digest(text))
    }

    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    pub(crate) fn approvers(&self) -> &[String] {
        &self.approvers
    }

    /// A text of the call: the name of its server, or of its tool.
    pub(crate) fn name(&self, key: &str) -> &str {
        self.call.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn arguments(&self) -> Option<&Value> {
        self.call.get("arguments")
    }

    /// Whether an action is to be published, which the server does.
    pub(crate) fn is_publication(&self) -> bool {
        self.name("server") == "ipybox" && self.name("tool") == "publish_action"
    }

    /// A question about publishing, as the server puts it: the session says neither who decides nor more than what is published.
    pub(crate) fn about_publication(self, table: &ActionTable, note: Option<String>) -> Self {
        let is_kept = |name: &str| matches!(name, "server" | "tool" | "arguments");
        let mut call: Map<String, Value> = self.call.into_iter().filter(|(name, _)| is_kept(name)).collect();
        call.insert("behind".to_owned(), "host".into());
        let approvers = table.approver.clone();
        Self {
            approvers,
            includes_user: table.self_approval,
            rule: PUBLISHING.to_owned(),
            call,
            note,
            ..self
        }
    }

    /// More about it, which those who answer see.
    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    pub(crate) fn left(&self) -> Duration {
        Duration::from_millis(self.left_ms)
    }

    /// Whether this is one of the approvers.
    fn names(&self, user: &TeamUser) -> bool {
        self.approvers.iter().any(|approver| match approver.split_once(':') {
            Some(("group", group)) => has_group(user, group),
            Some(("user", name)) => {
                name.split_once(' ') == Some((&user.identity.issuer, &user.identity.subject))
            }
            _ => false,
        })
    }
}

/// Whether a user has a group, named as in a rule: `NAME`, or `ISSUER NAME` for the group of one issuer.
fn has_group(user: &TeamUser, group: &str) -> bool {
    match group.split_once(' ') {
        Some((issuer, name)) if issuer == LOCAL_ISSUER || issuer.contains("://") => {
            user.identity.issuer == issuer && user.groups.contains(name)
        }
        _ => user.groups.contains(group),
    }
}

impl WaitingQuestion {
    /// A question to approvers.
    pub(crate) fn to_approvers(
        asked: AskedApproval,
        asker: QuestionAsker,
        session: String,
        answers: mpsc::Sender<Value>,
    ) -> Self {
        let mut call = asked.call.clone();
        let QuestionAsker { name, identity, .. } = &asker;
        let mut about =
            format!("{name} ({identity}) asks, and {} names {}", asked.rule, asked.approvers.join(" or "));
        if let Some(note) = &asked.note {
            about.push_str(&format!("; {note}"));
        }
        call.insert("asker".to_owned(), about.into());
        let message = json!({
            "hear": "question",
            "text": "",
            "call": call,
            "scope": "Your answer is about this call, and no other.",
        });
        let until = Instant::now().checked_add(asked.left());
        let is_for = QuestionFor::Approvers(Box::new(asked));
        Self { number: 0, asker, session, is_for, message: object(message), until, answers }
    }

    /// A question to the user in whose session it waits, as the session has put it; `None` if it is none.
    pub(crate) fn to_asker(
        mut message: Map<String, Value>,
        asker: QuestionAsker,
        session: String,
        answers: mpsc::Sender<Value>,
    ) -> Option<Self> {
        let number = message.get("question")?.as_u64()?;
        let left = message.get("left_ms").and_then(Value::as_u64);
        // It is for questions of other people.
        message.get_mut("call")?.as_object_mut()?.remove("asker");
        let until = left.and_then(|left| Instant::now().checked_add(Duration::from_millis(left)));
        let is_for = QuestionFor::Asker { number };
        Some(Self { number: 0, asker, session, is_for, message, until, answers })
    }

    /// The same, with the server's number of it.
    pub(crate) fn numbered(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// Whether it is about an action that is to be published.
    pub(crate) fn is_publication(&self) -> bool {
        matches!(&self.is_for, QuestionFor::Approvers(asked) if asked.is_publication())
    }

    /// Whether this user may answer it.
    pub(crate) fn is_for(&self, user: &TeamUser) -> bool {
        let is_asker = user_key(&user.identity) == self.asker.key;
        match &self.is_for {
            QuestionFor::Asker { .. } => is_asker,
            // Four eyes, unless the rule says otherwise.
            QuestionFor::Approvers(asked) => (asked.includes_user || !is_asker) && asked.names(user),
        }
    }

    /// The message about it, for a page.
    pub(crate) fn message(&self) -> Value {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()).as_millis());
        let mut message = self.message.clone();
        message.insert("question".to_owned(), self.number.into());
        message.insert("left_ms".to_owned(), left.and_then(|left| u64::try_from(left).ok()).into());
        message.into()
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::login::ClaimedName;

    fn user(issuer: &str, subject: &str, groups: &[&str]) -> TeamUser {
        let identity = UserIdentity { issuer: issuer.to_owned(), subject: subject.to_owned() };
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        TeamUser {
            identity,
            name: subject.to_owned(),
            hub_user: ClaimedName { claim: "sub".to_owned(), value: subject.to_owned() },
            groups,
            scopes: BTreeSet::new(),
            expires_at: None,
        }
    }

    fn asked(approvers: &[&str], includes_user: bool) -> WaitingQuestion {
        let ann = user("local", "ann", &[]);
        let asker =
            QuestionAsker { key: user_key(&ann.identity), name: "ann".to_owned(), identity: ann.identity };
        let asked = json!({
            "question": "q", "approvers": approvers, "includes_user": includes_user, "rule": "rule 1",
            "left_ms": 1000, "call": {"server": "s", "tool": "t", "asker": "nobody"},
        });
        let asked = serde_json::from_value(asked).unwrap();
        WaitingQuestion::to_approvers(asked, asker, "s".to_owned(), mpsc::channel(1).0)
    }

    #[test]
    fn approvers_are_named_by_group_or_as_users() {
        let question = asked(&["group:finance", "user:https://id.example carl x", "group:Big Sales"], false);
        assert!(question.is_for(&user("local", "fay", &["finance"])));
        assert!(question.is_for(&user("https://id.example", "carl x", &[])));
        assert!(question.is_for(&user("https://other.example", "gus", &["Big Sales"])));
        for other in [
            user("local", "bob", &["finances", "group:finance"]),
            user("local", "carl x", &[]),
            user("https://id.example", "carl", &["x"]),
            user("local", "finance", &[]),
        ] {
            assert!(!question.is_for(&other), "{other:?}");
        }
    }

    #[test]
    fn a_group_of_one_issuer_is_not_that_of_another() {
        for issuer in ["https://id.example", "local"] {
            let approver = format!("group:{issuer} finance");
            let question = asked(&[&approver], false);
            assert!(question.is_for(&user(issuer, "fay", &["finance"])));
            let named_so = &approver["group:".len()..];
            for other in [
                user("https://evil.example", "eve", &["finance", named_so]),
                user(issuer, "bob", &[named_so]),
            ] {
                assert!(!question.is_for(&other), "{other:?}");
            }
        }
    }

    #[test]
    fn nobody_approves_an_own_call_unless_the_rule_says_so() {
        let ann = user("local", "ann", &["finance"]);
        assert!(!asked(&["group:finance", "user:local ann"], false).is_for(&ann));
        assert!(asked(&["group:finance"], true).is_for(&ann));
        assert!(!asked(&["group:finance"], true).is_for(&user("local", "ann", &[])));
    }

    #[test]
    fn the_session_says_nothing_about_what_is_published_but_what_it_is() {
        let asked = json!({
            "question": "q", "approvers": ["user:local eve"], "includes_user": true, "rule": "a rule of mine", "left_ms": 1,
            "note": "harmless", "call": {
                "server": "ipybox", "tool": "publish_action", "arguments": {"name": "x"}, "changes": "no change", "behind": "kernel",
            },
        });
        let asked: AskedApproval = serde_json::from_value(asked).unwrap();
        assert!(asked.is_publication());
        let table = ActionTable { approver: vec!["group:finance".to_owned()], self_approval: false };
        let asked = asked.about_publication(&table, Some("it is new".to_owned()));
        let call = json!({"server": "ipybox", "tool": "publish_action", "arguments": {"name": "x"}, "behind": "host"});
        assert_eq!(Value::Object(asked.call.clone()), call);
        let first = asked.digest();
        let ann = user("local", "ann", &["finance"]);
        let asker = QuestionAsker {
            key: user_key(&ann.identity),
            name: "ann".to_owned(),
            identity: ann.identity.clone(),
        };
        let question =
            WaitingQuestion::to_approvers(asked.clone(), asker, "s".to_owned(), mpsc::channel(1).0);
        assert!(!question.is_for(&ann) && !question.is_for(&user("local", "eve", &[])));
        assert!(question.is_for(&user("local", "fay", &["finance"])));
        let words = "ann (ann at local) asks, and `[actions]` of the server names group:finance; it is new";
        assert_eq!(question.message()["call"]["asker"], words);
        assert_eq!(asked.about_publication(&table, None).digest(), first);
    }

    #[test]
    fn the_session_does_not_say_who_asks() {
        let message = asked(&["group:finance"], false).message();
        assert_eq!(message["call"]["asker"], "ann (ann at local) asks, and rule 1 names group:finance");
    }
}
