//! Logs go to stderr; stdout is the protocol's.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use super::args::LogLevel;

/// Logs messages of `level` and above.
///
/// Libraries log at most warnings: below that they quote messages, arguments and secrets included. `zeromq`
/// warns when a kernel dies that it cannot reach it; we notice the death itself.
pub(crate) fn init(level: LogLevel) {
    let filter = match level {
        LogLevel::Debug => "warn,ipybox=debug",
        LogLevel::Info => "warn,ipybox=info,zeromq=error",
        LogLevel::Warning => "warn,zeromq=error",
        LogLevel::Error | LogLevel::Critical => "error",
    };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
