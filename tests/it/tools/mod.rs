//! Tools of MCP servers: registration, calls, results.

mod actions;
mod actions_found;
mod actions_hostile;
mod actions_sandboxed;
mod actions_served;
mod actions_used;
pub(crate) mod calls;
mod checks;
pub(crate) mod content;
#[cfg(target_os = "linux")]
mod durability;
mod imports;
pub(crate) mod inference;
mod lost_sessions;
mod mcp_config;
#[cfg(target_os = "linux")]
mod memory_budgets;
mod newest;
pub(crate) mod registration;
pub(crate) mod resources;
pub(crate) mod search;
mod slow_servers;
