//! Logging in: a user visits the authorization server, and the answer becomes tokens.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use oauth2::TokenResponse as _;
use reqwest::Url;
use rmcp::transport::auth::{AuthError, AuthorizationManager, OAuthClientConfig};
use serde_json::json;

use super::account::Account;
use super::callback::LoginCallback;
use super::callback_answer::{self, ArrivedCallback, CallbackAnswer};
use super::published::is_same_issuer;
use super::registration::{self, CLIENT_NAME};
use super::server::{AuthorizationServer, KeptClient};
use super::store::{ForClient, LoginStore, blocking};
use super::token::AccessToken;
use super::{CLIENT_METADATA_URL, Error, TokenGrant, with_causes};
use crate::ground::text::describe;

/// The longest scopes that are asked for, in bytes: all are in the page's address.
const LONGEST_SCOPES: usize = 16 * 1024;

/// Sends a user to a page.
pub(crate) trait LoginOpener: Send + Sync {
    /// Has the user visit the authorization URL. The login goes on after it, until the browser has brought its answer.
    ///
    /// # Errors
    /// The user was not sent there; the error is a text.
    fn open<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<VisitedPage, String>>;
}

/// A request that the server has refused for want of a login.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusedRequest<'a> {
    /// The token that it had.
    pub(crate) token: Option<&'a AccessToken>,
    /// The header `WWW-Authenticate` of the answer.
    pub(crate) challenge: Option<&'a str>,
}

/// The result of a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VisitedPage {
    /// The user was sent there, and the browser brings the answer.
    Opened,
    /// The user has brought the redirect URI with the answer.
    Pasted(String),
}

impl Account {
    /// Logs a user in. `scopes` are asked for beside those that were granted before, and if both are empty, those that the
    /// server names.
    ///
    /// After a refused request the login is over as soon as another call has brought another token.
    ///
    /// Nothing of an earlier login is lost unless this one succeeds.
    ///
    /// # Errors
    /// There is no token.
    pub(crate) async fn login(
        self: &Arc<Self>,
        refused: Option<RefusedRequest<'_>>,
        scopes: &[String],
        opener: &dyn LoginOpener,
        timeout: Duration,
    ) -> Result<(), Error> {
        let challenge = refused.and_then(|refused| refused.challenge);
        let TokenGrant::Code { client, client_metadata_url, redirect_uri } = &self.server.settings.grant
        else {
            // Others need no user; whether they get a token shows at once.
            return self.another(None, challenge.unwrap_or_default()).await.map(drop);
        };
        let _turn = self.logging_in.lock().await;
        if let Some(refused) = refused
            && self.has_other_than(refused.token).await?
        {
            return Ok(());
        }
        blocking(&self.server.store, LoginStore::check).await?;
        let probed = match challenge {
            Some(challenge) => Some(challenge.to_owned()),
            None => self.probe().await?,
        };
        let (mut manager, resolved) = self.server.discover(probed.as_deref(), KeptClient::default()).await?;
        if !resolved.is_published && probed.is_none() {
            return Err(Error::NotNeeded);
        }
        self.server.check_issuer(&resolved).await?;
        let page = &resolved.metadata.authorization_endpoint;
        resolved.http.check_page("its authorization endpoint", page).await?;
        let scopes = self.scopes(&manager, &resolved, scopes).await?;
        let mut callback = match (&self.server.front, redirect_uri) {
            (Some(front), None) => {
                LoginCallback::at_front(front.clone(), self.server.url.host_str().unwrap_or_default())
            }
            (_, redirect_uri) => LoginCallback::listen(redirect_uri.as_deref()).await?,
        };
        // Our own document names addresses of this machine alone.
        let document = client_metadata_url.as_deref().filter(|document| {
            takes_documents(&resolved) && (callback.is_here() || *document != CLIENT_METADATA_URL)
        });
        let client = client.clone().or_else(|| document.map(|url| (url.to_owned(), None)));
        self.configure(&mut manager, &resolved, client, &callback.uri, &scopes).await?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = manager.get_authorization_url(&scopes).await;
        let url = url.map_err(|error| Error::Discovery(with_causes(&error)))?;
        let url = resolved.http.check_page("its authorization endpoint", &url).await?;
        // The server's own metadata name it, and may repeat the password of its URL.
        let resource = parameter(&url, "resource");
        resolved.http.reachable().check("its `resource`", &resource)?;
        let url = if self.server.settings.omits_resource { without_resource(url) } else { url };
        callback.expect(&parameter(&url, "state")).await?;
        let asking = self.ask(&manager, &resolved, &mut callback, &url, opener);
        let asked = tokio::time::timeout(timeout, asking).await;
        callback.end().await;
        asked.unwrap_or(Err(Error::Silent { after: timeout }))?;
        self.reload().await;
        Ok(())
    }

    /// Gives `manager` the client, which is registered now if there is none.
    async fn configure(
        &self,
        manager: &mut AuthorizationManager,
        resolved: &AuthorizationServer,
        client: Option<(String, Option<String>)>,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<(), Error> {
        // A secret that the user gives is not kept.
        let (config, client_secret, method) = match client {
            Some((id, secret)) => {
                let mut config = OAuthClientConfig::new(id, redirect_uri);
                config.client_secret = secret;
                (config, None, None)
            }
            None => {
                let registered = registration::register(resolved, redirect_uri, scopes).await?;
                let mut config = OAuthClientConfig::new(registered.client_id, redirect_uri);
                config.client_secret.clone_from(&registered.client_secret);
                (config, registered.client_secret, Some(registered.method))
            }
        };
        registration::authenticate_by(method.as_deref(), resolved, manager);
        manager.configure_client(config).map_err(|error| Error::Registration(with_causes(&error)))?;
        let token_endpoint = Some(resolved.metadata.token_endpoint.clone());
        let store = self.server.store.clone();
        manager.set_credential_store(ForClient { store, client_secret, method, token_endpoint });
        Ok(())
    }

    /// Sends the user to `url`, and waits for the answer that becomes tokens.
    async fn ask(
        &self,
        manager: &AuthorizationManager,
        resolved: &AuthorizationServer,
        callback: &mut LoginCallback,
        url: &Url,
        opener: &dyn LoginOpener,
    ) -> Result<(), Error> {
        let mut opening = Some(opener.open(url.as_str()));
        loop {
            let opened = async {
                match &mut opening {
                    Some(opening) => opening.await,
                    None => std::future::pending().await,
                }
            };
            let (answer, page) = tokio::select! {
                arrived = callback.answer() => match arrived {
                    Some(ArrivedCallback { answer, page }) => (answer, Some(page)),
                    None => return Err(Error::Answer("the listener for it has ended".to_owned())),
                },
                opened = opened => match opened.map_err(Error::NotOpened)? {
                    VisitedPage::Opened => {
                        opening = None;
                        continue;
                    }
                    VisitedPage::Pasted(pasted) => (pasted_answer(&pasted, &parameter(url, "state")), None),
                },
            };
            let outcome = match answer {
                Ok(answer) => self.exchange(manager, resolved, answer).await,
                Err(error) => Err(error),
            };
            if let Some(page) = page {
                // The browser may be gone.
                page.send(outcome.as_ref().copied().map_err(|error| describe(error))).ok();
            }
            return outcome;
        }
    }

    async fn exchange(
        &self,
        manager: &AuthorizationManager,
        resolved: &AuthorizationServer,
        answer: CallbackAnswer,
    ) -> Result<(), Error> {
        let CallbackAnswer { code, state, issuer } = answer;
        let known = resolved.metadata.issuer.as_ref();
        let issuer =
            issuer.map(|now| known.filter(|known| is_same_issuer(known, &now)).cloned().unwrap_or(now));
        // A renewal that goes on would write over it.
        let _lock = blocking(&self.server.store, LoginStore::lock).await?;
        let exchanged = manager.exchange_code_for_token_with_issuer(&code, &state, issuer.as_deref()).await;
        let tokens = exchanged.map_err(|error| match error {
            AuthError::TokenExchangeFailed(why) => Error::Token(resolved.http.why(&why)),
            AuthError::CredentialStoreError(why) => Error::NotKept(why),
            error @ (AuthError::AuthorizationServerMismatch { .. }
            | AuthError::AuthorizationServerMissingIssuer { .. }
            | AuthError::AuthorizationFailed(_)) => Error::Answer(with_causes(&error)),
            error => Error::Token(with_causes(&error)),
        })?;
        self.redact(tokens.access_token().secret());
        Ok(())
    }

    /// The scopes to ask for.
    async fn scopes(
        &self,
        manager: &AuthorizationManager,
        resolved: &AuthorizationServer,
        wanted: &[String],
    ) -> Result<Vec<String>, Error> {
        let known = blocking(&self.server.store, LoginStore::look).await?.unwrap_or_default();
        let refused = known.refused.map(|refused| refused.scopes).unwrap_or_default();
        let more = !wanted.is_empty() || !refused.is_empty();
        let mut scopes: Vec<String> = Vec::new();
        let granted = known.scopes.iter().filter(|_| more);
        for scope in self.server.settings.scopes.iter().chain(granted).chain(&refused).chain(wanted) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        let is_initial = scopes.is_empty();
        if is_initial {
            scopes = manager.select_initial_scopes(&[]).await;
        }
        if scopes.iter().map(String::len).sum::<usize>() > LONGEST_SCOPES {
            let what = "is asked for more scopes than a page's address can have";
            return Err(Error::Discovery(format!("the login {what}: {LONGEST_SCOPES} bytes")));
        }
        if is_initial {
            return Ok(scopes);
        }
        // Without it some authorization servers give nothing to renew tokens with (SEP-2207).
        let offline = "offline_access".to_owned();
        let supported = resolved.metadata.scopes_supported.as_deref().unwrap_or_default();
        if supported.contains(&offline) && !scopes.contains(&offline) {
            scopes.push(offline);
        }
        Ok(scopes)
    }

    /// The server's words without a token: the challenge of its refusal, empty if it has none. `None` if it does not
    /// refuse.
    async fn probe(&self) -> Result<Option<String>, Error> {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": CLIENT_NAME, "version": env!("CARGO_PKG_VERSION")},
            },
        });
        let request = http::Request::post(self.server.url.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(body.to_string().into_bytes())
            .map_err(|error| Error::Discovery(error.to_string()))?;
        let http = self.server.http()?;
        http.reachable().check("the server's URL", self.server.url.as_str())?;
        // A server of the old transport answers 404 or 405, and one that streams may not end its answer.
        let answer = match http.send(request).await {
            Ok(answer) => answer,
            Err(error) => return Err(Error::Discovery(with_causes(error.as_ref()))),
        };
        if answer.status() != http::StatusCode::UNAUTHORIZED {
            return Ok(None);
        }
        let challenges = answer.headers().get_all(WWW_AUTHENTICATE).iter();
        let challenges: Vec<_> = challenges.filter_map(|value| value.to_str().ok()).collect();
        Ok(Some(challenges.join(", ")))
    }
}

/// Whether the authorization server takes the URL of a metadata document for a client's identifier.
fn takes_documents(resolved: &AuthorizationServer) -> bool {
    let field = resolved.metadata.additional_fields.get("client_id_metadata_document_supported");
    field.and_then(serde_json::Value::as_bool).unwrap_or_default()
}

/// The authorization URL without the parameter `resource`.
fn without_resource(mut url: Url) -> Url {
    let pairs = url.query_pairs().filter(|(name, _)| name != "resource");
    let pairs: Vec<_> = pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    url.query_pairs_mut().clear().extend_pairs(pairs);
    url
}

/// The value of a parameter of the authorization URL. The last one: an endpoint may have others of its own.
fn parameter(url: &Url, name: &str) -> String {
    let found = url.query_pairs().filter(|(key, _)| key == name).last();
    found.map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// The answer in a redirect URI that a user has pasted, or in its query alone.
fn pasted_answer(pasted: &str, state: &str) -> Result<CallbackAnswer, Error> {
    let pasted = pasted.trim();
    let query = match Url::parse(pasted) {
        Ok(url) => url.query().unwrap_or_default().to_owned(),
        Err(_) => pasted.trim_start_matches('?').to_owned(),
    };
    callback_answer::read(&query, state).map_err(|error| {
        error.unwrap_or_else(|| {
            let what =
                "paste the whole address that the browser shows after the login, with `code` and `state`";
            Error::Answer(format!("it is not the address that belongs to this login; {what}"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pasted_address_is_read_and_one_of_another_login_refused() {
        for pasted in ["http://localhost:1/callback?code=c&state=s", " ?code=c&state=s\n", "code=c&state=s"] {
            assert_eq!(pasted_answer(pasted, "s").unwrap().code, "c", "{pasted}");
        }
        for pasted in
            ["", "c", "http://localhost:1/callback?code=c&state=t", "http://localhost:1/callback?code=c"]
        {
            let error = pasted_answer(pasted, "s").unwrap_err().to_string();
            assert!(error.contains("the whole address"), "{pasted}: {error}");
        }
    }
}
