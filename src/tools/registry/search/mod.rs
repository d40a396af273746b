//! Finds tools of registered servers by words, and says how they are called; pure.
//!
//! ```text
//! tool  → entry: its words, and the texts that answers show → index: BM25
//! query → index → the best entries → answer: a text within bounds
//! ```
//!
//! `words` splits texts, `synonyms` knows which words mean the same, `intent` whether a request asks to read or to change
//! something, and `groups` says in few words which tools there are.
//!
//! Reasons: `docs/decisions/search.md`.

mod answer;
mod entry;
mod groups;
mod index;
mod intent;
mod synonyms;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use self::entry::FoundAction;
pub(crate) use self::groups::calls_of;
pub use self::index::SearchIndex;
use crate::tools::servers::query::SearchQuery;

/// The longest query, in bytes: it is a few words.
const QUERY_BYTES: usize = 1024;
/// The most tools that an answer can be asked for.
const LIMIT_MAX: usize = 50;

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
        /// The name that may have been meant.
        hint: String,
    },
    /// The registrations could not be read.
    #[error("read the registered MCP servers")]
    Store(#[source] std::io::Error),
}

fn check(query: &SearchQuery) -> Result<(), Error> {
    if query.query.len() > QUERY_BYTES {
        Err(Error::Long)
    } else if !(1..=LIMIT_MAX).contains(&query.limit) {
        Err(Error::Limit(query.limit))
    } else {
        Ok(())
    }
}
