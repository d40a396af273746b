//! A log of what was run and decided, for whoever has to answer for it later.
//!
//! ```text
//! cells, decisions, calls → event → redacted, shortened → line → writer's thread ┬ file, rotated by size
//!                                                                                  └ decisions, kept longer
//! ```
//!
//! A decision is on the record before what it permits begins: [`decide_on_record`] is the only way to a permit. All
//! else is written behind; what cannot be written is counted, and the count is written as soon as that works again.

mod call;
mod cell;
mod event;
mod file;
mod handle;
mod shown;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use self::call::{OpenCall, Refusal, decide_on_record};
pub(crate) use self::cell::{CellOutput, OpenCell};
pub(crate) use self::event::CellEnd;
pub(crate) use self::handle::{Audit, Settings, evidence};
pub use self::handle::{Contents, Error};
