//! The account that ipybox has with one server: its token, got and renewed as needed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oauth2::TokenResponse as _;
use parking_lot::Mutex;
use reqwest::Url;
use rmcp::transport::auth::{AuthError, OAuthClientConfig};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::task::TaskTracker;

use super::published::is_same_issuer;
use super::server::{KeptClient, ProtectedServer};
use super::store::{LoginSecrets, LoginStore, RefusedAccess, blocking};
use super::token::AccessToken;
use super::{Error, OauthSettings, foreign, machine, registration, with_causes};
use crate::ground::files::{FileStamp, FrontSocket};
use crate::ground::text::Redactor;
use crate::ground::web::bare;

/// The time that a failure to get a token holds for further calls.
const FAILURE_HOLDS: Duration = Duration::from_secs(3);

/// The accounts of a workspace.
pub(crate) struct Accounts {
    directory: Option<PathBuf>,
    /// The server of a team, which has tokens of the user.
    front: Option<FrontSocket>,
    /// Learns each token, so that no error or log line has one.
    redactor: Redactor,
    open: Mutex<HashMap<String, Arc<Account>>>,
    /// Notes with the links of logins, for the next answer.
    pub(crate) offers: Mutex<Vec<String>>,
    /// The tasks that renew tokens.
    tasks: TaskTracker,
}

/// An account with one server.
pub(crate) struct Account {
    pub(super) server: ProtectedServer,
    redactor: Redactor,
    tasks: TaskTracker,
    /// Held while a user logs in: others wait for it.
    pub(super) logging_in: AsyncMutex<()>,
    /// The link of the login that answers offer, as long as it goes on.
    pub(super) offered: AsyncMutex<Option<String>>,
    /// Held while a token is got, so that simultaneous calls share it.
    current: AsyncMutex<Current>,
}

/// The token in memory.
#[derive(Default)]
struct Current {
    token: Option<AccessToken>,
    /// Whether it was looked for: if there is none then, a user has to log in.
    is_known: bool,
    /// Of which version of the store it is.
    version: Option<FileStamp>,
    /// When there was no token, and why: calls that have waited for it do not try the same once more.
    failed: Option<(Instant, String)>,
}

/// A token that was got, and of which version of the store it is.
struct Got {
    token: AccessToken,
    version: Option<FileStamp>,
}

impl From<AccessToken> for Got {
    /// Of a client by itself, whose token is not kept.
    fn from(token: AccessToken) -> Self {
        Self { token, version: None }
    }
}

impl Accounts {
    /// Accounts that are kept in a state directory, or in memory alone.
    pub(crate) fn new(directory: Option<PathBuf>, front: Option<FrontSocket>, redactor: Redactor) -> Self {
        if let Some(Err(error)) = directory.as_deref().map(LoginStore::settle) {
            tracing::warn!(error = %error, "a login of an earlier process is not complete yet");
        }
        let open = Mutex::default();
        Self { directory, front, redactor, open, offers: Mutex::default(), tasks: TaskTracker::new() }
    }

    /// Waits for tokens that are being renewed: one that is lost ends the login.
    pub(crate) async fn settled(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// The account with the server at `url`. Its user name, password and query, which the authorization server must not see,
    /// are no part of it.
    pub(crate) fn with(&self, url: &Url, settings: OauthSettings) -> Arc<Account> {
        let server = bare(url);
        let key = settings.key(&server);
        let mut open = self.open.lock();
        match open.get(&key) {
            Some(account) if account.server.settings == settings => Arc::clone(account),
            _ => {
                let store = LoginStore::new(key.clone(), server.to_string(), self.directory.as_deref());
                let account = Arc::new(Account {
                    server: ProtectedServer::new(server, settings, store, self.redactor.clone())
                        .with_front(self.front.clone()),
                    redactor: self.redactor.clone(),
                    tasks: self.tasks.clone(),
                    logging_in: AsyncMutex::default(),
                    offered: AsyncMutex::default(),
                    current: AsyncMutex::default(),
                });
                open.insert(key, Arc::clone(&account));
                account
            }
        }
    }
}

impl Current {
    /// The failure of a moment ago, if there was one.
    fn check_failure(&self) -> Result<(), Error> {
        match &self.failed {
            Some((when, why)) if when.elapsed() < FAILURE_HOLDS => Err(Error::Unavailable(why.clone())),
            _ => Ok(()),
        }
    }
}

impl Account {
    /// The token for the next request; `None` if a user has to log in first.
    ///
    /// # Errors
    /// There was one, and it cannot be renewed; or the client gets none.
    pub(crate) async fn token(self: &Arc<Self>) -> Result<Option<AccessToken>, Error> {
        let mut current = self.current.lock().await;
        if let Some(token) = self.in_memory(&mut current).filter(|token| token.is_fresh()) {
            return Ok(Some(token.clone()));
        }
        // Most servers behind a URL have no login: their requests do not read the store each time.
        if current.token.is_none() && current.is_known && self.server.settings.needs_user() {
            return Ok(None);
        }
        current.check_failure()?;
        let got = self.fetched().await;
        self.keep(&mut current, got)
    }

    /// The token that is kept, renewed if needed, or that of a client.
    async fn fetched(self: &Arc<Self>) -> Result<Option<Got>, Error> {
        if !self.server.settings.needs_user() {
            // Most such servers ask for a token at once; one that does not says so by its first answer.
            return Ok(Some(Box::pin(machine::token(&self.server, None)).await?.into()));
        }
        let (version, token) = blocking(&self.server.store, kept_token).await?;
        Ok(match token {
            Some(token) if token.is_fresh() => Some(Got { token, version }),
            Some(token) => Some(Box::pin(self.renew(&token)).await?),
            None => None,
        })
    }

    /// Another token in place of one that the server has refused; `None` if a user has to log in. `challenge` is the
    /// header `WWW-Authenticate` of its answer.
    ///
    /// # Errors
    /// As for [`token`](Self::token).
    pub(crate) async fn another(
        self: &Arc<Self>,
        refused: Option<&AccessToken>,
        challenge: &str,
    ) -> Result<Option<AccessToken>, Error> {
        let mut current = self.current.lock().await;
        if let Some(token) =
            self.in_memory(&mut current).filter(|token| Some(*token) != refused && token.is_fresh())
        {
            return Ok(Some(token.clone()));
        }
        current.check_failure()?;
        let got = match (self.server.settings.needs_user(), refused) {
            (false, _) => {
                Box::pin(machine::token(&self.server, Some(challenge))).await.map(|token| Some(token.into()))
            }
            (true, Some(refused)) => Box::pin(self.renew(refused)).await.map(Some),
            (true, None) => Ok(None),
        };
        self.keep(&mut current, got)
    }

    /// Whether a user has to log in, rather than the client by itself.
    pub(crate) fn needs_user(&self) -> bool {
        self.server.settings.needs_user()
    }

    /// Whether there is a token that the server has not refused: another call has logged in meanwhile.
    pub(super) async fn has_other_than(&self, refused: Option<&AccessToken>) -> Result<bool, Error> {
        let secret = blocking(&self.server.store, LoginStore::load).await?;
        let token = secret.and_then(|secret| AccessToken::of(&secret.credentials));
        Ok(token.is_some_and(|token| Some(&token) != refused && token.is_fresh()))
    }

    /// Notes a request that was refused for want of a login, for `ipybox login`.
    pub(crate) async fn note(&self, mut refused: RefusedAccess) {
        // It may repeat the token.
        refused.challenge = refused.challenge.map(|text| self.redactor.redact(&text).into_owned());
        if let Err(error) = blocking(&self.server.store, |store| store.note(refused)).await {
            tracing::warn!(
                error = crate::ground::text::describe(&error),
                "what a server asks for was not noted"
            );
        }
    }

    /// Forgets the login. Returns whether there was one.
    ///
    /// # Errors
    /// The store cannot be changed.
    pub(crate) async fn forget(&self) -> Result<bool, Error> {
        let mut current = self.current.lock().await;
        *current = Current::default();
        // A renewal in another process would write what is to be forgotten.
        let _lock = blocking(&self.server.store, LoginStore::lock).await?;
        blocking(&self.server.store, LoginStore::clear).await
    }

    /// Forgets the login that is kept; a token in memory is of an earlier version then. Returns whether there was one. Blocks.
    ///
    /// # Errors
    /// The store cannot be changed.
    pub(crate) fn forget_kept(&self) -> Result<bool, Error> {
        let store = &self.server.store;
        let _lock = store.lock().map_err(Error::Store)?;
        store.clear().map_err(Error::Store)
    }

    /// Forgets the token in memory: another one was saved.
    pub(super) async fn reload(&self) {
        *self.current.lock().await = Current::default();
    }

    pub(super) fn redact(&self, secret: &str) {
        self.redactor.note("access token", secret);
    }

    /// The token in memory, if it is still what is kept.
    fn in_memory<'a>(&self, current: &'a mut Current) -> Option<&'a AccessToken> {
        let version = self.server.store.stamp();
        if self.server.settings.needs_user() && version != current.version {
            *current = Current { version, ..Current::default() };
        }
        current.token.as_ref()
    }

    fn keep(
        &self,
        current: &mut Current,
        got: Result<Option<Got>, Error>,
    ) -> Result<Option<AccessToken>, Error> {
        if let Ok(Some(Got { token, .. })) = &got {
            self.redact(&token.secret);
        }
        let failed = match &got {
            Err(Error::Unavailable(why) | Error::Discovery(why)) => Some((Instant::now(), why.clone())),
            _ => None,
        };
        let is_known = got.is_ok();
        // A renewal has written the store. What another process writes after that is looked at the next time.
        let version = match &got {
            Ok(Some(Got { version: Some(version), .. })) => Some(*version),
            _ => current.version,
        };
        let got = got.map(|got| got.map(|Got { token, .. }| token));
        let token = got.as_ref().ok().cloned().flatten();
        *current = Current { token, is_known, version, failed };
        got
    }

    /// Renews a token in a task of its own: a call that is cancelled meanwhile does not lose the new one.
    async fn renew(self: &Arc<Self>, stale: &AccessToken) -> Result<Got, Error> {
        let account = Arc::clone(self);
        let stale = stale.clone();
        let renewing = self.tasks.spawn(async move { account.renew_now(&stale).await });
        renewing.await.unwrap_or_else(|error| Err(Error::Unavailable(error.to_string())))
    }

    /// Renews a token by the refresh token, unless another process has done so.
    async fn renew_now(&self, stale: &AccessToken) -> Result<Got, Error> {
        let _lock = blocking(&self.server.store, LoginStore::lock).await?;
        let version = self.server.store.stamp();
        let secret = blocking(&self.server.store, LoginStore::load).await?;
        let Some(secret) = secret else { return Err(ended("it was logged out")) };
        if let Some(token) =
            AccessToken::of(&secret.credentials).filter(|token| token != stale && token.is_fresh())
        {
            return Ok(Got { token, version });
        }
        let renewed = self.refreshed(secret).await;
        if let Err(Error::Ended(_)) = &renewed {
            // Nothing that is kept is of use any more.
            blocking(&self.server.store, LoginStore::end).await?;
        }
        // Nobody else writes it as long as we have its lock.
        renewed.map(|token| Got { token, version: self.server.store.stamp() })
    }

    async fn refreshed(&self, secret: LoginSecrets) -> Result<AccessToken, Error> {
        let LoginSecrets { credentials, client_secret, method, token_endpoint } = secret;
        if credentials.token_response.as_ref().and_then(|tokens| tokens.refresh_token()).is_none() {
            return Err(ended("the token has expired or was revoked, and there is none to renew it with"));
        }
        let secret = client_secret.clone();
        let way = method.clone();
        let kept = KeptClient { client_secret: secret, method: way, issuer: credentials.issuer.clone() };
        let (mut manager, found) = self.server.discover(None, kept).await?;
        // Tokens of one authorization server, and the client's secret, are not shown to another.
        let is_same = match &credentials.issuer {
            Some(issuer) => found.metadata.issuer.as_ref().is_some_and(|now| is_same_issuer(now, issuer)),
            None => origin(&found.metadata.token_endpoint) == token_endpoint.as_deref().and_then(origin),
        };
        if !is_same {
            let now = found.metadata.issuer.as_deref().unwrap_or(&found.metadata.token_endpoint);
            return Err(Error::Ended(format!(
                "the server now names another authorization server, `{}`",
                foreign(now)
            )));
        }
        let mut client = OAuthClientConfig::new(credentials.client_id.clone(), self.server.url.as_str());
        client.client_secret = client_secret.or_else(|| self.server.settings.client_secret());
        registration::authenticate_by(method.as_deref(), &found, &mut manager);
        if self.server.settings.omits_resource {
            // Without `resource` the scopes name it: Microsoft Entra wants them. Others take it that nothing changes.
            manager.set_refresh_scopes(credentials.granted_scopes.clone());
        }
        manager.configure_client(client).map_err(|error| Error::Unavailable(with_causes(&error)))?;
        let renewed = manager.refresh_token().await.map_err(|error| match error {
            AuthError::TokenRefreshRejected(why) => Error::Ended(foreign(&why)),
            AuthError::AuthorizationRequired => ended("it belongs to another client"),
            AuthError::CredentialStoreError(why) => Error::NotKept(why),
            // An authorization server that no longer knows the client will not know it later either.
            AuthError::TokenRefreshFailed(why) if is_final(&why) => Error::Ended(foreign(&why)),
            AuthError::TokenRefreshFailed(why) => Error::Unavailable(found.http.why(&why)),
            error => Error::Unavailable(with_causes(&error)),
        })?;
        tracing::info!(server = %super::http::shown(&self.server.url), "the token for an MCP server was renewed");
        Ok(AccessToken::lasting(renewed.access_token().secret().clone(), renewed.expires_in()))
    }
}

/// The token that is kept. The version comes first: should another process write in between, the next call looks again.
fn kept_token(store: &LoginStore) -> std::io::Result<(Option<FileStamp>, Option<AccessToken>)> {
    let version = store.stamp();
    let secret = store.load()?;
    Ok((version, secret.and_then(|secret| AccessToken::of(&secret.credentials))))
}

fn ended(why: &str) -> Error {
    Error::Ended(why.to_owned())
}

/// The origin of a URL.
fn origin(url: &str) -> Option<url::Origin> {
    Url::parse(url).ok().map(|url| url.origin())
}

/// The errors of RFC 6749 §5.2 that stay, however often a token is asked for.
#[rustfmt::skip]
const FINAL: [&str; 6] = [
    "invalid_request", "invalid_client", "invalid_grant", "invalid_scope", "unauthorized_client",
    "unsupported_grant_type",
];

/// Whether an error stays, however often a token is asked for.
fn is_final(why: &str) -> bool {
    FINAL.iter().any(|code| why.contains(code))
}
