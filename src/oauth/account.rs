//! The account that ipybox has with one server: its token, got and renewed as needed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oauth2::TokenResponse as _;
use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig, OAuthTokenResponse,
    StoredCredentials,
};
use tokio::sync::Mutex as AsyncMutex;

use super::http::{Http, Reachable};
use super::store::{ForClient, Refused, Secret, Store, blocking, now};
use super::{Error, Settings, earlier, foreign, machine, told};
use crate::env::Redactor;
use crate::files::Stamp;

/// A token is renewed this long before it expires, and a tenth of its life if that is shorter.
const RENEWED_BEFORE: u64 = 30;
/// Metadata is read within this time: a hostile server may have many pages for us, each of them slow.
pub(super) const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The accounts of a workspace.
pub(crate) struct Accounts {
    directory: Option<PathBuf>,
    /// Learns each token, so that no error or log line has one.
    redactor: Redactor,
    open: Mutex<HashMap<String, Arc<Account>>>,
}

/// An account with one server.
pub(crate) struct Account {
    pub(super) server: Url,
    pub(super) settings: Settings,
    pub(super) store: Arc<Store>,
    /// Made at the first request: reading the machine's certificates takes some milliseconds.
    http: Mutex<Option<Arc<Http>>>,
    redactor: Redactor,
    /// Held while a token is got, so that simultaneous calls share it.
    current: AsyncMutex<Current>,
}

/// The token in memory.
#[derive(Default)]
struct Current {
    token: Option<Token>,
    /// Of which version of the store it is.
    version: Option<Stamp>,
}

/// The authorization server of an MCP server.
pub(super) struct Found {
    pub(super) metadata: AuthorizationMetadata,
    /// Whether it was published, rather than guessed as servers of revision 2025-03-26 have it.
    pub(super) is_published: bool,
}

/// An access token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    secret: String,
    /// When to renew it, in seconds since 1970.
    renew_at: Option<u64>,
}

impl Accounts {
    /// Accounts that are kept in a state directory, or in memory alone.
    pub(crate) fn new(directory: Option<PathBuf>, redactor: Redactor) -> Self {
        Self { directory, redactor, open: Mutex::default() }
    }

    /// The account with the server at `url`. Its query, which may hold a secret, is no part of it.
    pub(crate) fn with(&self, url: &Url, settings: Settings) -> Arc<Account> {
        let mut server = url.clone();
        server.set_query(None);
        server.set_fragment(None);
        let key = settings.key(&server);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get(&key) {
            Some(account) if account.settings == settings => Arc::clone(account),
            _ => {
                let store = Store::new(key.clone(), server.to_string(), self.directory.as_deref());
                let account = Arc::new(Account {
                    server,
                    settings,
                    store: Arc::new(store),
                    http: Mutex::default(),
                    redactor: self.redactor.clone(),
                    current: AsyncMutex::default(),
                });
                open.insert(key, Arc::clone(&account));
                account
            }
        }
    }
}

impl Token {
    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.secret)
    }

    fn of(credentials: &StoredCredentials) -> Option<Self> {
        let tokens = credentials.token_response.as_ref()?;
        let secret = tokens.access_token().secret().clone();
        Some(Self { secret, renew_at: renew_at(expires_at(credentials), tokens.expires_in()) })
    }

    pub(super) fn lasting(secret: String, lifetime: Option<Duration>) -> Self {
        let expires_at = lifetime.map(|lifetime| now().saturating_add(lifetime.as_secs()));
        Self { secret, renew_at: renew_at(expires_at, lifetime) }
    }

    fn is_fresh(&self) -> bool {
        self.renew_at.is_none_or(|renew_at| now() < renew_at)
    }
}

fn renew_at(expires_at: Option<u64>, lifetime: Option<Duration>) -> Option<u64> {
    let margin = lifetime.map_or(RENEWED_BEFORE, |lifetime| RENEWED_BEFORE.min(lifetime.as_secs() / 10));
    expires_at.map(|at| at.saturating_sub(margin))
}

/// When the access token expires, in seconds since 1970.
pub(super) fn expires_at(credentials: &StoredCredentials) -> Option<u64> {
    let lifetime = credentials.token_response.as_ref()?.expires_in()?;
    Some(credentials.token_received_at?.saturating_add(lifetime.as_secs()))
}

pub(super) fn refresh_token(tokens: &OAuthTokenResponse) -> Option<&str> {
    tokens.refresh_token().map(|token| token.secret().as_str())
}

impl Account {
    /// The token for the next request; `None` if a user has to log in first.
    ///
    /// # Errors
    /// There was one, and it cannot be renewed; or the client gets none.
    pub(crate) async fn token(&self) -> Result<Option<Token>, Error> {
        let mut current = self.current.lock().await;
        if let Some(token) = self.in_memory(&mut current).filter(|token| token.is_fresh()) {
            return Ok(Some(token.clone()));
        }
        let token = match self.settings.needs_user() {
            true => match blocking(&self.store, Store::load).await? {
                None => None,
                Some(secret) => match Token::of(&secret.credentials) {
                    Some(token) if token.is_fresh() => Some(token),
                    Some(token) => Some(Box::pin(self.renew(&token)).await?),
                    None => None,
                },
            },
            // Most such servers ask for a token at once; one that does not says so by its first answer.
            false => Some(Box::pin(machine::token(self, None)).await?),
        };
        Ok(self.keep(&mut current, token))
    }

    /// Another token in place of one that the server has refused; `None` if a user has to log in. `challenge` is the
    /// header `WWW-Authenticate` of its answer.
    ///
    /// # Errors
    /// As for [`token`](Self::token).
    pub(crate) async fn another(
        &self,
        refused: Option<&Token>,
        challenge: &str,
    ) -> Result<Option<Token>, Error> {
        let mut current = self.current.lock().await;
        if let Some(token) =
            self.in_memory(&mut current).filter(|token| Some(*token) != refused && token.is_fresh())
        {
            return Ok(Some(token.clone()));
        }
        let token = match (self.settings.needs_user(), refused) {
            (false, _) => Some(Box::pin(machine::token(self, Some(challenge))).await?),
            (true, Some(refused)) => Some(Box::pin(self.renew(refused)).await?),
            (true, None) => None,
        };
        Ok(self.keep(&mut current, token))
    }

    /// Whether a user has to log in, rather than the client by itself.
    pub(crate) fn needs_user(&self) -> bool {
        self.settings.needs_user()
    }

    /// Notes a request that was refused for want of a login, for `ipybox login`.
    pub(crate) async fn note(&self, refused: Refused) {
        if let Err(error) = blocking(&self.store, |store| store.note(refused)).await {
            tracing::warn!(error = crate::text::describe(&error), "what a server asks for was not noted");
        }
    }

    /// Forgets the login. Returns whether there was one.
    ///
    /// # Errors
    /// The store cannot be changed.
    pub(crate) async fn forget(&self) -> Result<bool, Error> {
        let mut current = self.current.lock().await;
        *current = Current::default();
        blocking(&self.store, Store::clear).await
    }

    /// Forgets the token in memory: another one was saved.
    pub(super) async fn reload(&self) {
        *self.current.lock().await = Current::default();
    }

    pub(super) fn redact(&self, secret: &str) {
        self.redactor.note("access token", secret);
    }

    /// The token in memory, if it is still what is kept.
    fn in_memory<'a>(&self, current: &'a mut Current) -> Option<&'a Token> {
        let version = self.store.stamp();
        if self.settings.needs_user() && version != current.version {
            *current = Current { token: None, version };
        }
        current.token.as_ref()
    }

    fn keep(&self, current: &mut Current, token: Option<Token>) -> Option<Token> {
        if let Some(token) = &token {
            self.redact(&token.secret);
        }
        // A renewal has written the store.
        *current = Current { token: token.clone(), version: self.store.stamp() };
        token
    }

    /// Renews a token by the refresh token, unless another process has done so.
    async fn renew(&self, stale: &Token) -> Result<Token, Error> {
        let _lock = blocking(&self.store, Store::lock).await?;
        let ended = |why: &str| Error::Ended(why.to_owned());
        let secret = blocking(&self.store, Store::load).await?;
        let Some(Secret { credentials, client_secret }) = secret else {
            return Err(ended("it was logged out"));
        };
        if let Some(token) = Token::of(&credentials).filter(|token| token != stale && token.is_fresh()) {
            return Ok(token);
        }
        if credentials.token_response.as_ref().and_then(refresh_token).is_none() {
            return Err(ended("the token has expired or was revoked, and there is none to renew it with"));
        }
        let (mut manager, resolved) = self.discover(None, client_secret.clone()).await?;
        // Tokens of one authorization server are not shown to another.
        if let (Some(before), Some(now)) = (&credentials.issuer, &resolved.metadata.issuer)
            && before != now
        {
            return Err(Error::Ended(format!(
                "the server now names another authorization server, `{}`",
                foreign(now)
            )));
        }
        let mut client = OAuthClientConfig::new(credentials.client_id.clone(), self.server.as_str());
        client.client_secret = client_secret.or_else(|| self.settings.client_secret());
        manager.configure_client(client).map_err(|error| Error::Unavailable(told(&error)))?;
        let renewed = manager.refresh_token().await.map_err(|error| match error {
            AuthError::TokenRefreshRejected(why) => Error::Ended(foreign(&why)),
            AuthError::AuthorizationRequired => ended("it belongs to another client"),
            // An authorization server that no longer knows the client will not know it later either.
            AuthError::TokenRefreshFailed(why) if is_final(&why) => Error::Ended(foreign(&why)),
            AuthError::TokenRefreshFailed(why) => Error::Unavailable(foreign(&why)),
            error => Error::Unavailable(told(&error)),
        })?;
        tracing::info!(server = %super::http::shown(&self.server), "the token for an MCP server was renewed");
        Ok(Token::lasting(renewed.access_token().secret().clone(), renewed.expires_in()))
    }

    /// Finds the authorization server.
    pub(super) async fn discover(
        &self,
        challenge: Option<&str>,
        client_secret: Option<String>,
    ) -> Result<(AuthorizationManager, Found), Error> {
        let http = self.http()?;
        http.reachable().check("the server's URL", self.server.as_str())?;
        let manager =
            AuthorizationManager::new_with_oauth_http_client(self.server.clone(), http.clone()).await;
        let mut manager = manager.map_err(|error| Error::Discovery(told(&error)))?;
        manager.set_credential_store(ForClient { store: Arc::clone(&self.store), client_secret });
        let resolving = async {
            let resolved = match challenge {
                Some(challenge) => manager.resolve_metadata_from_challenge(Some(challenge)).await,
                None => manager.resolve_metadata().await,
            };
            match resolved {
                Ok(resolved) => {
                    Ok(Found { is_published: resolved.source.is_discovered(), metadata: resolved.metadata })
                }
                Err(error) => {
                    let metadata = earlier::metadata(&http, &self.server, challenge, error).await?;
                    Ok(Found { metadata, is_published: true })
                }
            }
        };
        let resolved = tokio::time::timeout(DISCOVERY_TIMEOUT, resolving).await;
        let slow = |_| Error::Discovery(format!("no answer within {} s", DISCOVERY_TIMEOUT.as_secs()));
        let resolved = resolved.map_err(slow)?.map_err(|error: AuthError| Error::Discovery(told(&error)))?;
        http.reachable().check("its token endpoint", &resolved.metadata.token_endpoint)?;
        manager.set_metadata(resolved.metadata.clone());
        Ok((manager, resolved))
    }

    pub(super) fn http(&self) -> Result<Arc<Http>, Error> {
        let mut http = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(http) = &*http {
            return Ok(Arc::clone(http));
        }
        let reachable = Reachable::from(&self.server, self.settings.private_addresses);
        let made = Arc::new(Http::new(&self.server, reachable)?);
        *http = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// Whether an error of RFC 6749 §5.2 stays, however often a token is asked for.
fn is_final(why: &str) -> bool {
    ["invalid_client", "invalid_grant", "invalid_scope", "unauthorized_client", "unsupported_grant_type"]
        .iter()
        .any(|code| why.contains(code))
}
