//! A user logs in while a registration or a call waits.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use crate::approval::{Action, ApprovalQueue, Approver, DenialReason, Gate, LOGIN, OnPage, Target};
use crate::connections::mcp_client::{AccessRefusal, Connector, ServerParameters};
use crate::connections::oauth::{LoginOpener, VisitedPage};
use crate::ground::text::describe;

/// The time that a login may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The time that a login may take which an answer offers: its reader may be away.
const OFFER_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The number of logins that one request may take: a server that always wants more scopes gets no further.
pub(crate) const LOGINS: usize = 2;

/// Has the user of `approver` log in to the server that has answered with `refusal`. The request can be made again
/// afterwards.
///
/// # Errors
/// The refusal, with why nobody has logged in.
pub(crate) async fn log_in(
    connector: &Connector,
    gate: &Gate,
    approver: &Approver,
    name: &str,
    parameters: &ServerParameters,
    refusal: AccessRefusal,
) -> Result<(), AccessRefusal> {
    if refusal.command.is_none() {
        return Err(refusal);
    }
    let Some(queue) = approver.page_queue() else {
        return Err(offer(connector, gate, name, parameters, refusal).await);
    };
    let user = User { gate, queue, name, page: Mutex::default() };
    let login = connector.log_in(parameters, Some(&refusal), &[], &user, LOGIN_TIMEOUT).await;
    let page = user.page.into_inner();
    match (login, page) {
        (Ok(()), page) => {
            if let Some(page) = page {
                page.on_record.result(|| json!("logged in"));
            }
            Ok(())
        }
        (Err(error), page) => {
            let why = describe(&error);
            if let Some(page) = page {
                page.on_record.error(&why);
            }
            Err(AccessRefusal { why: Some(why), ..refusal })
        }
    }
}

/// Offers a login by a link in the next answer, where a user's browser can bring its end: nobody can be asked now. Returns the refusal
/// with what becomes of that.
async fn offer(
    connector: &Connector,
    gate: &Gate,
    name: &str,
    parameters: &ServerParameters,
    refusal: AccessRefusal,
) -> AccessRefusal {
    let url = match connector.offer_login(parameters, &refusal, OFFER_TIMEOUT).await {
        Ok(Some(url)) => url,
        Ok(None) => return refusal,
        Err(error) => return AccessRefusal { why: Some(describe(&error)), command: None, ..refusal },
    };
    let arguments = [("server_name", json!(name)), ("url", json!(url))];
    let why = match gate.offer_page(Action::ours(LOGIN, arguments, Target::Url(url.clone()))).await {
        Ok(on_record) => {
            on_record.result(|| json!("offered"));
            let minutes = OFFER_TIMEOUT.as_secs() / 60;
            connector.note_offer(format!(
                "[The server `{name}` asks for a login. Give your user this link, which holds for {minutes} minutes, and do the same \
                 again afterwards: {url} ]"
            ));
            "the user has to log in, by the link that this answer has".to_owned()
        }
        Err(denied) => denied.to_string(),
    };
    // Users of a team's server cannot run commands there.
    AccessRefusal { why: Some(why), command: None, ..refusal }
}

/// A refusal that says itself what no answer has said yet: by which links the user can log in.
pub(crate) fn with_offers(connector: &Connector, refusal: AccessRefusal) -> AccessRefusal {
    let words: Vec<String> = refusal.why.into_iter().chain(connector.take_offers()).collect();
    AccessRefusal { why: (!words.is_empty()).then(|| words.join("\n")), ..refusal }
}

/// The user who answers approval requests.
struct User<'a> {
    gate: &'a Gate,
    queue: &'a Arc<ApprovalQueue>,
    name: &'a str,
    page: Mutex<Option<OnPage>>,
}

impl LoginOpener for User<'_> {
    fn open<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<VisitedPage, String>> {
        Box::pin(async move {
            let arguments = [("server_name", json!(self.name)), ("url", json!(url))];
            let action = Action::ours(LOGIN, arguments, Target::Url(url.to_owned()));
            let opened = self.gate.send_to_page(action, self.queue).await;
            let page = opened.map_err(|denied: DenialReason| denied.to_string())?;
            *self.page.lock() = Some(page);
            Ok(VisitedPage::Opened)
        })
    }
}
