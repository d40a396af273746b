//! Asks the user by sending the request `elicitation/create`.

use rmcp::model::{ClientResult, ElicitRequest, ElicitationAction, ServerRequest};
use rmcp::service::{PeerRequestOptions, ServiceError};
use rmcp::{Peer, RoleServer};

use tokio_util::sync::CancellationToken;

use super::invite::{invite, place, wait_for_page};
use crate::faces::mcp_server::ledger::ClientPages;
use crate::faces::mcp_server::questions::{AskedRequests, GivenAnswers, QuestionSheet, ended};

/// Asks the client's user, and answers the approval requests.
///
/// If the session has a page for approval and the client opens it, the user is sent there. Otherwise a form names it, as it
/// names other pages that the client does not open. The elicitation is cancelled when all approval requests have expired, when their code no longer waits, and on `over`. Then, and when the client is
/// gone, the requests can be asked again.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    mut sheet: QuestionSheet,
    over: &CancellationToken,
    pages: &ClientPages,
) -> AskedRequests {
    if sheet.is_closed() {
        return ended(&sheet.fates());
    }
    if !pages.opens {
        sheet.name_pages();
    }
    if let Some(page) = &pages.approval
        && sheet.is_for_page()
    {
        if pages.opens && page.takes_invitations() {
            match invite(peer, sheet, over, page).await {
                Ok(asked) => return asked,
                Err(unasked) => sheet = unasked,
            }
        }
        if let Some(words) = place(page) {
            sheet.name_place(words);
        }
    }
    loop {
        match ask_once(peer, sheet, over, pages).await {
            Ok(asked) => return asked,
            Err(unclear) => sheet = unclear,
        }
    }
}

/// # Errors
/// The answer was not clear.
async fn ask_once(
    peer: &Peer<RoleServer>,
    mut sheet: QuestionSheet,
    over: &CancellationToken,
    pages: &ClientPages,
) -> Result<AskedRequests, QuestionSheet> {
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
            let page = pages.approval.as_deref().filter(|page| page.is_open() && sheet.is_for_page());
            if result.action == ElicitationAction::Cancel
                && let Some(page) = page
            {
                // A client may cancel by itself. Its user sees the page, and declines if that is meant.
                return Ok(wait_for_page(peer, sheet, over, page, None).await.unwrap_or_else(|sheet| {
                    sheet.reject();
                    AskedRequests::Answered
                }));
            }
            if let GivenAnswers::Unclear(sheet) = sheet.give(&result) {
                return Err(sheet);
            }
        }
        Ok(_) => {
            tracing::warn!("the MCP client answered a question with something else");
            sheet.reject();
        }
        Err(ServiceError::TransportClosed) => return Ok(AskedRequests::TakenBack(sheet)),
        Err(error) if sheet.opens_page() => {
            tracing::debug!(%error, "the MCP client opens no page; its address is in a form");
            sheet.name_pages();
            return Err(sheet);
        }
        Err(error) => {
            tracing::warn!(%error, "the MCP client could not ask its user");
            sheet.reject();
        }
    }
    Ok(AskedRequests::Answered)
}
