//! The table `[actions]` of the configuration.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// The largest number of approvers.
const MOST: usize = 100;

/// Actions that users publish for everybody.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionTable {
    /// Those who decide about each version: `group:NAME`, `group:ISSUER NAME` or `user:ISSUER SUBJECT`, one or a list.
    #[serde(deserialize_with = "approvers")]
    pub approver: Vec<String>,
    /// Users may decide about their own actions. Default: `false`.
    #[serde(default)]
    pub self_approval: bool,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an approver, as \"group:finance\", or a list of approvers")]
enum ApproverNames {
    One(String),
    More(Vec<String>),
}

fn approvers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = match ApproverNames::deserialize(deserializer)? {
        ApproverNames::One(name) => vec![name],
        ApproverNames::More(names) => names,
    };
    if names.is_empty() || names.len() > MOST {
        return Err(D::Error::custom(format!("there are 1 to {MOST} approvers")));
    }
    match names.iter().find(|name| !is_approver(name)) {
        Some(name) => Err(D::Error::custom(format!(
            "{name:?} is no approver: write `group:NAME`, `group:ISSUER NAME` or `user:ISSUER SUBJECT`"
        ))),
        None => Ok(names),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approvers_are_named_as_in_policies() {
        let parse = |text: &str| toml::from_str::<ActionTable>(text);
        assert_eq!(parse("approver = 'group:a'").unwrap().approver, ["group:a"]);
        let two = parse("approver = ['group:a b', 'user:local ann']\nself_approval = true").unwrap();
        assert!(two.self_approval && two.approver.len() == 2);
        for wrong in
            ["", "approver = []", "approver = 'ann'", "approver = 'user:ann'", "approver = 'group: '"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("approver = 'group:a'\nself_aproval = true").is_err());
    }
}
