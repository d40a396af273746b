//! Asks the user by sending the request `elicitation/create`.

use rmcp::model::{ClientResult, ElicitRequest, ServerRequest};
use rmcp::service::{PeerRequestOptions, ServiceError};
use rmcp::{Peer, RoleServer};

use tokio_util::sync::CancellationToken;

use super::invite::invite;
use crate::faces::mcp_server::questions::{AskedRequests, Given, Sheet, ended};
use crate::faces::people::page::Page;

/// Asks the client's user, and answers the approval requests.
///
/// If the session has a `page` and the client can open it, the user is sent there. Otherwise the elicitation is cancelled
/// when all approval requests have expired, when their code no longer waits, and on `over`. Then, and when the client is
/// gone, the requests can be asked again.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    mut sheet: Sheet,
    over: &CancellationToken,
    page: Option<&Page>,
) -> AskedRequests {
    if sheet.is_closed() {
        return ended(&sheet.fates());
    }
    if let Some(page) = page
        && sheet.is_for_page()
    {
        match invite(peer, sheet, over, page).await {
            Ok(asked) => return asked,
            Err(unasked) => sheet = unasked,
        }
    }
    loop {
        match ask_once(peer, sheet, over).await {
            Ok(asked) => return asked,
            Err(unclear) => sheet = unclear,
        }
    }
}

/// # Errors
/// The answer was not clear.
async fn ask_once(
    peer: &Peer<RoleServer>,
    mut sheet: Sheet,
    over: &CancellationToken,
) -> Result<AskedRequests, Sheet> {
    let form = match sheet.form(None) {
        Ok(form) => form,
        Err(error) => {
            tracing::error!(%error, "could not make a form to ask for approval");
            return Ok(AskedRequests::Unanswered);
        }
    };
    let fates = sheet.fates();
    sheet.hand_out();
    let elicitation = ServerRequest::ElicitRequest(ElicitRequest::new(form));
    let sent = peer.send_cancellable_request(elicitation, PeerRequestOptions::no_options()).await;
    let mut handle = match sent {
        Ok(handle) => handle,
        Err(ServiceError::TransportClosed) => return Ok(AskedRequests::TakenBack(sheet)),
        Err(error) => {
            tracing::warn!(%error, "could not ask for approval");
            return Ok(AskedRequests::Unanswered);
        }
    };
    let answered = tokio::select! {
        answered = &mut handle.rx => answered.unwrap_or(Err(ServiceError::TransportClosed)),
        () = async { tokio::select! { () = sheet.closed() => {}, () = over.cancelled() => {} } } => {
            // Not waited for: a client that is gone takes no notifications.
            tokio::spawn(async move {
                if let Err(error) = handle.cancel(Some("the question is over".to_owned())).await {
                    tracing::debug!(%error, "could not take back a question");
                }
            });
            return Ok(if over.is_cancelled() { AskedRequests::TakenBack(sheet) } else { ended(&fates) });
        }
    };
    match answered {
        Ok(ClientResult::ElicitResult(result)) => {
            if let Given::Unclear(sheet) = sheet.give(&result) {
                return Err(sheet);
            }
        }
        Ok(_) => {
            tracing::warn!("the MCP client answered a question with something else");
            sheet.reject();
        }
        Err(ServiceError::TransportClosed) => return Ok(AskedRequests::TakenBack(sheet)),
        Err(error) => {
            tracing::warn!(%error, "the MCP client could not ask its user");
            sheet.reject();
        }
    }
    Ok(AskedRequests::Answered)
}
