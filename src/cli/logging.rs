//! Logs go to stderr, since stdout is the protocol's; or to the program that has started us.

use std::io::IsTerminal as _;

use clap::ValueEnum as _;
use ipybox::json_rpc::{LogSender, SetLevel};
use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, reload};

use super::args::LogLevel;

/// The number of lines that are queued for a slow reader of stderr. Each takes 32 bytes from the start.
const QUEUED_LINES: usize = 1_000;

/// Logs messages of `level` and above.
///
/// A thread of its own writes them, and drops lines that stderr does not accept: a client that does not read
/// it must not stop us. Keep the guard until the end, so that the last lines are written.
pub(crate) fn init(level: LogLevel) -> WorkerGuard {
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES).finish(std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer)
        // It would write to stderr itself, and panic if that is closed.
        .log_internal_errors(false)
        .init();
    guard
}

/// Sends messages of `level` and above to the program that has started us. Returns what changes the level.
pub(crate) fn forward(level: LogLevel, sender: LogSender) -> SetLevel {
    let (filter_layer, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .without_time()
        .with_level(false)
        .log_internal_errors(false)
        .with_writer(Forward(sender));
    tracing_subscriber::registry().with(filter_layer).with(lines).init();
    Box::new(move |name| match LogLevel::from_str(name, true) {
        // An error says that there is no subscriber any more: we are ending.
        Ok(level) => handle.reload(filter(level)).unwrap_or_default(),
        Err(error) => tracing::warn!("{error}"),
    })
}

/// Libraries log at most warnings: below that they quote messages, arguments and secrets included.
/// rmcp's transports log nothing: their warnings quote answers of servers, which may repeat a token, and are about errors that
/// we report. `rustls_platform_verifier` and `kube_client` warn of such errors, too, and rmcp's service of each request of a
/// server that we refuse.
fn filter(level: LogLevel) -> EnvFilter {
    EnvFilter::new(match level {
        LogLevel::Debug => "warn,ipybox=debug,kube_client=off,rmcp::transport=off,rmcp::service=error",
        LogLevel::Info => {
            "warn,ipybox=info,rustls_platform_verifier=off,kube_client=off,rmcp::transport=off,rmcp::service=error"
        }
        LogLevel::Warning => {
            "warn,rustls_platform_verifier=off,kube_client=off,rmcp::transport=off,rmcp::service=error"
        }
        LogLevel::Error | LogLevel::Critical => {
            "error,rustls_platform_verifier=off,kube_client=off,rmcp::transport=off"
        }
    })
}

/// Makes a writer for each message.
struct Forward(LogSender);

/// One message: its level, and its text as far as it has been written.
struct LogLine {
    sender: LogSender,
    level: Level,
    text: Vec<u8>,
}

impl Forward {
    fn line(&self, level: Level) -> LogLine {
        LogLine { sender: self.0.clone(), level, text: Vec::new() }
    }
}

impl<'a> MakeWriter<'a> for Forward {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        self.line(Level::INFO)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LogLine {
        self.line(*metadata.level())
    }
}

impl std::io::Write for LogLine {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        self.sender.send(self.level.as_str(), &String::from_utf8_lossy(&self.text));
    }
}
