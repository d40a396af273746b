//! The origins of the data in a call.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::label::Label;

/// The origin of data in an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The argument, by its name; `tool name` for the name of the tool, which code chooses too.
    pub argument: String,
    /// The server that has returned the data.
    pub server: String,
    /// Its tool; `another tool` if the session has called too many to distinguish them.
    pub tool: String,
    /// The label of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// The amount that has been found.
    pub found: Found,
}

impl Origin {
    /// The name of the tool, as if it were an argument.
    pub(crate) const TOOL_NAME: &str = "tool name";

    /// The strictness of its label, for what matters most to come first.
    pub(crate) fn strictness(&self) -> Option<Label> {
        self.label.filter(|label| *label != Label::Trusted)
    }
}

/// The data that has been found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Found {
    /// So many short values: numbers, addresses, identifiers.
    Values(usize),
    /// About so many bytes of text.
    Bytes(usize),
}

/// The origins of the data that a call would send.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Provenance {
    /// Evidence: what its arguments have in common with results; those with the strictest label first, then the most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Origin>,
    /// Certain: the labels of the servers that the session has called, and so could read from. Those of calls that come before
    /// it in the same batch are among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub read: BTreeMap<Label, BTreeSet<String>>,
    /// Why the call is asked about again, although it was permitted; `None` if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_again: Option<String>,
    /// The times that labels had been given to servers.
    #[serde(skip)]
    pub(crate) relabelled: u64,
}

impl Provenance {
    /// Whether the session has read data with this label.
    pub(crate) fn is_tainted_by(&self, label: Label) -> bool {
        self.read.contains_key(&label)
    }

    /// The labels that `other` has and this has not, of what the session has read and of what is in the arguments. Trusted data
    /// is no reason to ask anybody again.
    pub(crate) fn lacks(&self, other: &Self) -> BTreeSet<Label> {
        let read = other.read.keys().copied().filter(|label| !self.is_tainted_by(*label));
        let contained = other.labels().filter(|label| !self.contains_from(*label));
        read.chain(contained).filter(|label| *label != Label::Trusted).collect()
    }

    /// The labels of what its arguments have, as far as can be seen.
    pub(crate) fn labels(&self) -> impl Iterator<Item = Label> {
        self.origins.iter().filter_map(|origin| origin.label)
    }

    /// Whether an argument has data with this label, as far as can be seen.
    pub(crate) fn contains_from(&self, label: Label) -> bool {
        self.labels().any(|other| other == label)
    }
}
