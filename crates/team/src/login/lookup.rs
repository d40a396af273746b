//! Opaque tokens: the provider says what they are, by introspection (RFC 7662) or, of a JupyterHub, by its own API.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, Semaphore};

use super::bounded_cache::BoundedCache;
use super::config::{ClientAuthentication, IntrospectionConfig, IssuerConfig, JupyterHubConfig};
use super::metadata::IssuerMetadata;
use super::provider_http::{ProviderHttp, RequestCredentials, fault};
use super::strict_json::StrictObject;
use super::{LoginConfig, ProviderFault, SecureUrl, TokenFault, TokenLoginError};

/// The time for which an answer is used. A token that is revoked is taken for so long.
const KEPT: Duration = Duration::from_secs(30);
/// The number of tokens whose answers are kept, of good and of other ones.
const MOST_KEPT: usize = 10_000;
/// The number of requests to the provider at once: a flood of made-up tokens is no flood there.
const AT_ONCE: usize = 16;
/// The longest wait for one of these.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lookup of one issuer's opaque tokens.
#[derive(Debug)]
pub(super) struct TokenLookup {
    config: IssuerConfig,
    method: LookupMethod,
    http: ProviderHttp,
    /// By the token's hash: a token at rest could be stolen.
    good: Mutex<BoundedCache<Arc<Map<String, Value>>>>,
    bad: Mutex<BoundedCache<TokenFault>>,
    turns: Semaphore,
}

#[derive(Debug)]
enum LookupMethod {
    Introspection { config: IntrospectionConfig, secret: ClientSecret, endpoint: OnceCell<SecureUrl> },
    JupyterHub { config: JupyterHubConfig, user: SecureUrl, audience: String },
}

/// Not shown by `Debug`.
pub(crate) struct ClientSecret(String);

impl ClientSecret {
    /// The value of the environment variable with this name.
    ///
    /// # Errors
    /// It is not set.
    pub(crate) fn of(name: &str, secret: &impl Fn(&str) -> Option<String>) -> Result<Self, SecretError> {
        let value = secret(name).filter(|secret| !secret.is_empty());
        value.map(Self).ok_or_else(|| SecretError(name.to_owned()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ClientSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ClientSecret")
    }
}

/// Why this server cannot be a client of a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the environment variable `{0}`, which a `client_secret_env` of the configuration names, is not set; set it to the \
     client's secret"
)]
pub struct SecretError(String);

impl TokenLookup {
    /// The lookup that the issuer is configured with, if it is with one.
    ///
    /// # Errors
    /// The client's secret is missing.
    pub(super) fn new(
        config: &LoginConfig,
        issuer: &IssuerConfig,
        http: &ProviderHttp,
        secret: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SecretError> {
        let method = if let Some(introspection) = &issuer.introspection {
            let secret = ClientSecret::of(&introspection.client_secret_env, &secret)?;
            let endpoint = OnceCell::new_with(introspection.endpoint.clone());
            LookupMethod::Introspection { config: introspection.clone(), secret, endpoint }
        } else if let Some(hub) = &issuer.jupyterhub {
            let user = hub.api.with_path(&format!("{}/user", hub.api.url().path().trim_end_matches('/')));
            let audience =
                issuer.audience.as_slice().first().map_or(config.resource.as_str(), String::as_str);
            LookupMethod::JupyterHub { config: hub.clone(), user, audience: audience.to_owned() }
        } else {
            return Ok(None);
        };
        Ok(Some(Self {
            config: issuer.clone(),
            method,
            http: http.clone(),
            good: Mutex::new(BoundedCache::new(MOST_KEPT)),
            bad: Mutex::new(BoundedCache::new(MOST_KEPT)),
            turns: Semaphore::new(AT_ONCE),
        }))
    }

    pub(super) fn config(&self) -> &IssuerConfig {
        &self.config
    }

    /// The claims of a token.
    ///
    /// # Errors
    /// The provider does not know it, or cannot be asked.
    pub(super) async fn claims(
        &self,
        token: &str,
        skew: Duration,
    ) -> Result<Arc<Map<String, Value>>, TokenLoginError> {
        let key: [u8; 32] = Sha256::digest(token).into();
        let claims = match self.kept(&key) {
            Some(kept) => kept,
            None => self.asked(&key, token).await?,
        };
        let claims = claims?;
        check_times(&claims, skew)?;
        Ok(claims)
    }

    /// Asks for a token that nobody has, which the provider does not know.
    ///
    /// # Errors
    /// It cannot be asked, or not by this client.
    pub(super) async fn check(&self) -> Result<(), ProviderFault> {
        let nobodys = "no-token-but-a-question-of-ipybox-whether-it-could-ask";
        match self.ask(nobodys).await? {
            Err(TokenFault::Unknown) => Ok(()),
            _ => Err(ProviderFault::new(self.config.issuer.as_str(), "takes a token that nobody has")),
        }
    }

    fn kept(&self, key: &[u8; 32]) -> Option<Result<Arc<Map<String, Value>>, TokenFault>> {
        let now = Instant::now();
        let good = self.good.lock().get(key, now);
        good.map(Ok).or_else(|| self.bad.lock().get(key, now).map(Err))
    }

    async fn asked(
        &self,
        key: &[u8; 32],
        token: &str,
    ) -> Result<Result<Arc<Map<String, Value>>, TokenFault>, ProviderFault> {
        let busy = || ProviderFault::new(self.config.issuer.as_str(), "is asked about too many tokens");
        let turn = tokio::time::timeout(PATIENCE, self.turns.acquire()).await.map_err(|_| busy())?;
        let _turn = turn.map_err(|_| busy())?;
        // Another request may have asked meanwhile.
        if let Some(kept) = self.kept(key) {
            return Ok(kept);
        }
        let answer = self.ask(token).await.inspect_err(|fault| {
            tracing::warn!(issuer = self.config.issuer.as_str(), %fault, "a token cannot be looked up");
        })?;
        let end = Instant::now() + KEPT;
        Ok(match answer {
            Ok(claims) => {
                let claims = Arc::new(claims);
                self.good.lock().insert(*key, Arc::clone(&claims), end);
                Ok(claims)
            }
            Err(fault) => {
                self.bad.lock().insert(*key, fault, end);
                Err(fault)
            }
        })
    }

    async fn ask(&self, token: &str) -> Result<Result<Map<String, Value>, TokenFault>, ProviderFault> {
        match &self.method {
            LookupMethod::Introspection { config, secret, endpoint } => {
                let endpoint = endpoint.get_or_try_init(|| self.discover()).await?;
                self.introspect(endpoint, config, secret, token).await
            }
            LookupMethod::JupyterHub { config, user, audience } => {
                self.hub_user(config, user, audience, token).await
            }
        }
    }

    async fn discover(&self) -> Result<SecureUrl, ProviderFault> {
        let metadata = IssuerMetadata::fetch(&self.http, &self.config.issuer).await?;
        let without =
            "publishes no `introspection_endpoint`; write it in `login.issuer.introspection.endpoint`";
        metadata.introspection_endpoint.ok_or_else(|| fault(self.config.issuer.secure(), without))
    }

    async fn introspect(
        &self,
        endpoint: &SecureUrl,
        config: &IntrospectionConfig,
        secret: &ClientSecret,
        token: &str,
    ) -> Result<Result<Map<String, Value>, TokenFault>, ProviderFault> {
        let mut fields = vec![("token", token), ("token_type_hint", "access_token")];
        let client = (config.client_id.as_str(), secret.0.as_str());
        let credentials = match config.authentication {
            ClientAuthentication::Basic => RequestCredentials::Client { id: client.0, secret: client.1 },
            ClientAuthentication::Post => {
                fields.extend([("client_id", client.0), ("client_secret", client.1)]);
                RequestCredentials::None
            }
        };
        let answer = self.http.post(endpoint, credentials, &fields).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(fault(endpoint, "refuses this server's `client_id` or its secret; check both"));
            }
            status => return Err(fault(endpoint, format!("answers {status}"))),
        }
        let no_answer = || fault(endpoint, "answers with something that is no introspection");
        let claims = StrictObject::parse(&answer.body).ok_or_else(no_answer)?.0;
        match claims.get("active") {
            Some(Value::Bool(true)) => Ok(self.introspected(claims)),
            Some(Value::Bool(false)) => Ok(Err(TokenFault::Unknown)),
            _ => Err(no_answer()),
        }
    }

    fn introspected(&self, claims: Map<String, Value>) -> Result<Map<String, Value>, TokenFault> {
        if claims.get("iss").is_some_and(|issuer| issuer != self.config.issuer.as_str()) {
            return Err(TokenFault::Issuer);
        }
        match claims.get("token_type") {
            None => Ok(claims),
            Some(Value::String(kind)) if kind.eq_ignore_ascii_case("Bearer") => Ok(claims),
            Some(Value::String(kind)) if kind.eq_ignore_ascii_case("DPoP") => Err(TokenFault::Bound),
            Some(_) => Err(TokenFault::Kind),
        }
    }

    async fn hub_user(
        &self,
        config: &JupyterHubConfig,
        user: &SecureUrl,
        audience: &str,
        token: &str,
    ) -> Result<Result<Map<String, Value>, TokenFault>, ProviderFault> {
        let answer = self.http.get(user, RequestCredentials::Bearer(token)).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(Err(TokenFault::Unknown)),
            status => return Err(fault(user, format!("answers {status}"))),
        }
        let no_answer = || fault(user, "answers with something that is no user of a JupyterHub");
        let mut claims = StrictObject::parse(&answer.body).ok_or_else(no_answer)?.0;
        // A service may have the name of a user.
        if claims.get("kind").and_then(Value::as_str) != Some("user") {
            return Ok(Err(TokenFault::Subject));
        }
        let scopes = claims.get("scopes").cloned().ok_or_else(no_answer)?;
        let access = [json!("access:services"), json!(format!("access:services!service={}", config.service))];
        let is_for_us =
            scopes.as_array().is_some_and(|scopes| scopes.iter().any(|scope| access.contains(scope)));
        let name = claims.get("name").cloned().ok_or_else(no_answer)?;
        // What the hub says nothing of may not come from it.
        for claim in ["aud", "exp", "nbf", "cnf"] {
            claims.remove(claim);
        }
        claims.insert("sub".to_owned(), name);
        claims.insert("scope".to_owned(), scopes);
        if is_for_us {
            claims.insert("aud".to_owned(), json!(audience));
        }
        Ok(Ok(claims))
    }
}

/// Checks `exp` and `nbf`, which an introspection may have.
fn check_times(claims: &Map<String, Value>, skew: Duration) -> Result<(), TokenFault> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let time = |name| match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(TokenFault::Claim),
    };
    if time("exp")?.is_some_and(|end| end + skew.as_secs_f64() < now) {
        return Err(TokenFault::Expired);
    }
    if time("nbf")?.is_some_and(|begin| begin > now + skew.as_secs_f64()) {
        return Err(TokenFault::Early);
    }
    Ok(())
}
