//! What the kernel's code calls: which MCP servers there are, the Python for their tools, and the calls.

pub mod codegen;
pub(crate) mod import;
pub(crate) mod registry;
pub(crate) mod servers;
pub(crate) mod tool_server;
