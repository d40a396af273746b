//! Logs go to stderr; stdout is the protocol's.

use std::io::IsTerminal as _;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use super::args::LogLevel;

/// How many lines are queued for a slow reader of stderr.
const QUEUED_LINES: usize = 10_000;

/// Logs messages of `level` and above.
///
/// Libraries log at most warnings: below that they quote messages, arguments and secrets included.
/// `rustls_platform_verifier` logs what is an error of ours, too.
///
/// A thread of its own writes them, and drops lines that stderr does not accept: a client that does not read
/// it must not stop us. Keep the guard until the end, so that the last lines are written.
pub(crate) fn init(level: LogLevel) -> WorkerGuard {
    let filter = match level {
        LogLevel::Debug => "warn,ipybox=debug",
        LogLevel::Info => "warn,ipybox=info,rustls_platform_verifier=off",
        LogLevel::Warning => "warn,rustls_platform_verifier=off",
        LogLevel::Error | LogLevel::Critical => "error,rustls_platform_verifier=off",
    };
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES).finish(std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer)
        // It would write to stderr itself, and panic if that is closed.
        .log_internal_errors(false)
        .init();
    guard
}
