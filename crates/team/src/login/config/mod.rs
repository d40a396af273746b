//! The table `[login]` of the team server's configuration.
//!
//! A mistake is an error of deserialization, so that TOML's own message shows its line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{SecureUrl, TokenAlgorithm};

/// The difference between two clocks that is tolerated unless the configuration says otherwise.
const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// The largest difference that can be configured. Tokens are that much longer valid.
const LONGEST_CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The issuers whose tokens are taken, and the audience that their tokens need.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "WrittenLogin")]
pub struct LoginConfig {
    /// This server's URL as clients know it, with the path of its MCP endpoint (RFC 9728).
    pub resource: SecureUrl,
    /// The identity providers.
    pub issuers: Vec<IssuerConfig>,
    /// The scopes that every token needs, but those of a JupyterHub, which have scopes of their own, and local ones.
    pub required_scopes: Vec<String>,
    /// The difference between this clock and an issuer's that is tolerated.
    pub clock_skew: Duration,
    /// The file of the tokens that `ipybox team user add` makes.
    pub tokens_file: Option<PathBuf>,
    /// The claim that is the user's name at a JupyterHub, of `kernels.hub_user_claim`.
    pub hub_user_claim: Option<String>,
}

/// An identity provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The value of `iss`, and the place of its metadata (RFC 8414, OpenID Connect Discovery).
    pub issuer: IssuerUrl,
    /// The values of `aud` of which a token needs one. If there are none: the resource.
    #[serde(default)]
    pub audience: TextList,
    /// The address of its keys; without one, the issuer's metadata names it.
    #[serde(default)]
    pub jwks_uri: Option<SecureUrl>,
    /// The algorithms that it may sign with.
    #[serde(default)]
    pub algorithms: TokenAlgorithms,
    /// The names of claims.
    #[serde(default)]
    pub claims: ClaimNames,
    /// How its opaque tokens are looked up.
    #[serde(default)]
    pub introspection: Option<IntrospectionConfig>,
    /// Its tokens are those of a JupyterHub, which knows no introspection.
    #[serde(default)]
    pub jupyterhub: Option<JupyterHubConfig>,
    /// The client by which browsers log in there.
    #[serde(default)]
    pub web: Option<WebLoginConfig>,
}

/// The client that this server is at an issuer for browsers (OpenID Connect Core).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebLoginConfig {
    /// Its id: the audience of ID tokens.
    pub client_id: String,
    /// The environment variable with its secret. Default: it has none, and is a public client.
    #[serde(default)]
    pub client_secret_env: Option<String>,
    /// The scopes that are asked for. Default: `openid` and `profile`.
    #[serde(default = "web_scopes")]
    pub scopes: Vec<String>,
}

fn web_scopes() -> Vec<String> {
    ["openid", "profile"].map(str::to_owned).into()
}

/// Introspection of opaque tokens (RFC 7662).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntrospectionConfig {
    /// The endpoint; without one, the issuer's metadata names it.
    #[serde(default)]
    pub endpoint: Option<SecureUrl>,
    /// The client that this server is at the issuer.
    pub client_id: String,
    /// The environment variable with that client's secret.
    pub client_secret_env: String,
    /// The way in which the client shows its secret.
    #[serde(default)]
    pub authentication: ClientAuthentication,
}

/// A way in which a client shows its secret (RFC 6749, 2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum ClientAuthentication {
    /// In the header `Authorization`.
    #[default]
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// In the form.
    #[serde(rename = "client_secret_post")]
    Post,
}

/// A JupyterHub whose tokens are shown to its own API.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JupyterHubConfig {
    /// The hub's API, like `https://hub.example/hub/api`.
    pub api: SecureUrl,
    /// The service that this server is at the hub. A token needs the scope `access:services!service=NAME`.
    pub service: String,
}

/// The names of claims of which there is no standard.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClaimNames {
    /// The groups of the user: a name, or a JSON pointer like `/realm_access/roles`, or several.
    pub groups: TextList,
    /// The name for people, likewise, but one.
    pub name: String,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self { groups: TextList(vec!["groups".to_owned()]), name: "name".to_owned() }
    }
}

/// The URL of an issuer: neither query nor fragment (RFC 8414, 2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "SecureUrl")]
pub struct IssuerUrl(SecureUrl);

impl IssuerUrl {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(crate) fn secure(&self) -> &SecureUrl {
        &self.0
    }
}

impl TryFrom<SecureUrl> for IssuerUrl {
    type Error = LoginConfigError;

    fn try_from(url: SecureUrl) -> Result<Self, LoginConfigError> {
        without_query(url).map(Self)
    }
}

impl fmt::Display for IssuerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A text or some.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "OneOrMany")]
pub struct TextList(Vec<String>);

impl TextList {
    pub(super) fn as_slice(&self) -> &[String] {
        &self.0
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or a list of texts")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for TextList {
    fn from(written: OneOrMany) -> Self {
        match written {
            OneOrMany::One(text) => Self(vec![text]),
            OneOrMany::Many(texts) => Self(texts),
        }
    }
}

/// The algorithms of an issuer, at least one.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<TokenAlgorithm>")]
pub struct TokenAlgorithms(Vec<TokenAlgorithm>);

impl TokenAlgorithms {
    pub(super) fn contains(&self, algorithm: TokenAlgorithm) -> bool {
        self.0.contains(&algorithm)
    }
}

impl Default for TokenAlgorithms {
    fn default() -> Self {
        Self(TokenAlgorithm::DEFAULT.to_vec())
    }
}

impl TryFrom<Vec<TokenAlgorithm>> for TokenAlgorithms {
    type Error = LoginConfigError;

    fn try_from(algorithms: Vec<TokenAlgorithm>) -> Result<Self, LoginConfigError> {
        if algorithms.is_empty() { Err(LoginConfigError::NoAlgorithm) } else { Ok(Self(algorithms)) }
    }
}

/// A mistake in the table `[login]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum LoginConfigError {
    #[error("has a query; leave out what is after the `?`")]
    Query,
    #[error("is empty, so that no token could be verified; name some, or leave the key out")]
    NoAlgorithm,
    #[error(
        "`login` names nobody who could log in; add a table `[[login.issuer]]` with `issuer = \"https://…\"`, or \
         `tokens_file = \"tokens.json\"` with users that `ipybox team user add` makes"
    )]
    Nobody,
    #[error("`login.issuer` has `{0}` twice; write one table for it")]
    Repeated(String),
    #[error(
        "`login.issuer` has `{first}` and `{second}`, which both look up opaque tokens; such a token does not say whose it \
         is, and would be sent to both; let one of them issue JSON Web Tokens, and remove its table `introspection` or \
         `jupyterhub`"
    )]
    Ambiguous { first: String, second: String },
    #[error("`login.issuer` with `{0}` has both `introspection` and `jupyterhub`; remove one")]
    TwoLookups(String),
    #[error(
        "`login.clock_skew` is {} s, at most {} s make sense; synchronise the clocks",
        .0.as_secs(),
        LONGEST_CLOCK_SKEW.as_secs()
    )]
    Skew(Duration),
    #[error(
        "`login.{key}` has `{value}`, which is no scope: scopes are words without spaces, quotes and backslashes"
    )]
    Scope { key: &'static str, value: String },
    #[error(
        "`login.issuer` with `{0}` has both `jupyterhub` and `web`: a JupyterHub has no ID tokens; remove `web`"
    )]
    WebHub(String),
    #[error("`login.issuer.web.scopes` lacks `openid`, without which there is no ID token; add it")]
    NoOpenId,
    #[error("`{0}` is empty; write a text, or leave the key out")]
    Empty(&'static str),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLogin {
    resource: IssuerUrl,
    #[serde(default)]
    issuer: Vec<IssuerConfig>,
    #[serde(default)]
    required_scopes: Vec<String>,
    #[serde(default = "default_clock_skew", with = "humantime_serde")]
    clock_skew: Duration,
    #[serde(default)]
    tokens_file: Option<PathBuf>,
}

fn default_clock_skew() -> Duration {
    CLOCK_SKEW
}

impl LoginConfig {
    /// Makes the path of the file of tokens absolute: it is relative to the directory of the configuration.
    #[must_use]
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.tokens_file = self.tokens_file.map(|path| directory.join(path));
        self
    }
}

impl TryFrom<WrittenLogin> for LoginConfig {
    type Error = LoginConfigError;

    fn try_from(written: WrittenLogin) -> Result<Self, LoginConfigError> {
        if written.issuer.is_empty() && written.tokens_file.is_none() {
            return Err(LoginConfigError::Nobody);
        }
        check_issuers(&written.issuer)?;
        if let Some(scope) = written.required_scopes.iter().find(|scope| !is_scope(scope)) {
            return Err(LoginConfigError::Scope { key: "required_scopes", value: scope.clone() });
        }
        if written.clock_skew > LONGEST_CLOCK_SKEW {
            return Err(LoginConfigError::Skew(written.clock_skew));
        }
        Ok(Self {
            resource: written.resource.0,
            issuers: written.issuer,
            required_scopes: written.required_scopes,
            clock_skew: written.clock_skew,
            tokens_file: written.tokens_file,
            hub_user_claim: None,
        })
    }
}

fn check_issuers(issuers: &[IssuerConfig]) -> Result<(), LoginConfigError> {
    let mut asked: Option<&IssuerConfig> = None;
    for (index, issuer) in issuers.iter().enumerate() {
        let name = || issuer.issuer.to_string();
        if issuers[..index].iter().any(|other| other.issuer == issuer.issuer) {
            return Err(LoginConfigError::Repeated(name()));
        }
        if issuer.audience.0.iter().any(String::is_empty) {
            return Err(LoginConfigError::Empty("login.issuer.audience"));
        }
        if let Some(web) = &issuer.web {
            check_web(web, issuer)?;
        }
        match (&issuer.introspection, &issuer.jupyterhub) {
            (None, None) => continue,
            (Some(_), Some(_)) => return Err(LoginConfigError::TwoLookups(name())),
            (Some(introspection), None) if introspection.client_id.is_empty() => {
                return Err(LoginConfigError::Empty("login.issuer.introspection.client_id"));
            }
            (None, Some(hub)) if !is_scope(&hub.service) => {
                return Err(LoginConfigError::Scope {
                    key: "issuer.jupyterhub.service",
                    value: hub.service.clone(),
                });
            }
            _ => {}
        }
        if let Some(first) = asked.replace(issuer) {
            return Err(LoginConfigError::Ambiguous { first: first.issuer.to_string(), second: name() });
        }
    }
    Ok(())
}

fn check_web(web: &WebLoginConfig, issuer: &IssuerConfig) -> Result<(), LoginConfigError> {
    if issuer.jupyterhub.is_some() {
        return Err(LoginConfigError::WebHub(issuer.issuer.to_string()));
    }
    if web.client_id.is_empty() {
        return Err(LoginConfigError::Empty("login.issuer.web.client_id"));
    }
    if let Some(scope) = web.scopes.iter().find(|scope| !is_scope(scope)) {
        return Err(LoginConfigError::Scope { key: "issuer.web.scopes", value: scope.clone() });
    }
    if web.scopes.iter().any(|scope| scope == "openid") { Ok(()) } else { Err(LoginConfigError::NoOpenId) }
}

fn without_query(url: SecureUrl) -> Result<SecureUrl, LoginConfigError> {
    if url.url().query().is_some() { Err(LoginConfigError::Query) } else { Ok(url) }
}

/// Whether the text is a `scope-token` (RFC 6749, 3.3).
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

#[cfg(test)]
mod tests;
