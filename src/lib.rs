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
mod audit;
pub mod codegen;
mod config;
mod describe;
pub mod env;
mod environment;
mod executor;
mod kernel;
mod mcp;
mod process;
mod registry;
mod tool_client;
mod tool_server;
mod tools;

pub use approval::{
    AlreadyDecided, ApprovalRequest, Effect as ApprovalEffect, Policy as ApprovalPolicy,
    PolicyError as ApprovalPolicyError, Target, ToolAnnotations,
};
pub use audit::{Contents as AuditContents, Error as AuditError};
pub use config::{
    ApprovalMode, ApprovalSettings, AuditSettings, Config, Error as ConfigError, Images, KernelSettings,
    Settings, ToolServerSettings,
};
pub use describe::describe;
pub use executor::{
    Code, CodeExecution, CodeExecutionChunk, CodeExecutionError, CodeExecutionEvent, CodeExecutionResult,
    CodeExecutor, CodeExecutorBuilder, KernelClient, KernelClientBuilder, KernelState, StartError, Truncated,
};
pub use registry::{
    ApigenError, ApigenReport, ApigenSource, GenerateError, Registry, apigen, generate_mcp_sources,
};
pub use tool_client::{ApprovalClient, ApprovalClientError, ToolRunner, ToolRunnerError};
pub use tool_server::{Error as ToolServerError, ToolServer, ToolServerBuilder};
pub use tools::{Error as ServeError, serve_stdio};
