//! Finds tools of registered servers by words, and says how they are called; pure.
//!
//! ```text
//! tool  → entry: its words, and the texts that answers show → index: BM25
//! query → index → the best entries → answer: a text within bounds
//! ```
//!
//! `words` splits texts, and `groups` says in few words which tools there are.

mod answer;
mod entry;
mod groups;
mod index;
#[cfg(test)]
mod tests;
mod words;

use serde::Deserialize;

pub(crate) use self::groups::calls_of;
pub use self::index::Index;

/// The longest query, in bytes: it is a few words.
const QUERY_BYTES: usize = 1024;
/// The most tools that an answer can be asked for.
const LIMIT_MAX: usize = 50;
/// How many tools an answer has if nothing else is asked for.
const LIMIT: usize = 8;

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

/// Why a search has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query is no few words.
    #[error("search tools: the query has more than {QUERY_BYTES} bytes")]
    Long,
    /// The number of tools is out of bounds.
    #[error("search tools: `limit` must be 1 to {LIMIT_MAX}, not {0}")]
    Limit(usize),
    /// No server of this name is registered.
    #[error("search tools: no MCP server is registered as `{name}`{hint}")]
    UnknownServer {
        /// The name in the query.
        name: String,
        /// What may have been meant.
        hint: String,
    },
    /// The registrations could not be read.
    #[error("read the registered MCP servers")]
    Store(#[source] std::io::Error),
}

impl Query {
    /// A search with the default limit and detail in all servers.
    pub fn new(query: impl Into<String>) -> Self {
        Self { query: query.into(), server: None, limit: LIMIT, detail: Detail::default() }
    }

    fn check(&self) -> Result<(), Error> {
        if self.query.len() > QUERY_BYTES {
            Err(Error::Long)
        } else if !(1..=LIMIT_MAX).contains(&self.limit) {
            Err(Error::Limit(self.limit))
        } else {
            Ok(())
        }
    }
}

fn default_limit() -> usize {
    LIMIT
}
