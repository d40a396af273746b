//! The approvers that a rule names: people other than the session's user.

use serde::{Deserialize, Deserializer, Serialize};

/// The longest list of approvers.
const MOST: usize = 100;

/// The people who decide about an action instead of the session's user: any of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NamedApprovers {
    /// `group:NAME`, `group:ISSUER NAME` or `user:ISSUER SUBJECT`.
    pub(crate) names: Vec<String>,
    /// Whether the session's user counts, if named.
    pub(crate) includes_user: bool,
}

impl std::fmt::Display for NamedApprovers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.names.join(" or "))
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an approver, as \"group:finance\", or a list of approvers")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// The names in a rule: one, or a list of them.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let names = match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One(name) => vec![name],
        OneOrMore::More(names) => names,
    };
    let wrong = |words: String| Err(serde::de::Error::custom(words));
    if names.is_empty() || names.len() > MOST {
        return wrong(format!("a rule has 1 to {MOST} approvers"));
    }
    match names.iter().find(|name| !is_approver(name)) {
        Some(name) => wrong(format!(
            "{name:?} is no approver: write `group:NAME`, `group:ISSUER NAME` or `user:ISSUER SUBJECT`"
        )),
        None => Ok(Some(names)),
    }
}

fn is_approver(name: &str) -> bool {
    let is_plain = |text: &str| !text.trim().is_empty() && !text.chars().any(char::is_control);
    match name.split_once(':') {
        Some(("group", group)) => is_plain(group),
        Some(("user", user)) => {
            user.split_once(' ').is_some_and(|(issuer, subject)| is_plain(issuer) && is_plain(subject))
        }
        _ => false,
    }
}
