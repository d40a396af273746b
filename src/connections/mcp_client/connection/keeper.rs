//! The task that owns each connection: it outlives the last call and cleans up after the connection.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::RunningService;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::connections::mcp_client::client::ClientSide;
use crate::connections::mcp_client::failure::LastWords;
use crate::connections::mcp_client::transport::ServerProcess;
use crate::ground::telemetry::TracedConnection;

/// The time that rmcp may take to close an HTTP session.
const HTTP_GRACE: Duration = Duration::from_secs(2);
/// The time that rmcp may take to close the pipes: a server that reads nothing blocks it until it is killed.
const PIPES_GRACE: Duration = Duration::from_millis(200);
/// The time after the server's exit in which its last messages are read.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// Waits for the end of the connection, by `stop` or by itself, cleans up, and sends the end to `ended`. The session is
/// over then.
pub(crate) async fn keep(
    service: RunningService<RoleClient, ClientSide>,
    process: Option<ServerProcess>,
    stop: CancellationToken,
    ended: watch::Sender<Option<Arc<LastWords>>>,
    _session: TracedConnection,
) {
    let last_words = match process {
        Some(process) => keep_process(service, process, &stop).await,
        None => keep_session(service, &stop).await,
    };
    // From here on the connection must count as ended.
    stop.cancel();
    ended.send_replace(Some(Arc::new(last_words)));
}

async fn keep_session(
    service: RunningService<RoleClient, ClientSide>,
    stop: &CancellationToken,
) -> LastWords {
    let mut service = Box::pin(service.waiting());
    tokio::select! {
        ended = &mut service => drop(ended),
        () = stop.cancelled() => {
            if timeout(HTTP_GRACE, &mut service).await.is_err() {
                tracing::debug!("an MCP server did not close its session in time");
            }
        }
    }
    LastWords::default()
}

async fn keep_process(
    service: RunningService<RoleClient, ClientSide>,
    mut process: ServerProcess,
    stop: &CancellationToken,
) -> LastWords {
    let mut service = Box::pin(service.waiting());
    let (is_service_over, is_asked_to_end) = tokio::select! {
        // End of file on stdout, or `stop`, which rmcp listens to as well.
        ended = &mut service => { drop(ended); (true, stop.is_cancelled()) }
        () = stop.cancelled() => (timeout(PIPES_GRACE, &mut service).await.is_ok(), true),
        () = process.exited() => {
            // Its children may hold its stdout, which would hide its death. Messages in the pipe survive the
            // kill and are still read.
            process.kill();
            (timeout(EXIT_GRACE, &mut service).await.is_ok(), false)
        }
    };
    // Then only the end of the process can unblock the service.
    stop.cancel();
    let last_words = process.end().await;
    if !is_service_over && timeout(EXIT_GRACE, service).await.is_err() {
        tracing::warn!("the connection to an MCP server that is gone could not be closed");
    }
    if is_asked_to_end { last_words.without_status() } else { last_words }
}
