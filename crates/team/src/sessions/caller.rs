//! Messages of a session's process to the client of a call that is open.

use rmcp::model::{ClientResult, ErrorCode, ServerNotification, ServerRequest};
use rmcp::service::{Peer, PeerRequestOptions};
use rmcp::{ErrorData, RoleServer, ServiceError};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A message for a client.
pub(crate) enum CallerMessage {
    Request(Box<CallerRequest>),
    Notification(Box<ServerNotification>),
}

/// A request for a client.
pub(crate) struct CallerRequest {
    pub(crate) request: ServerRequest,
    /// Cancelled when the process does not want the answer any more.
    pub(crate) cancelled: CancellationToken,
    pub(crate) reply: oneshot::Sender<Result<ClientResult, ErrorData>>,
}

impl CallerMessage {
    /// Delivers the message, and waits for the client's answer to a request.
    pub(crate) async fn deliver(self, client: &Peer<RoleServer>) {
        match self {
            Self::Request(asked) => {
                let CallerRequest { request, cancelled, reply } = *asked;
                // It fails if the process has gone.
                reply.send(CallerRequest::ask(client, request, &cancelled).await).ok();
            }
            Self::Notification(notification) => {
                if let Err(error) = client.send_notification(*notification).await {
                    tracing::debug!(%error, "a notification could not be passed on");
                }
            }
        }
    }
}

impl CallerRequest {
    /// Asks a client.
    pub(crate) async fn ask(
        client: &Peer<RoleServer>,
        request: ServerRequest,
        cancelled: &CancellationToken,
    ) -> Result<ClientResult, ErrorData> {
        let sent = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let mut handle = sent.map_err(error_data)?;
        tokio::select! {
            answer = &mut handle.rx => {
                answer.unwrap_or(Err(ServiceError::TransportClosed)).map_err(error_data)
            }
            () = cancelled.cancelled() => {
                if let Err(error) = handle.cancel(None).await {
                    tracing::debug!(%error, "a question could not be withdrawn");
                }
                Err(ErrorData::invalid_request("the question was withdrawn", None))
            }
        }
    }
}

/// The error of the other side as it is, and ours in words.
pub(crate) fn error_data(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        ServiceError::TransportClosed => ErrorData::new(
            ErrorCode::INTERNAL_ERROR,
            "the connection to the session broke off; the session may go on: call again to learn its state",
            None,
        ),
        other => ErrorData::new(ErrorCode::INTERNAL_ERROR, other.to_string(), None),
    }
}
