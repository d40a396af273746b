//! The part that the kernel's code calls: the registered MCP servers, the Python for their tools, and the calls.

pub(crate) mod actions;
pub(crate) mod formats;
pub(crate) mod import;
pub(crate) mod recording;
pub(crate) mod registry;
pub(crate) mod servers;
pub(crate) mod tool_server;
