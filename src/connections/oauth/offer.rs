//! Logins that an answer offers by a link: the users of a team's server have no terminal there, and not every client asks them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::account::Account;
use super::login::{LoginOpener, RefusedRequest, VisitedPage};
use super::{Error, TokenGrant};
use crate::ground::text::describe;

/// Tells the address of the page once, to those who write the answer.
struct AddressForAnswer(Mutex<Option<oneshot::Sender<Result<String, Error>>>>);

impl LoginOpener for AddressForAnswer {
    fn open<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<VisitedPage, String>> {
        Box::pin(async move {
            let told = self.0.lock().take().map(|answer| answer.send(Ok(url.to_owned())));
            match told {
                Some(Ok(())) => Ok(VisitedPage::Opened),
                _ => Err("nobody waits for the link any more".to_owned()),
            }
        })
    }
}

impl Account {
    /// Begins a login that goes on for `limit`, whoever follows its link. Returns the link, that of the login which goes on already
    /// if there is one; `None` if the answer of the login would come to this machine, which the user's browser does not reach.
    ///
    /// # Errors
    /// The login cannot begin.
    pub(crate) async fn offer_login(
        self: &Arc<Self>,
        refused: RefusedRequest<'_>,
        scopes: Vec<String>,
        limit: Duration,
    ) -> Result<Option<String>, Error> {
        let is_by_browser = matches!(self.server.settings.grant, TokenGrant::Code { redirect_uri: None, .. });
        if !is_by_browser || self.server.front.is_none() {
            return Ok(None);
        }
        let mut offered = self.offered.lock().await;
        if offered.is_some() {
            return Ok(offered.clone());
        }
        let (answer, address) = oneshot::channel();
        let account = Arc::clone(self);
        let token = refused.token.cloned();
        let challenge = refused.challenge.map(str::to_owned);
        tokio::spawn(async move {
            let opener = AddressForAnswer(Mutex::new(Some(answer)));
            let refused = RefusedRequest { token: token.as_ref(), challenge: challenge.as_deref() };
            let ended = Box::pin(account.login(Some(refused), &scopes, &opener, limit)).await;
            match (opener.0.into_inner(), ended) {
                // Nobody has a link yet, who could be told later.
                (Some(answer), Err(error)) => drop(answer.send(Err(error))),
                (_, Err(error)) => tracing::info!(error = %describe(&error), "an offered login has ended"),
                (_, Ok(())) => {}
            }
            *account.offered.lock().await = None;
        });
        // It ends without a word if another call has brought a token meanwhile.
        let Ok(address) = address.await else { return Ok(None) };
        *offered = Some(address?);
        Ok(offered.clone())
    }
}
