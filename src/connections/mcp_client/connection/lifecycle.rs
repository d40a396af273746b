//! The beginning of a connection: by `initialize`, for the newest revision that the server accepts, or with a server
//! that no longer has it (MCP 2026-07-28) by `server/discover`.
//!
//! `initialize` comes first. Nearly all servers answer it, also those of the newest revision; of the older ones, some never
//! answer what comes before it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::StatusCode;
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::{
    ClientLifecycleMode, Peer, RunningService, RxJsonRpcMessage, TxJsonRpcMessage,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::Transport;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::revisions;
use crate::connections::mcp_client::client::ClientSide;
use crate::connections::mcp_client::messages::Handshake;
use crate::connections::mcp_client::requests::{McpFailure, traced_server};

/// The first request to a server.
pub(crate) const METHOD: &str = "initialize";
/// The first request to a server that has refused that one.
const DISCOVER: &str = "server/discover";
/// The time that such a server may take to answer.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// The errors of servers that do not know `initialize`, or miss in it what belongs to all requests since then.
const NEWER: [ErrorCode; 7] = [
    ErrorCode::METHOD_NOT_FOUND,
    ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
    ErrorCode::INVALID_REQUEST,
    ErrorCode::INVALID_PARAMS,
    ErrorCode::HEADER_MISMATCH,
    ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
    // "Server error", which says nothing.
    ErrorCode(-32000),
];

/// Begins a connection. `transport` makes the transport of each attempt.
pub(crate) async fn begin<T: Transport<RoleClient> + 'static>(
    client: &ClientSide,
    mut transport: impl FnMut() -> T,
    handshake: &Handshake,
    stop: &CancellationToken,
) -> Result<RunningService<RoleClient, ClientSide>, McpFailure> {
    let mut client = client.clone();
    let mut asked = Vec::new();
    let refused = loop {
        asked.push(client.revision.clone());
        let begun = attempt(&client, transport(), ClientLifecycleMode::Initialize, stop).await;
        // What rmcp does not pass on says more.
        let said = handshake.failure().map(|reason| McpFailure::Unusable { reason });
        let (service, failure) = match (begun, said) {
            (Ok(service), failure) => (Some(service), failure),
            (Err(failure), said) => (None, Some(said.unwrap_or(failure))),
        };
        let next =
            failure.as_ref().and_then(McpFailure::answer).and_then(|said| revisions::next(said, &asked));
        match (next, service, failure) {
            (Some(next), ..) => client.revision = next,
            (None, Some(service), _) => return Ok(service),
            (None, None, failure) => break failure.unwrap_or(McpFailure::Closed),
        }
    };
    if !may_have_discover(&refused) {
        return Err(refused);
    }
    let newest = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    match timeout(DISCOVER_TIMEOUT, attempt(&client, transport(), newest, stop)).await {
        Ok(Ok(service)) => Ok(service),
        Ok(Err(unauthorized @ McpFailure::Refused(_))) => Err(unauthorized),
        Ok(Err(_)) | Err(_) => Err(refused.of_handshake()),
    }
}

/// Says whether a server that refuses `initialize` so may know `server/discover`.
fn may_have_discover(refusal: &McpFailure) -> bool {
    const OTHERS: [StatusCode; 5] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    match refusal {
        McpFailure::Answered { code, .. } => NEWER.contains(&ErrorCode(*code)),
        McpFailure::BadStatus { code, .. } => {
            *code == StatusCode::NOT_IMPLEMENTED || code.is_client_error() && !OTHERS.contains(code)
        }
        _ => false,
    }
}

async fn attempt<T: Transport<RoleClient> + 'static>(
    client: &ClientSide,
    transport: T,
    lifecycle: ClientLifecycleMode,
    stop: &CancellationToken,
) -> Result<RunningService<RoleClient, ClientSide>, McpFailure> {
    let method = if lifecycle == ClientLifecycleMode::Initialize { METHOD } else { DISCOVER };
    let mut operation = client.traced.handshake(method);
    let context = operation.context();
    // rmcp cancels its token whenever it ends; the keeper must see whether we requested the end.
    let serving =
        serve_client_with_lifecycle_and_ct(client.clone(), transport, lifecycle, stop.child_token());
    let served = context.around(serving).await.map_err(McpFailure::from);
    match &served {
        Ok(service) => {
            operation.is_of_version(|| Some(service.peer().peer_info()?.protocol_version.to_string()));
            operation.succeeds();
        }
        Err(failure) => traced_server::failed(&mut operation, failure),
    }
    served
}

/// Whether the protocol's revision is one with `initialize`, in which servers send requests and notifications by themselves.
pub(super) fn has_handshake(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info().is_none_or(|info| info.protocol_version.has_initialize())
}

/// Keeps a transport that outlives an attempt: a program is started once.
pub(crate) struct TransportLender<T>(Arc<Mutex<Option<T>>>);

/// The transport of one attempt, which returns to its lender at the end.
pub(crate) struct LentTransport<T> {
    transport: Option<T>,
    lender: Arc<Mutex<Option<T>>>,
}

impl<T> TransportLender<T> {
    pub(crate) fn new(transport: T) -> Self {
        Self(Arc::new(Mutex::new(Some(transport))))
    }

    /// The transport, which is closed if another attempt has it.
    pub(crate) fn lend(&self) -> LentTransport<T> {
        LentTransport { transport: self.0.lock().take(), lender: Arc::clone(&self.0) }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for LentTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let sending = self.transport.as_mut().map(|transport| transport.send(message));
        async move {
            match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.transport.as_mut()?.receive().await
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        match &mut self.transport {
            Some(transport) => transport.close().await,
            None => Ok(()),
        }
    }
}

impl<T> Drop for LentTransport<T> {
    fn drop(&mut self) {
        *self.lender.lock() = self.transport.take();
    }
}
