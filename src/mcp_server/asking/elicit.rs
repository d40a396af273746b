//! Asks the user by sending the request `elicitation/create`.

use std::sync::OnceLock;

use rmcp::model::{ClientResult, ElicitRequest, ServerRequest};
use rmcp::service::{PeerRequestOptions, ServiceError};
use rmcp::{Peer, RoleServer};

use tokio_util::sync::CancellationToken;

use super::invite::invite;
use super::question;
use crate::approval::{ApprovalRequest, EXPIRED};
use crate::page::Page;

/// How an approval request was asked.
pub(super) enum Asked {
    /// The user answered.
    Answered,
    /// The user did not: it is rejected, or has expired.
    Unanswered,
    /// It can be asked again.
    TakenBack(ApprovalRequest),
}

/// Asks the client's user, and answers the approval request.
///
/// If the session has a `page` and the client can open it, the user is sent there. Otherwise the elicitation is cancelled when the approval request expires, when its code no longer waits, and on
/// `over`. Then, and when the client is gone, the request can be asked again.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    mut request: ApprovalRequest,
    over: &CancellationToken,
    page: Option<&Page>,
) -> Asked {
    if request.is_closed() {
        return ended(&request.fate());
    }
    if let Some(page) = page
        && question::is_for_page(&request)
    {
        return invite(peer, request, over, page).await;
    }
    let form = match question::form(&request, None) {
        Ok(form) => form,
        Err(error) => {
            tracing::error!(%error, "could not make a form to ask for approval");
            return Asked::Unanswered;
        }
    };
    let fate = request.fate();
    request.hand_out();
    let elicitation = ServerRequest::ElicitRequest(ElicitRequest::new(form));
    let sent = peer.send_cancellable_request(elicitation, PeerRequestOptions::no_options()).await;
    let mut handle = match sent {
        Ok(handle) => handle,
        Err(ServiceError::TransportClosed) => return taken_back(request),
        Err(error) => {
            tracing::warn!(%error, "could not ask for approval");
            return Asked::Unanswered;
        }
    };
    let answered = tokio::select! {
        answered = &mut handle.rx => answered.unwrap_or(Err(ServiceError::TransportClosed)),
        () = async { tokio::select! { () = request.closed() => {}, () = over.cancelled() => {} } } => {
            // Not waited for: a client that is gone takes no notifications.
            tokio::spawn(async move {
                if let Err(error) = handle.cancel(Some("the question is over".to_owned())).await {
                    tracing::debug!(%error, "could not take back a question");
                }
            });
            return if over.is_cancelled() { taken_back(request) } else { ended(&fate) };
        }
    };
    // A late answer has no effect: the code has got its refusal.
    let _is_in_time = match answered {
        Ok(ClientResult::ElicitResult(result)) => question::give(request, &result),
        Ok(_) => {
            tracing::warn!("the MCP client answered a question with something else");
            request.reject()
        }
        Err(ServiceError::TransportClosed) => return taken_back(request),
        Err(error) => {
            tracing::warn!(%error, "the MCP client could not ask its user");
            request.reject()
        }
    };
    Asked::Answered
}

/// How a request has ended that this client has not answered: maybe somebody else has.
pub(super) fn ended(fate: &OnceLock<&'static str>) -> Asked {
    if fate.get() == Some(&EXPIRED) { Asked::Unanswered } else { Asked::Answered }
}

pub(super) fn taken_back(request: ApprovalRequest) -> Asked {
    request.take_back();
    Asked::TakenBack(request)
}
