//! The API for Rust applications: [`CodeExecutor`] and [`KernelClient`], faces of a session.

mod builder;
mod code;
mod code_executor;
mod error;
mod execution;
mod kernel_client;
mod kernel_options;
mod numbered_session;
mod result;

pub use self::builder::CodeExecutorBuilder;
pub use self::code::Code;
pub use self::code_executor::CodeExecutor;
pub use self::error::CodeExecutionError;
pub use self::execution::{CodeExecution, CodeExecutionChunk, CodeExecutionEvent};
pub use self::kernel_client::{KernelClient, KernelClientBuilder};
pub use self::result::{CodeExecutionResult, Truncated};
