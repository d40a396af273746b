//! The query of code to a lookup to find tools.

use serde::Deserialize;

/// The number of tools of an answer if nothing else is asked for.
pub(crate) const LIMIT: usize = 8;

/// A search for tools.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SearchQuery {
    /// The task of the tool, in words. Without words, the answer lists the servers, or the groups of a server's tools.
    pub query: String,
    /// The server to search, by its name; all if it is `None`.
    #[serde(default)]
    pub server: Option<String>,
    /// The most tools in the answer, 1 to 50; default: 8. One alone is explained: its parameters, and the fields of its result.
    #[serde(default = "default_limit")]
    pub limit: usize,
}

impl SearchQuery {
    /// A search with the default limit in all servers.
    pub fn new(query: impl Into<String>) -> Self {
        Self { query: query.into(), server: None, limit: LIMIT }
    }
}

fn default_limit() -> usize {
    LIMIT
}
