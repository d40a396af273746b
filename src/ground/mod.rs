//! The ground of all rooms. Nothing here knows sessions, kernels or MCP.

pub(crate) mod budget;
pub(crate) mod clients;
pub mod env;
pub(crate) mod files;
pub(crate) mod process;
#[doc(hidden)]
pub mod telemetry;
pub(crate) mod text;
pub(crate) mod web;
