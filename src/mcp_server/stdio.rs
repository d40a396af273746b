//! Serves MCP on stdin and stdout until the client closes them or a signal asks us to end.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::arrivals::Arrivals;
use super::asking::Parking;
use super::deliveries::Deliveries;
use super::lines::Lines;
use super::{Handler, McpServer};
use crate::approval::{Effect, Policy, PolicyError};
use crate::config::{ApprovalMode, Config};
use crate::session::{Session, StartError, ToolOptions};

/// How long a client may take to read the last answers once the kernel and the connections are gone.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Why serving ended before the client or a signal ended it, or never began.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session could not be opened. Nothing has been served.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Signals cannot be handled.
    #[error("handle signals")]
    Signals(#[source] std::io::Error),
    /// The client did not begin as the protocol says.
    #[error("begin a session with the MCP client: {0}")]
    Session(String),
}

/// Serves the four tools on stdin and stdout.
///
/// Requests are answered as soon as this runs; the Python environment and the kernel come up behind.
/// Returns when the client closes stdin, or on SIGTERM, SIGINT or SIGHUP, with no process left behind.
///
/// # Errors
/// See [`Error`]. Nothing has been served if the session could not be opened.
pub async fn serve_stdio(config: Config) -> Result<(), Error> {
    let closed = CancellationToken::new();
    end_on_signals(&closed).map_err(Error::Signals)?;
    let policy = policy(&config).map_err(StartError::Policy)?;
    let tools = ToolOptions { registry: None, policy, timeout: config.approval.timeout };
    let session = Arc::new(Session::open(&config, Some(tools)).await?);
    let server = McpServer {
        session: Arc::clone(&session),
        parking: Parking::default(),
        deliveries: Deliveries::default(),
        images: config.images,
        closed: closed.clone(),
    };

    let serving = serve(Handler(Arc::new(server)), closed.clone());
    let stopping = async {
        closed.cancelled().await;
        session.stop().await;
        tokio::time::sleep(DRAIN_GRACE).await;
    };
    let served = tokio::select! {
        served = serving => served,
        () = stopping => Ok(()),
    };
    // After the work of calls has ended, so that the record is complete.
    session.close().await;
    served
}

/// The approval policy that the settings ask for.
fn policy(config: &Config) -> Result<Policy, PolicyError> {
    Ok(match &config.approval.mode {
        ApprovalMode::Auto => Policy::always(Effect::Allow),
        ApprovalMode::Ask => Policy::always(Effect::Ask),
        ApprovalMode::Deny => Policy::always(Effect::Deny),
        ApprovalMode::Policy(path) => Policy::read_in(&config.workspace, path)?,
    })
}

async fn serve(server: Handler, closed: CancellationToken) -> Result<(), Error> {
    let (input, output) = stdio_pipes();
    let transport = Arrivals::new(Lines::new(input, output), closed.clone());
    let ended = match server.serve_with_ct(transport, closed.clone()).await {
        Ok(running) => running.waiting().await.map(drop).map_err(|error| Error::Session(error.to_string())),
        // We are to end, or the client went away, before it said anything: nothing is wrong.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(Error::Session(error.to_string())),
    };
    closed.cancel();
    ended
}

/// Cancels `closed` on the signals that ask a program to end.
fn end_on_signals(closed: &CancellationToken) -> std::io::Result<()> {
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
