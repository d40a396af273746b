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
    /// As policies write it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
            Self::Confidential => "confidential",
        }
    }
}

/// The labels of servers, by the names under which these are registered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, Label>);

impl Labels {
    /// All servers that have one.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, Label)> {
        self.0.iter().map(|(server, label)| (server.as_str(), *label))
    }

    /// The label of a server.
    pub(crate) fn of(&self, server: &str) -> Option<Label> {
        self.0.get(server).copied()
    }
}
