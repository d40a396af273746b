//! Labels of servers: what the user thinks of what they return.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The user's opinion of the data of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "policies distinguish them")]
pub enum Label {
    /// Nobody else writes there.
    Trusted,
    /// Strangers can write there: web pages, mails, issues. It may hold instructions for the model.
    Untrusted,
    /// It must not be passed on.
    Confidential,
}

impl Label {
    /// All labels.
    pub const ALL: [Self; 3] = [Self::Trusted, Self::Untrusted, Self::Confidential];

    /// As policies write it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
            Self::Confidential => "confidential",
        }
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.word())
    }
}

impl std::str::FromStr for Label {
    type Err = UnknownLabel;

    fn from_str(word: &str) -> Result<Self, UnknownLabel> {
        Self::ALL.into_iter().find(|label| label.word() == word).ok_or_else(|| UnknownLabel(word.to_owned()))
    }
}

/// A word is no label.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no label; there are `trusted`, `untrusted` and `confidential`")]
pub struct UnknownLabel(String);

/// Servers that have no label of their own, in a policy.
const OTHERS: &str = "*";

/// The labels of servers, by the names under which these are registered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Label>", into = "BTreeMap<String, Label>")]
pub struct ServerLabels {
    named: BTreeMap<String, Label>,
    /// That of servers that have none of their own.
    others: Option<Label>,
}

/// A name is none that a server can have.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no name of a server; labels go by names, and `\"*\"` is every server that is not named")]
pub struct NoName(String);

impl ServerLabels {
    /// The servers that have one of their own.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, Label)> {
        self.named.iter().map(|(server, label)| (server.as_str(), *label))
    }

    /// The label of servers that have none of their own.
    pub(crate) fn of_others(&self) -> Option<Label> {
        self.others
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.others.is_none()
    }

    /// These, and `others` for servers that have none of their own here.
    pub(crate) fn or(mut self, others: Self) -> Self {
        for (server, label) in others.named {
            self.named.entry(server).or_insert(label);
        }
        self.others = self.others.or(others.others);
        self
    }

    /// Gives a server a label of its own, or takes it away.
    pub(crate) fn set(&mut self, server: &str, label: Option<Label>) {
        match label {
            Some(label) => self.named.insert(server.to_owned(), label),
            None => self.named.remove(server),
        };
    }

    /// The label that a server has by its name.
    pub(crate) fn named(&self, server: &str) -> Option<Label> {
        self.named.get(server).copied()
    }

    /// The label of a server.
    pub(crate) fn of(&self, server: &str) -> Option<Label> {
        self.named(server).or(self.others)
    }
}

impl TryFrom<BTreeMap<String, Label>> for ServerLabels {
    type Error = NoName;

    fn try_from(mut named: BTreeMap<String, Label>) -> Result<Self, NoName> {
        let others = named.remove(OTHERS);
        // A pattern that nothing goes by would leave servers without the label that was meant for them.
        match named.keys().find(|name| name.is_empty() || name.contains(['*', '?'])) {
            Some(name) => Err(NoName(name.clone())),
            None => Ok(Self { named, others }),
        }
    }
}

impl From<ServerLabels> for BTreeMap<String, Label> {
    fn from(ServerLabels { mut named, others }: ServerLabels) -> Self {
        named.extend(others.map(|label| (OTHERS.to_owned(), label)));
        named
    }
}
