//! Asks the user by sending the request `elicitation/create`.

use rmcp::model::{ClientResult, ElicitRequest, ServerRequest};
use rmcp::service::{PeerRequestOptions, ServiceError};
use rmcp::{Peer, RoleServer};

use tokio_util::sync::CancellationToken;

use super::question;
use crate::approval::ApprovalRequest;

/// Asks the client's user, and answers the approval request. Returns whether the user answered.
///
/// The elicitation is cancelled when the approval request expires, when its code no longer waits, and on
/// `over`.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    mut request: ApprovalRequest,
    over: &CancellationToken,
) -> bool {
    let form = match question::form(&request, None) {
        Ok(form) => form,
        Err(error) => {
            tracing::error!(%error, "could not make a form to ask for approval");
            return false;
        }
    };
    request.hand_out();
    let elicitation = ServerRequest::ElicitRequest(ElicitRequest::new(form));
    let sent = peer.send_cancellable_request(elicitation, PeerRequestOptions::no_options()).await;
    let mut handle = match sent {
        Ok(handle) => handle,
        Err(error) => {
            tracing::warn!(%error, "could not ask for approval");
            return false;
        }
    };
    let answered = tokio::select! {
        answered = &mut handle.rx => answered.unwrap_or(Err(ServiceError::TransportClosed)),
        () = async { tokio::select! { () = request.closed() => {}, () = over.cancelled() => {} } } => {
            if let Err(error) = handle.cancel(Some("the question is over".to_owned())).await {
                tracing::debug!(%error, "could not take back a question");
            }
            return false;
        }
    };
    // A late answer has no effect: the code has got its refusal.
    let _is_in_time = match answered {
        Ok(ClientResult::ElicitResult(result)) => question::give(request, &result),
        Ok(_) => {
            tracing::warn!("the MCP client answered a question with something else");
            request.reject()
        }
        Err(error) => {
            tracing::warn!(%error, "the MCP client could not ask its user");
            request.reject()
        }
    };
    true
}
