//! Sends the user to the page on which calls are decided, if the client can open pages.

use rmcp::model::{
    ClientResult, CustomNotification, ElicitRequest, ElicitRequestParams, ElicitationAction,
    ServerNotification, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleServer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::faces::mcp_server::questions::{AskedRequests, Sheet, ended};
use crate::faces::people::page::Page;

/// Notifies a client that the user is done on a page (MCP 2025-11-25).
const COMPLETE: &str = "notifications/elicitation/complete";

/// Waits until the request is decided on the page, and sends the user there unless a browser shows it.
///
/// That the user agrees to open the page decides nothing; that they do not is a refusal.
///
/// # Errors
/// The page has ended.
pub(super) async fn invite(
    peer: &Peer<RoleServer>,
    mut sheet: Sheet,
    over: &CancellationToken,
    page: &Page,
) -> Result<AskedRequests, Sheet> {
    if page.has_ended() {
        return Err(sheet);
    }
    let mut invitation = if page.is_open() { None } else { send(peer, page).await };
    if invitation.is_some() {
        sheet.hand_out();
    }
    let fates = sheet.fates();
    loop {
        let answered = async {
            match &mut invitation {
                Some(Invitation { handle: Some(handle), .. }) => (&mut handle.rx).await,
                _ => std::future::pending().await,
            }
        };
        let answered = tokio::select! {
            answered = answered => answered.unwrap_or(Err(ServiceError::TransportClosed)),
            () = sheet.closed() => {
                end(peer, invitation);
                return Ok(ended(&fates));
            }
            () = page.ended() => {
                end(peer, invitation);
                return Err(sheet);
            }
            () = over.cancelled() => {
                end(peer, invitation);
                return Ok(AskedRequests::TakenBack(sheet));
            }
        };
        match answered {
            Ok(ClientResult::ElicitResult(result)) if result.action == ElicitationAction::Accept => {}
            Ok(ClientResult::ElicitResult(_)) => {
                // A late answer has no effect.
                sheet.reject();
                return Ok(AskedRequests::Answered);
            }
            Err(ServiceError::TransportClosed) => return Ok(AskedRequests::TakenBack(sheet)),
            // The page is there nevertheless.
            Ok(_) => tracing::warn!("the MCP client answered a question with something else"),
            Err(error) => tracing::warn!(%error, "the MCP client could not open the approval page"),
        }
        if let Some(invitation) = &mut invitation {
            invitation.handle = None;
        }
    }
}

struct Invitation {
    id: String,
    /// `None` once the client has answered.
    handle: Option<RequestHandle<RoleServer>>,
}

async fn send(peer: &Peer<RoleServer>, page: &Page) -> Option<Invitation> {
    let id = uuid::Uuid::new_v4().to_string();
    let message = format!(
        "Code in the kernel waits for your decision. Open the page to decide? It asks for this code: {}",
        page.code()
    );
    let elicitation = ElicitRequestParams::UrlElicitationParams {
        meta: None,
        message,
        url: page.url(),
        elicitation_id: id.clone(),
    };
    let elicitation = ServerRequest::ElicitRequest(ElicitRequest::new(elicitation));
    match peer.send_cancellable_request(elicitation, PeerRequestOptions::no_options()).await {
        Ok(handle) => Some(Invitation { id, handle: Some(handle) }),
        Err(error) => {
            tracing::warn!(%error, "could not send the user to the approval page");
            None
        }
    }
}

/// Closes what the client shows. Not waited for: a client that is gone takes no notifications.
fn end(peer: &Peer<RoleServer>, invitation: Option<Invitation>) {
    let Some(Invitation { id, handle }) = invitation else { return };
    let peer = peer.clone();
    tokio::spawn(async move {
        let ended = match handle {
            Some(handle) => handle.cancel(Some("the question is over".to_owned())).await,
            None => {
                let complete = CustomNotification::new(COMPLETE, Some(json!({"elicitationId": id})));
                peer.send_notification(ServerNotification::CustomNotification(complete)).await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "could not take back a question");
        }
    });
}
