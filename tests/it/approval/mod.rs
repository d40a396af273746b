//! Approval of tool calls and shell commands: by policy, by questions to the client, and what is recorded of it.

mod audit_command;
mod audit_log;
mod audit_tampering;
mod batches;
mod circumvention;
mod grants;
mod input_required;
mod labels;
mod plans;
mod provenance;
mod questions;
pub(crate) mod shell_commands;
