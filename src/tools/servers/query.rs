//! What code asks of a lookup to find tools.

use serde::Deserialize;

/// How many tools an answer has if nothing else is asked for.
pub(crate) const LIMIT: usize = 8;

/// A search for tools.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Query {
    /// What the tool should do, in words. Without words, the answer lists the servers, or the groups of a server's tools.
    pub query: String,
    /// The server to search, by its name; all if it is `None`.
    #[serde(default)]
    pub server: Option<String>,
    /// The most tools in the answer, 1 to 50; default: 8.
    #[serde(default = "default_limit")]
    pub limit: usize,
    /// How much the answer says of a tool.
    #[serde(default)]
    pub detail: Detail,
}

/// How much an answer says of each tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Detail {
    /// Its name, and what it does.
    Names,
    /// The call in one line, with types and defaults.
    #[default]
    Signature,
    /// What `print(module)` shows: parameters with explanations, and the result's fields.
    Module,
}

impl Query {
    /// A search with the default limit and detail in all servers.
    pub fn new(query: impl Into<String>) -> Self {
        Self { query: query.into(), server: None, limit: LIMIT, detail: Detail::default() }
    }
}

fn default_limit() -> usize {
    LIMIT
}
