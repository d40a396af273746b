//! Origins of data: what tools have returned in a session, and where it shows up again.
//!
//! Two kinds of knowledge, which are never mixed. *Labels* of servers say what a session has read: the host has passed it on, so
//! that is certain. *Origins* say that an argument has much in common with a result: evidence, since code can rewrite what it
//! sends, and two texts can be alike by chance.
//!
//! ```text
//! result → pieces → letters → grams → fingerprints ┐
//!                 → tokens                         ├ table (bounded: what has no label leaves first)
//!                 → decoded (Base64, hex) → the same┘
//! arguments, in the same steps ─────────────→ found → origins
//! ```

mod decoded;
mod grams;
mod label;
mod letters;
mod memory;
mod origin;
mod pieces;
mod sources;
mod table;
#[cfg(test)]
mod tests;
mod tokens;

pub use self::label::{Label, ServerLabels, UnknownLabel};
pub use self::memory::ProvenanceMemory;
pub use self::origin::{Found, Origin, Provenance};
pub(crate) use self::sources::AwaitedSource;
