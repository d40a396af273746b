//! Sends the user to the page on which calls are decided, if the client can open pages.

use rmcp::model::{
    ClientResult, CustomNotification, ElicitRequest, ElicitRequestParams, ElicitationAction,
    ServerNotification, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleServer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::faces::mcp_server::questions::{AskedRequests, QuestionSheet, ended};
use crate::faces::people::page::ApprovalPage;

/// Notifies a client that the user is done on a page (MCP 2025-11-25).
const COMPLETE: &str = "notifications/elicitation/complete";

/// Waits until the request is decided on the page, and sends the user there unless a browser shows it.
///
/// That the user agrees to open the page decides nothing.
///
/// # Errors
/// The page has ended, or the client did not open it: some say that they can, and cancel each invitation. No other is sent
/// then.
pub(super) async fn invite(
    peer: &Peer<RoleServer>,
    sheet: QuestionSheet,
    over: &CancellationToken,
    page: &ApprovalPage,
) -> Result<AskedRequests, QuestionSheet> {
    let invitation = if page.is_open() { None } else { send(peer, page).await };
    if invitation.is_some() {
        sheet.hand_out();
    }
    wait_for_page(peer, sheet, over, page, invitation).await
}

/// Waits until the request is decided on the page, to which the user may have been sent.
///
/// # Errors
/// As for [`invite`].
pub(super) async fn wait_for_page(
    peer: &Peer<RoleServer>,
    mut sheet: QuestionSheet,
    over: &CancellationToken,
    page: &ApprovalPage,
    mut invitation: Option<PageInvitation>,
) -> Result<AskedRequests, QuestionSheet> {
    let fates = sheet.fates();
    loop {
        let answered = async {
            match &mut invitation {
                Some(PageInvitation { handle: Some(handle), .. }) => (&mut handle.rx).await,
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
            Err(ServiceError::TransportClosed) => return Ok(AskedRequests::TakenBack(sheet)),
            _ => {
                tracing::info!("the MCP client does not open the approval page; it asks by forms");
                page.take_no_invitations();
                return Err(sheet);
            }
        }
        if let Some(invitation) = &mut invitation {
            invitation.handle = None;
        }
    }
}

/// The place of the page in words, for users whom the client does not send there; `None` if they need none.
pub(super) fn place(page: &ApprovalPage) -> Option<String> {
    let is_needed = !page.has_ended() && !page.is_open();
    is_needed.then(|| {
        format!("It can be decided on the page {}, too, which asks for the code {}", page.url(), page.code())
    })
}

/// A request that the client open the page.
pub(super) struct PageInvitation {
    id: String,
    /// `None` once the client has answered.
    handle: Option<RequestHandle<RoleServer>>,
}

async fn send(peer: &Peer<RoleServer>, page: &ApprovalPage) -> Option<PageInvitation> {
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
        Ok(handle) => Some(PageInvitation { id, handle: Some(handle) }),
        Err(error) => {
            tracing::warn!(%error, "could not send the user to the approval page");
            None
        }
    }
}

/// Closes what the client shows. Not waited for: a client that is gone takes no notifications.
fn end(peer: &Peer<RoleServer>, invitation: Option<PageInvitation>) {
    let Some(PageInvitation { id, handle }) = invitation else { return };
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
