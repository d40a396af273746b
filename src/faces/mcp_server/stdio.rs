//! Serves MCP on stdin and stdout until the client closes them or a signal asks us to end.

use std::time::Duration;

use rmcp::transport::stdio_pipes;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::serving::{ApprovalCodes, Error, ServedSession};
use super::streams::ClientStreams;
use crate::config::Config;

/// The time that a client may take to read the last answers once the kernel and the connections are gone.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Serves the tools on stdin and stdout.
///
/// Requests are answered as soon as this runs; the Python environment and the kernel come up behind.
/// Returns when the client closes stdin, or on SIGTERM, SIGINT or SIGHUP, with no process left behind.
///
/// # Errors
/// See [`Error`]. Nothing has been served if the session could not be opened.
pub async fn serve_stdio(config: Config) -> Result<(), Error> {
    let closed = CancellationToken::new();
    end_on_signals(&closed).map_err(Error::Signals)?;
    let serving = ServedSession::open(&config, ApprovalCodes::OnStderr).await?;
    let (input, output) = stdio_pipes();
    let streams = ClientStreams { input, output };
    let served = {
        let mut served = std::pin::pin!(serving.client(streams, closed.clone(), None));
        let stopped = async {
            closed.cancelled().await;
            serving.stop().await;
        };
        tokio::select! {
            served = &mut served => served,
            () = stopped => tokio::time::timeout(DRAIN_GRACE, served).await.unwrap_or(Ok(())),
        }
    };
    // After the work of calls has ended, so that the record is complete.
    serving.close().await;
    served
}

/// Cancels `closed` on the signals that ask a program to end.
pub(crate) fn end_on_signals(closed: &CancellationToken) -> std::io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signals = signal(kind)?;
        let closed = closed.clone();
        // Ends with the runtime: it is a listener of the whole process.
        tokio::spawn(async move {
            signals.recv().await;
            tracing::info!(signal = kind.as_raw_value(), "ending");
            closed.cancel();
        });
    }
    Ok(())
}
