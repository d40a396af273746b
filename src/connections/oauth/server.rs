//! An MCP server behind a login, and its authorization server: found, checked, and spoken to within its bounds.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Url;
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata};

use super::http::{OauthClients, OauthHttp, ReachableAddresses};
use super::published::is_same_issuer;
use super::store::{ForClient, LoginStore, blocking};
use super::{Error, OauthSettings, earlier, foreign, private, with_causes};
use crate::ground::files::FrontSocket;
use crate::ground::text::Redactor;

/// Metadata is read within this time: a hostile server may have many pages for us, each of them slow.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// An MCP server behind a login.
pub(super) struct ProtectedServer {
    /// Its URL without user name, password and query, which may be secrets.
    pub(super) url: Url,
    pub(super) settings: OauthSettings,
    pub(super) store: Arc<LoginStore>,
    /// The server of a team, which has tokens of the user.
    pub(super) front: Option<FrontSocket>,
    redactor: Redactor,
    /// Made at the first request: reading the machine's certificates takes some milliseconds.
    clients: Mutex<Option<OauthClients>>,
}

/// The authorization server of an MCP server.
pub(super) struct AuthorizationServer {
    pub(super) metadata: AuthorizationMetadata,
    /// Whether it was published, rather than guessed as servers of revision 2025-03-26 have it.
    pub(super) is_published: bool,
    /// Sends the requests to it.
    pub(super) http: Arc<OauthHttp>,
}

/// The client that is kept with a login, and the server whose tokens they are.
#[derive(Default)]
pub(super) struct KeptClient {
    pub(super) client_secret: Option<String>,
    pub(super) method: Option<String>,
    pub(super) issuer: Option<String>,
}

impl ProtectedServer {
    pub(super) fn new(url: Url, settings: OauthSettings, store: LoginStore, redactor: Redactor) -> Self {
        Self { url, settings, store: Arc::new(store), front: None, redactor, clients: Mutex::default() }
    }

    /// Has the server of a team give tokens.
    pub(super) fn with_front(self, front: Option<FrontSocket>) -> Self {
        Self { front, ..self }
    }

    /// Checks that the authorization server is the one that the user names, or that a client's own secret went to before.
    pub(super) async fn check_issuer(&self, found: &AuthorizationServer) -> Result<(), Error> {
        let now = found.metadata.issuer.clone();
        let expected = match &self.settings.issuer {
            Some(issuer) => Some(issuer.clone()),
            None if self.settings.has_secret() => {
                blocking(&self.store, LoginStore::look).await?.and_then(|login| login.issuer)
            }
            None => None,
        };
        let is_same = |expected: &String| now.as_ref().is_some_and(|now| is_same_issuer(now, expected));
        if let Some(expected) = expected.filter(|expected| !is_same(expected)) {
            return Err(Error::OtherIssuer {
                expected: foreign(&expected),
                found: foreign(&now.unwrap_or_default()),
            });
        }
        match now.filter(|_| self.settings.has_secret()) {
            Some(now) => blocking(&self.store, move |store| store.pin(now)).await,
            None => Ok(()),
        }
    }

    /// Finds the authorization server.
    pub(super) async fn discover(
        &self,
        challenge: Option<&str>,
        kept: KeptClient,
    ) -> Result<(AuthorizationManager, AuthorizationServer), Error> {
        let KeptClient { client_secret, method, issuer } = kept;
        let http = self.http()?;
        http.reachable().check("the server's URL", self.url.as_str())?;
        let manager = AuthorizationManager::new_with_oauth_http_client(self.url.clone(), http.clone()).await;
        let mut manager = manager.map_err(|error| Error::Discovery(with_causes(&error)))?;
        http.published.prefer(issuer.or_else(|| self.settings.issuer.clone()));
        let store = Arc::clone(&self.store);
        manager.set_credential_store(ForClient { store, client_secret, method, token_endpoint: None });
        let resolving = async {
            let resolved = match challenge {
                Some(challenge) => manager.resolve_metadata_from_challenge(Some(challenge)).await,
                None => manager.resolve_metadata().await,
            };
            match resolved {
                Ok(resolved) => Ok((resolved.source.is_discovered(), resolved.metadata)),
                Err(error) => match private::metadata(&http, error).await {
                    Ok(metadata) => Ok((true, metadata)),
                    Err(error) => Ok((true, earlier::metadata(&http, &self.url, challenge, error).await?)),
                },
            }
        };
        let resolved = tokio::time::timeout(DISCOVERY_TIMEOUT, resolving).await;
        let slow = |_| Error::Discovery(format!("no answer within {} s", DISCOVERY_TIMEOUT.as_secs()));
        let (is_published, mut metadata) =
            resolved.map_err(slow)?.map_err(|error: AuthError| Error::Discovery(told(&error, &http)))?;
        metadata.issuer = http.published.own_spelling(metadata.issuer);
        let resolved = AuthorizationServer { metadata, is_published, http: Arc::clone(&http) };
        http.reachable().check("its token endpoint", &resolved.metadata.token_endpoint)?;
        let methods = resolved.metadata.code_challenge_methods_supported.as_deref();
        // MCP 2025-11-25: without it there is no saying whether the code is proven to be ours. Microsoft Entra, which does
        // prove it, says nothing: there the user names the issuer.
        let has_pkce = match methods {
            Some(methods) => methods.iter().any(|method| method == "S256"),
            None => self.settings.issuer.is_some(),
        };
        if resolved.is_published && self.settings.needs_user() && !has_pkce {
            return Err(Error::Discovery(
                "it does not say that it supports PKCE with `S256`, without which a code could be stolen\n\
                 hint: if it is known to support it, as Microsoft Entra, name it as `issuer` in `oauth` of the server's \
                 parameters"
                    .to_owned(),
            ));
        }
        manager.set_metadata(resolved.metadata.clone());
        Ok((manager, resolved))
    }

    /// For one conversation.
    pub(super) fn http(&self) -> Result<Arc<OauthHttp>, Error> {
        let reachable = ReachableAddresses::from(&self.url, self.settings.private_addresses);
        let mut clients = self.clients.lock();
        let made = match &*clients {
            Some(clients) => clients.clone(),
            None => OauthClients::new(&self.url, reachable)?,
        };
        *clients = Some(made.clone());
        let http = OauthHttp::new(made, reachable, self.redactor.clone());
        Ok(Arc::new(http.omitting_resource(self.settings.omits_resource)))
    }
}

/// Why there are no metadata, with what the servers have answered that were passed over.
fn told(error: &AuthError, http: &OauthHttp) -> String {
    match (with_causes(error), http.published.failures()) {
        (error, failures) if failures.is_empty() => error,
        (error, failures) => format!("{error} ({failures})"),
    }
}
