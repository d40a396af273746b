//! A stateful IPython kernel with programmatic MCP tool calling for AI agents.
//!
//! # The walks of the data
//!
//! ```text
//! a call          MCP client → tools → executor → kernel → (fold of messages) → tools/reply → MCP client
//! a call back     Python in the kernel → HTTP → tool_server → approval → mcp → MCP server
//! a registration  tools → registry → mcp → codegen → files in mcptools/<name>/
//! ```
//!
//! `ARCHITECTURE.md` describes each room. The library is what the `ipybox` binary is made of.

mod approval;
pub mod codegen;
mod config;
pub mod env;
mod environment;
mod executor;
mod kernel;
mod mcp;
mod process;
mod registry;
mod tool_server;
mod tools;

pub use config::{Config, Error as ConfigError, Settings};
pub use tools::{Error as ServeError, serve_stdio};

/// An error with all its causes, as one text for people and models.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // Some libraries repeat their cause in their own words.
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}
