//! The audit log: the cells, decisions and calls of a session.
//!
//! ```text
//! cells, decisions, calls → event → redacted, shortened → record → writer's thread ┬ file, rotated by size
//!                                                                                    └ decisions, kept longer
//! ```
//!
//! A decision is written before the permitted action begins: a [`Permit`](super::Permit) is made from a
//! [`Permitted`] action, which is made by writing the decision. All other events are written in the background; those
//! that cannot be written are counted, and the count is written as soon as writing works again. Each record is
//! [chained](chain) to the one before it in its file; `approval/review` checks that.

mod call;
mod cell;
pub(super) mod chain;
mod event;
mod file;
mod handle;
pub(super) mod history;
mod notes;
mod record;
mod redacted;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use self::call::OpenCall;
pub(super) use self::call::Permitted;
pub(crate) use self::cell::CellOutput;
pub(crate) use self::event::Face;
pub(crate) use self::handle::{Audit, AuditLogSettings as LogSettings};
pub use self::handle::{Contents, Error};
pub(crate) use self::history::PastDecision;
pub(crate) use self::notes::{Calls, CellCalls};
pub(super) use self::record::AuditRecord;
