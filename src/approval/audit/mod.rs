//! The audit log: the cells, decisions and calls of a session.
//!
//! ```text
//! cells, decisions, calls → redacted, shortened → event → writer's thread ┬ file, rotated by size
//!                                                                                    └ decisions, kept longer
//! ```
//!
//! A decision is written before the permitted action begins: a [`Permit`](super::Permit) is made from a
//! [`PermittedAction`] action, which is made by writing the decision. All other events are written in the background; those
//! that cannot be written are counted, and the count is written as soon as writing works again. Each record is
//! [chained](chain) to the one before it in its file; `approval/review` checks that.
//!
//! Reasons: `docs/decisions/audit.md`.

mod call;
mod cell;
pub(super) mod chain;
mod command;
mod event;
mod file;
mod handle;
pub(super) mod history;
mod notes;
mod reading;
mod redacted;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use self::call::OpenCall;
pub(super) use self::call::PermittedAction;
pub(crate) use self::cell::CellOutput;
pub use self::command::CommandLog;
pub(crate) use self::event::{LogBegin, SessionFace};
pub use self::event::{SettleAction, SettledFiles};
pub(crate) use self::handle::{Audit, AuditLogSettings as LogSettings};
pub use self::handle::{AuditContents, Error};
pub(crate) use self::history::PastDecision;
pub(crate) use self::notes::{CallNotes, CellCalls};
pub(super) use self::reading::AuditRecord;
