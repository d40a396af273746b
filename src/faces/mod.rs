//! The ways in which people and programs reach a session: each face translates between its visitors' words and the session's.

pub(crate) mod actions;
pub(crate) mod detached_actions;
pub mod doctor;
#[doc(hidden)]
pub mod json_rpc;
#[doc(hidden)]
pub mod lasting;
pub(crate) mod library;
pub(crate) mod mcp_server;
pub(crate) mod people;
#[cfg(target_os = "linux")]
pub(crate) mod pod;
pub(crate) mod replay;
