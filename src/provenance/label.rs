//! Labels of servers: what the user thinks of what they return.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the user thinks of the data of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "policies tell them apart")]
pub enum Label {
    /// Nobody else writes there.
    Trusted,
    /// Strangers can write there: web pages, mails, issues. It may hold instructions for the model.
    Untrusted,
    /// It must not get elsewhere.
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

/// The labels of servers, by the names under which these are registered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, Label>);

impl Labels {
    /// All servers that have one.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, Label)> {
        self.0.iter().map(|(server, label)| (server.as_str(), *label))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These, and `others` for servers that have none here.
    pub(crate) fn or(mut self, others: Self) -> Self {
        for (server, label) in others.0 {
            self.0.entry(server).or_insert(label);
        }
        self
    }

    /// Gives a server a label, or takes it away.
    pub(crate) fn set(&mut self, server: &str, label: Option<Label>) {
        match label {
            Some(label) => self.0.insert(server.to_owned(), label),
            None => self.0.remove(server),
        };
    }

    /// The label of a server.
    pub(crate) fn of(&self, server: &str) -> Option<Label> {
        self.0.get(server).copied()
    }
}
