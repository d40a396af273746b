//! A log of what was run and decided, for whoever has to answer for it later.
//!
//! ```text
//! cells, decisions, calls → event → redacted, shortened → line → writer's thread ┬ file, rotated by size
//!                                                                                  └ decisions, kept longer
//! ```
//!
//! A decision is on record before what it permits begins: a [`Permit`](super::Permit) is made from an [`OpenCall`], which
//! is made by writing the decision. All else is written behind; what cannot be written is counted, and the count is written as soon as that works again.

mod call;
mod cell;
mod event;
mod file;
mod handle;
mod shown;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use self::call::OpenCall;
pub(crate) use self::cell::CellOutput;
pub(crate) use self::handle::{Audit, Settings as LogSettings, evidence as decisions_file};
pub use self::handle::{Contents, Error};
