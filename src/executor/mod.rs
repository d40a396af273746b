//! One session: a kernel, the tool server that its code calls, and the cells that wait their turn.
//!
//! ```text
//! CodeExecutor, KernelClient   what a Rust application holds
//!   → session   the handle that queues work → worker   the task that owns the kernel → cell   one cell's course
//! ```
//!
//! What the outcome looks like to an MCP client is not decided here.

mod account;
mod builder;
mod cell;
mod code;
mod code_executor;
mod confined;
mod end;
mod error;
mod excerpt;
mod execution;
mod here;
mod images;
mod installations;
mod kernel_client;
mod late;
mod modules;
mod outputs;
mod packages;
mod phase;
mod record;
mod remote;
mod result;
mod session;
mod site;
mod worker;

use std::time::Duration;

pub use self::builder::CodeExecutorBuilder;
pub(crate) use self::cell::{Cell, Outcome};
pub use self::code::Code;
pub use self::code_executor::CodeExecutor;
pub(crate) use self::end::End;
pub use self::end::KernelState;
pub use self::error::{CodeExecutionError, StartError};
pub(crate) use self::excerpt::excerpt;
pub use self::execution::{CodeExecution, CodeExecutionChunk, CodeExecutionEvent};
pub(crate) use self::images::SavedImage;
pub use self::kernel_client::{KernelClient, KernelClientBuilder};
pub(crate) use self::phase::Phase;
pub(crate) use self::record::{Cut, Text};
pub use self::result::{CodeExecutionResult, Truncated};
pub(crate) use self::session::Session;
use crate::{environment, kernel, sandbox};

/// How long a cell may run unless its caller says otherwise.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a package was not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    /// There is no environment to install into.
    #[error(transparent)]
    Python(Box<Error>),
    /// It cannot be installed.
    #[error(transparent)]
    Install(#[from] environment::InstallError),
    /// It cannot be installed where a Jupyter server runs the kernel.
    #[error("{0}")]
    Remote(String),
}

/// Why a cell could not be run at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no usable Python environment.
    #[error("prepare the Python environment")]
    Environment(#[source] environment::Error),
    /// The kernel does not start.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    /// The sandbox does not start. Nothing runs without it instead.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    /// The kernel's Python is on another machine.
    #[error(
        "name the kernel's Python: it is where the Jupyter server runs the kernel; `sys.executable` in a cell tells it"
    )]
    RemotePython,
    /// The directories that a kernel needs cannot be made.
    #[error("make the directories that the kernel needs")]
    Files(#[source] std::io::Error),
    /// The task that owns the kernel has failed.
    #[error("run code: ipybox has a bug and cannot go on; see its log, and restart it")]
    Crashed,
    /// The executor was stopped.
    #[error("run code: the server is shutting down")]
    Stopped,
}
