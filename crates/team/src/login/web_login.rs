//! The login of a browser at an identity provider: the authorization code flow of OpenID Connect Core, with PKCE (RFC 7636), a
//! state and a nonce.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::OnceCell;
use url::Url;

use super::config::{IssuerConfig, WebLoginConfig};
use super::jwt::UnverifiedJwt;
use super::lookup::{ClientSecret, SecretError};
use super::metadata::IssuerMetadata;
use super::provider_http::{ProviderHttp, RequestCredentials, fault};
use super::strict_json::StrictObject;
use super::{
    ProviderFault, SecureUrl, TeamUser, TokenClaims, TokenFault, TokenLoginError, UserAuthenticator,
};

/// The client that this server is at one issuer.
#[derive(Debug)]
pub(super) struct WebLogin {
    issuer: IssuerConfig,
    config: WebLoginConfig,
    secret: Option<ClientSecret>,
    http: ProviderHttp,
    endpoints: OnceCell<WebEndpoints>,
}

#[derive(Debug)]
struct WebEndpoints {
    authorization: SecureUrl,
    token: SecureUrl,
    answers_with_iss: bool,
}

/// A login that has begun: secrets that only the browser's way there and back can bring together.
#[derive(Debug, Clone)]
pub(crate) struct WebLoginAttempt {
    pub(crate) issuer: String,
    pub(crate) state: String,
    pub(crate) nonce: String,
    pub(crate) verifier: String,
}

/// Why a browser does not log in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebLoginError {
    #[error("there is no such identity provider here")]
    Unknown,
    #[error("the browser came back from another identity provider, or from one that does not name itself")]
    Provider,
    #[error("the identity provider did not take the code: {0}")]
    Code(StatusCode),
    #[error("the identity provider sent no ID token")]
    NoIdToken,
    #[error("{0}")]
    Token(#[from] TokenLoginError),
}

impl From<TokenFault> for WebLoginError {
    fn from(fault: TokenFault) -> Self {
        Self::Token(fault.into())
    }
}

impl From<ProviderFault> for WebLoginError {
    fn from(fault: ProviderFault) -> Self {
        Self::Token(fault.into())
    }
}

impl WebLogin {
    /// The client that the issuer is configured with, if it is with one.
    ///
    /// # Errors
    /// Its secret is missing.
    pub(super) fn new(
        issuer: &IssuerConfig,
        http: &ProviderHttp,
        secret: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SecretError> {
        let Some(config) = issuer.web.clone() else { return Ok(None) };
        let name = config.client_secret_env.as_ref();
        let secret = name.map(|name| ClientSecret::of(name, secret)).transpose()?;
        Ok(Some(Self {
            issuer: issuer.clone(),
            config,
            secret,
            http: http.clone(),
            endpoints: OnceCell::new(),
        }))
    }

    async fn endpoints(&self) -> Result<&WebEndpoints, ProviderFault> {
        let fetch = async || {
            let issuer = &self.issuer.issuer;
            let metadata = IssuerMetadata::fetch(&self.http, issuer).await?;
            let without = |name: &str| fault(issuer.secure(), format!("publishes no `{name}`"));
            Ok(WebEndpoints {
                authorization: metadata
                    .authorization_endpoint
                    .ok_or_else(|| without("authorization_endpoint"))?,
                token: metadata.token_endpoint.ok_or_else(|| without("token_endpoint"))?,
                answers_with_iss: metadata.answers_with_iss,
            })
        };
        self.endpoints.get_or_try_init(fetch).await
    }

    /// The ID token for a code.
    async fn id_token(
        &self,
        attempt: &WebLoginAttempt,
        code: &str,
        callback: &str,
    ) -> Result<String, WebLoginError> {
        let endpoint = &self.endpoints().await?.token;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", callback),
            ("code_verifier", &attempt.verifier),
        ];
        let credentials = match &self.secret {
            Some(secret) => RequestCredentials::Client { id: &self.config.client_id, secret: secret.text() },
            None => {
                fields.push(("client_id", &self.config.client_id));
                RequestCredentials::None
            }
        };
        let answer = self.http.post(endpoint, credentials, &fields).await?;
        if answer.status != StatusCode::OK {
            return Err(WebLoginError::Code(answer.status));
        }
        let answer = StrictObject::parse(&answer.body).ok_or(WebLoginError::NoIdToken)?;
        answer.text("id_token").map(str::to_owned).ok_or(WebLoginError::NoIdToken)
    }

    /// Checks that the token is this client's, of this login (OpenID Connect Core, 3.1.3.7).
    fn check(&self, claims: &Map<String, Value>, attempt: &WebLoginAttempt) -> Result<(), TokenFault> {
        let client = self.config.client_id.as_str();
        let is_ours = match claims.get("aud") {
            Some(Value::String(audience)) => audience == client,
            // With others, it has to say to whom it was given.
            Some(Value::Array(audiences)) => {
                audiences.iter().any(|audience| audience == client)
                    && (audiences.len() == 1 || claims.contains_key("azp"))
            }
            _ => false,
        };
        let is_given_to_us = claims.get("azp").is_none_or(|party| party == client);
        let nonce = claims.get("nonce").and_then(Value::as_str).unwrap_or_default();
        if !is_ours || !is_given_to_us {
            Err(TokenFault::Audience)
        } else if bool::from(nonce.as_bytes().ct_eq(attempt.nonce.as_bytes())) {
            Ok(())
        } else {
            Err(TokenFault::Claim)
        }
    }
}

impl UserAuthenticator {
    /// The issuers at which browsers can log in.
    pub(crate) fn web_issuers(&self) -> impl Iterator<Item = &str> {
        self.web.iter().map(|web| web.issuer.issuer.as_str())
    }

    fn web(&self, issuer: &str) -> Result<&WebLogin, WebLoginError> {
        let known = self.web.iter().find(|web| web.issuer.issuer.as_str() == issuer);
        known.ok_or(WebLoginError::Unknown)
    }

    /// The address at which a browser begins to log in. It comes back to `callback`.
    ///
    /// # Errors
    /// The provider does not say where.
    pub(crate) async fn web_login(
        &self,
        attempt: &WebLoginAttempt,
        callback: &str,
    ) -> Result<Url, WebLoginError> {
        let web = self.web(&attempt.issuer)?;
        let mut url = web.endpoints().await?.authorization.url().clone();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&attempt.verifier));
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &web.config.client_id),
            ("redirect_uri", callback),
            ("scope", &web.config.scopes.join(" ")),
            ("state", &attempt.state),
            ("nonce", &attempt.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        Ok(url)
    }

    /// The user who comes back with a code from a provider, which has named itself by `iss` (RFC 9207).
    ///
    /// # Errors
    /// The provider is another one, the code or its ID token is not good, or the provider cannot be asked.
    pub(crate) async fn web_user(
        &self,
        attempt: &WebLoginAttempt,
        iss: Option<&str>,
        code: &str,
        callback: &str,
    ) -> Result<TeamUser, WebLoginError> {
        let web = self.web(&attempt.issuer)?;
        let is_the_one = match iss {
            Some(iss) => iss == attempt.issuer,
            None => !web.endpoints().await?.answers_with_iss,
        };
        if !is_the_one {
            return Err(WebLoginError::Provider);
        }
        let token = web.id_token(attempt, code, callback).await?;
        let jwt = UnverifiedJwt::parse(&token).ok_or(TokenFault::Malformed)??;
        let issuer = self.keys_of(&attempt.issuer).filter(|_| jwt.issuer() == attempt.issuer);
        let issuer = issuer.ok_or(TokenFault::Issuer)?;
        let claims = self.verified(&jwt, issuer).await?;
        if jwt.is_said_to_be_for_access() {
            return Err(TokenFault::Kind.into());
        }
        web.check(&claims, attempt)?;
        Ok(TokenClaims { config: &self.config, issuer: issuer.config(), claims: &claims }.named()?)
    }
}
