//! The user of a request: an OAuth 2.1 resource server, as the authorization of MCP has it.
//!
//! [`UserAuthenticator::authenticate`] takes the token of a request (`bearer`). What begins with `ipybox_` is looked for in a file
//! (`token_file`). A JSON Web Token (`jwt`) is verified by the keys of its issuer (`issuer_keys`, `key_set`), which `metadata`
//! finds; another token is looked up at the issuer (`lookup`). The claims make the user (`claims`). Without one, `challenge`
//! tells the client where to log in.
//!
//! Nothing here decides what a user may do.

mod algorithm;
mod bearer;
mod bounded_cache;
mod challenge;
mod claims;
mod config;
mod error;
mod issuer_keys;
mod jwt;
mod key_set;
mod lookup;
mod metadata;
mod provider_http;
mod secure_url;
mod signature;
mod strict_json;
mod token_file;
mod user;
mod web_login;

#[cfg(test)]
mod tests;

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, Uri};
use reqwest::Client;
use serde_json::{Map, Value};

pub use algorithm::{AlgorithmError, TokenAlgorithm};
use challenge::LoginSigns;
use claims::TokenClaims;
pub use config::{
    ClaimNames, ClientAuthentication, IntrospectionConfig, IssuerConfig, IssuerUrl, JupyterHubConfig,
    LoginConfig, LoginConfigError, TextList, TokenAlgorithms, WebLoginConfig,
};
pub use error::{ProviderFault, RequestFault, TokenFault, TokenLoginError};
use issuer_keys::{IssuerKeys, KeyTimes};
use jwt::UnverifiedJwt;
use key_set::KeySet;
pub(crate) use lookup::ClientSecret;
pub use lookup::SecretError;
use lookup::TokenLookup;
pub(crate) use metadata::IssuerMetadata;
pub use provider_http::configure_client;
pub(crate) use provider_http::{ProviderAnswer, ProviderHttp, RequestCredentials};
pub use secure_url::{SecureUrl, SecureUrlError};
pub(crate) use strict_json::StrictObject;
pub(crate) use token_file::LocalToken;
pub use token_file::{LocalUser, NewToken, NewUser, TOKEN_PREFIX, TokenFile, TokenFileError};
pub use user::{ClaimedName, LOCAL_ISSUER, TeamUser, UserIdentity};
use web_login::WebLogin;
pub(crate) use web_login::{WebLoginAttempt, WebLoginError};

/// The users of requests, by their tokens.
#[derive(Debug)]
pub struct UserAuthenticator {
    config: LoginConfig,
    signs: LoginSigns,
    issuers: Vec<IssuerKeys>,
    lookup: Option<TokenLookup>,
    tokens: Option<TokenFile>,
    web: Vec<WebLogin>,
}

/// Why nobody could log in.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum LoginSetupError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("`login.tokens_file` cannot be used")]
    Tokens(#[from] TokenFileError),
}

/// The result of asking one issuer.
#[derive(Debug)]
pub struct IssuerCheck {
    /// The issuer.
    pub issuer: String,
    /// Why its tokens cannot be verified.
    pub result: Result<(), ProviderFault>,
}

impl UserAuthenticator {
    /// Sets it up; no provider is asked before a token needs it.
    ///
    /// The client is one that [`configure_client`] has prepared. `secret` gives the value of an environment variable.
    ///
    /// # Errors
    /// A client's secret is missing, or the file of tokens cannot be used.
    pub fn new(
        config: LoginConfig,
        client: Client,
        secret: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, LoginSetupError> {
        Self::with_times(config, client, secret, KeyTimes::DEFAULT)
    }

    fn with_times(
        config: LoginConfig,
        client: Client,
        secret: impl Fn(&str) -> Option<String>,
        times: KeyTimes,
    ) -> Result<Self, LoginSetupError> {
        signature::install();
        let http = ProviderHttp::new(client);
        let mut lookup = None;
        let mut web = Vec::new();
        for issuer in &config.issuers {
            if let Some(new) = TokenLookup::new(&config, issuer, &http, &secret)? {
                lookup = Some(new);
            }
            web.extend(WebLogin::new(issuer, &http, &secret)?);
        }
        let tokens = config.tokens_file.clone().map(TokenFile::new);
        if let Some(tokens) = &tokens {
            tokens.check()?;
        }
        let issuers = config.issuers.iter().filter(|issuer| issuer.jupyterhub.is_none());
        let issuers = issuers.map(|issuer| IssuerKeys::new(issuer.clone(), http.clone(), times)).collect();
        Ok(Self { signs: LoginSigns::new(&config), config, issuers, lookup, tokens, web })
    }

    /// The user of a request.
    ///
    /// # Errors
    /// It shows no good token, or a provider cannot say whether it is.
    pub async fn authenticate(&self, uri: &Uri, headers: &HeaderMap) -> Result<TeamUser, TokenLoginError> {
        let token = bearer::bearer_token(uri, headers)?;
        if token.starts_with(TOKEN_PREFIX) {
            return self.tokens.as_ref().ok_or(TokenFault::Unknown)?.user(token);
        }
        if let Some(jwt) = UnverifiedJwt::parse(token) {
            return self.by_keys(&jwt?).await;
        }
        let lookup = self.lookup.as_ref().ok_or(TokenFault::Unknown)?;
        let claims = lookup.claims(token, self.skew()).await?;
        TokenClaims { config: &self.config, issuer: lookup.config(), claims: &claims }.user()
    }

    /// The token of a request that an identity provider gave, as [`authenticate`](Self::authenticate) takes it.
    pub(crate) fn provider_token<'h>(&self, uri: &Uri, headers: &'h HeaderMap) -> Option<&'h str> {
        bearer::bearer_token(uri, headers).ok().filter(|token| !token.starts_with(TOKEN_PREFIX))
    }

    /// The user whose token of the file it is.
    ///
    /// # Errors
    /// There is none, or the file cannot be read.
    pub(crate) fn local_user(&self, token: &str) -> Result<(TeamUser, LocalToken), TokenLoginError> {
        let token = LocalToken::of(token);
        self.user_of(&token).map(|user| (user, token))
    }

    /// The user with this token now.
    ///
    /// # Errors
    /// As for [`local_user`](Self::local_user).
    pub(crate) fn user_of(&self, token: &LocalToken) -> Result<TeamUser, TokenLoginError> {
        self.tokens.as_ref().ok_or(TokenFault::Unknown)?.user_of(token)
    }

    async fn by_keys(&self, jwt: &UnverifiedJwt<'_>) -> Result<TeamUser, TokenLoginError> {
        let issuer = self.keys_of(jwt.issuer()).ok_or(TokenFault::Issuer)?;
        let claims = self.verified(jwt, issuer).await?;
        if !jwt.may_be_for_access(&claims) {
            return Err(TokenFault::Kind.into());
        }
        TokenClaims { config: &self.config, issuer: issuer.config(), claims: &claims }.user()
    }

    fn keys_of(&self, issuer: &str) -> Option<&IssuerKeys> {
        self.issuers.iter().find(|keys| keys.config().issuer.as_str() == issuer)
    }

    /// The claims of a token that its issuer has signed and that is valid now.
    async fn verified(
        &self,
        jwt: &UnverifiedJwt<'_>,
        issuer: &IssuerKeys,
    ) -> Result<Map<String, Value>, TokenLoginError> {
        jwt.check_header(issuer.config())?;
        let keys = issuer.for_token(jwt.key_id()?).await?;
        let verify = |keys: &KeySet| jwt.verify(issuer.config(), keys, self.skew());
        Ok(match verify(&keys) {
            Err(TokenFault::Signature) => {
                let newer = issuer.instead_of(&keys).await.ok_or(TokenFault::Signature)?;
                verify(&newer)?
            }
            verified => verified?,
        })
    }

    fn skew(&self) -> Duration {
        self.config.clock_skew
    }

    /// The metadata of this server (RFC 9728), which it answers with at [`Self::metadata_path`].
    pub fn resource_metadata(&self) -> &Value {
        self.signs.metadata()
    }

    /// The path of the metadata: `/.well-known/oauth-protected-resource`, and that of the resource.
    pub fn metadata_path(&self) -> &str {
        self.signs.metadata_path()
    }

    /// The value of `WWW-Authenticate` for a request without a user; none where a login would not help.
    pub fn challenge(&self, error: &TokenLoginError) -> Option<HeaderValue> {
        self.signs.challenge(error)
    }

    /// The whole answer to a request without a user, with a body in JSON.
    pub fn refusal(&self, error: &TokenLoginError) -> Response<String> {
        self.signs.refusal(error)
    }

    /// Asks every issuer, for `doctor`: for its keys, and for an opaque token that nobody has, where it looks up such.
    ///
    /// Nothing that decides whether the server may run: through a short outage, users go on.
    pub async fn check(&self) -> Vec<IssuerCheck> {
        let mut checks = Vec::new();
        for keys in &self.issuers {
            let config = keys.config();
            // Who issues opaque tokens alone need not have keys.
            if config.introspection.is_none() || config.jwks_uri.is_some() {
                checks.push(IssuerCheck { issuer: config.issuer.to_string(), result: keys.check().await });
            }
        }
        if let Some(lookup) = &self.lookup {
            let issuer = lookup.config().issuer.to_string();
            checks.push(IssuerCheck { issuer, result: lookup.check().await });
        }
        checks
    }
}
