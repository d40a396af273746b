//! Errors of a session's operations.

use super::site;
use crate::approval::{AuditError, DenialReason, PolicyError};
use crate::config;
use crate::tools::recording::RecordingError;
use crate::tools::{import, registry, tool_server};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a session could not be opened. No process is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The options cannot be used, or the sandbox cannot be made.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The approval policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The tool server could not be started.
    #[error("start the tool server")]
    ToolServer(#[from] tool_server::Error),
    /// The session cannot be recorded.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The audit log cannot be kept.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A configuration file of an MCP client cannot be used.
    #[error(transparent)]
    McpConfig(Cause),
    /// No directory could be created for the kernel's temporary files.
    #[error("create a private directory for the kernel")]
    PrivateDirectory(#[source] std::io::Error),
    /// A limit around the session is held by nothing on this system.
    #[error(transparent)]
    Limits(Cause),
    /// There is no usable Python environment, and none could be made.
    #[error(transparent)]
    Environment(Cause),
    /// The sandbox could not be started.
    #[error(transparent)]
    Sandbox(Cause),
    /// The kernel could not be made ready.
    #[error(transparent)]
    Kernel(Cause),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        match error {
            Error::Kernel(error @ site::Error::Environment(_)) => Self::Environment(error.into()),
            Error::Kernel(error @ site::Error::Sandbox(_)) => Self::Sandbox(error.into()),
            Error::Client(error) => Self::Config(*error),
            Error::Kernel(_) | Error::Crashed | Error::Stopped => Self::Kernel(error.into()),
        }
    }
}

impl From<site::SiteOpenError> for StartError {
    fn from(error: site::SiteOpenError) -> Self {
        match error {
            site::SiteOpenError::Directory(error) => Self::PrivateDirectory(error),
            site::SiteOpenError::Limits(error) => Self::Limits(error.into()),
        }
    }
}

impl From<import::ImportStartError> for StartError {
    fn from(error: import::ImportStartError) -> Self {
        Self::McpConfig(error.into())
    }
}

/// Why a cell could not be run at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no kernel.
    #[error(transparent)]
    Kernel(#[from] site::Error),
    /// The permissions of its client cannot be held around the kernel.
    #[error(transparent)]
    Client(Box<config::Error>),
    /// The task that owns the kernel has failed.
    #[error("run code: ipybox has a bug and cannot go on; see its log, and restart it")]
    Crashed,
    /// The session was stopped.
    #[error("run code: the server is shutting down")]
    Stopped,
}

impl From<config::Error> for Error {
    fn from(error: config::Error) -> Self {
        Self::Client(Box::new(error))
    }
}

/// Why a package was not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    /// It is not permitted.
    #[error(transparent)]
    Denied(#[from] DenialReason),
    /// One of several is not permitted, so that none is installed.
    #[error("install `{package}`, and the packages beside it")]
    OneDenied {
        /// The requirement.
        package: String,
        /// Why not.
        #[source]
        denied: DenialReason,
    },
    /// The client no longer wants it.
    #[error("install: cancelled")]
    Cancelled,
    /// The session runs no code, which would install it.
    #[error(transparent)]
    Session(Box<Error>),
    /// It cannot be installed.
    #[error(transparent)]
    Install(#[from] site::SiteInstallError),
    /// It cannot be installed where a Jupyter server runs the kernel.
    #[error("{0}")]
    Remote(String),
}

/// Why a server was not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    /// It is not permitted.
    #[error(transparent)]
    Denied(#[from] DenialReason),
    /// The client no longer wants it.
    #[error("register: cancelled")]
    Cancelled,
    /// The permissions of the client cannot be held around the kernel.
    #[error(transparent)]
    Session(Box<Error>),
    /// It is not possible.
    #[error(transparent)]
    Register(#[from] registry::Error),
    /// The session's code has no tools.
    #[error("register an MCP server: the code of this session has no tools")]
    NoTools,
}
