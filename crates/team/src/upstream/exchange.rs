//! The exchange of a user's token for one of an upstream server (RFC 8693), at once or by an assertion that the server's own
//! authorization server takes (ID-JAG: RFC 8693, then RFC 7523).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::config::{AuthorizationTable, ExchangeTable, UpstreamTable};
use crate::login::{
    ClientAuthentication, ClientSecret, IssuerMetadata, IssuerUrl, LoginConfig, ProviderFault, ProviderHttp,
    RequestCredentials, SecretError, SecureUrl, StrictObject,
};

const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
/// The time for the requests of one exchange.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time that a token counts as valid which does not say how long it is.
const UNSAID: Duration = Duration::from_secs(300);
/// The longest token, in bytes.
const LONGEST: usize = 16 * 1024;

/// The way to users' own tokens for one upstream server.
pub(super) struct TokenExchange {
    issuer: TokenClient,
    audience: Option<String>,
    resource: SecureUrl,
    scopes: String,
    /// The upstream server's own authorization server.
    authority: Option<TokenClient>,
}

/// A user's token for an upstream server.
pub(super) struct UpstreamToken {
    pub(super) token: String,
    pub(super) life: Duration,
}

/// Why there is no token. No text of it has one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExchangeError {
    /// Nobody can say it now.
    #[error("{0}")]
    Unavailable(#[from] ProviderFault),
    /// It has not answered in time.
    #[error("`{0}` does not answer within {seconds} s", seconds = PATIENCE.as_secs())]
    Late(String),
    /// The provider refuses it.
    #[error("`{issuer}` refuses it: {code}")]
    Refused { issuer: String, code: String },
    /// It answers with something else.
    #[error("`{issuer}` {why}")]
    Answer { issuer: String, why: &'static str },
}

impl ExchangeError {
    /// Whether the user's token may be at fault (RFC 8693, 2.2.2).
    pub(super) fn is_of_subject(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "invalid_grant" || code == "invalid_request")
    }

    /// Whether it may be otherwise in a moment.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Late(_))
    }
}

impl TokenExchange {
    /// The exchange that a table describes; `None` if no issuer fits.
    ///
    /// # Errors
    /// The secret of a client is missing.
    pub(super) fn new(
        table: &UpstreamTable,
        login: &LoginConfig,
        http: &ProviderHttp,
        secret: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SecretError> {
        let Some(issuer) = table.issuer(login) else { return Ok(None) };
        let ExchangeTable { client_id, client_secret_env, authentication, .. } = &table.exchange;
        let client = |issuer, id: &String, name: &str, authentication| {
            let secret = ClientSecret::of(name, secret)?;
            Ok(TokenClient {
                issuer,
                id: id.clone(),
                secret,
                authentication,
                http: http.clone(),
                endpoint: OnceCell::new(),
            })
        };
        let authority = table.exchange.authorization_server.as_ref();
        let authority = authority.map(|table| {
            let AuthorizationTable { issuer, client_id, client_secret_env, authentication } = table;
            client(issuer.clone(), client_id, client_secret_env, *authentication)
        });
        Ok(Some(Self {
            issuer: client(issuer, client_id, client_secret_env, *authentication)?,
            audience: table.exchange.audience.clone(),
            resource: table.secure_url().clone(),
            scopes: table.exchange.scopes.join(" "),
            authority: authority.transpose()?,
        }))
    }

    /// The issuer whose tokens are exchanged.
    pub(super) fn issuer(&self) -> &IssuerUrl {
        &self.issuer.issuer
    }

    /// Asks where tokens are had, for `doctor`.
    ///
    /// # Errors
    /// A provider cannot be asked, or does not say it.
    pub(super) async fn check(&self) -> Result<(), ProviderFault> {
        self.issuer.endpoint().await?;
        if let Some(authority) = &self.authority {
            authority.endpoint().await?;
        }
        Ok(())
    }

    /// A token for the upstream server, in the name of the user whose token `subject` is.
    ///
    /// # Errors
    /// The providers give none.
    pub(super) async fn token(&self, subject: &str) -> Result<UpstreamToken, ExchangeError> {
        let exchanged = async {
            match &self.authority {
                None => self.exchanged(subject).await,
                Some(authority) => authority.redeemed(&self.assertion(subject, authority).await?).await,
            }
        };
        let late = |_| ExchangeError::Late(self.issuer.issuer.to_string());
        tokio::time::timeout(PATIENCE, exchanged).await.map_err(late)?
    }

    async fn exchanged(&self, subject: &str) -> Result<UpstreamToken, ExchangeError> {
        let wanted = match &self.audience {
            Some(audience) => ("audience", audience.as_str()),
            None => ("resource", self.resource.as_str()),
        };
        let answer = self.issuer.exchange(subject, ACCESS_TOKEN, &[wanted, ("scope", &self.scopes)]).await?;
        let issued = answer.text("issued_token_type");
        if !matches!(issued, Some(ACCESS_TOKEN | JWT)) {
            return Err(self.issuer.no("gives no access token (`issued_token_type`)"));
        }
        let token = self.issuer.bearer(&answer)?;
        if token.token == subject {
            return Err(self.issuer.no("gives back the user's own token, which is passed on to nobody"));
        }
        match audience_of(&token.token) {
            Some(audience) if !audience.iter().any(|name| name == wanted.1) => Err(self
                .issuer
                .no("gives a token for another audience; write its name as `exchange.audience`")),
            _ => Ok(token),
        }
    }

    /// An assertion about the user for the upstream server's authorization server.
    async fn assertion(&self, subject: &str, authority: &TokenClient) -> Result<String, ExchangeError> {
        let wanted = [
            ("audience", authority.issuer.as_str()),
            ("resource", self.resource.as_str()),
            ("scope", &self.scopes),
        ];
        let answer = self.issuer.exchange(subject, ID_JAG, &wanted).await?;
        if answer.text("issued_token_type") != Some(ID_JAG) {
            return Err(self.issuer.no("gives no assertion (ID-JAG)"));
        }
        let assertion = self.issuer.token_in(&answer)?;
        match audience_of(&assertion) {
            Some(audience) if audience == [authority.issuer.as_str()] => Ok(assertion),
            _ => Err(self.issuer.no("gives an assertion for another authorization server")),
        }
    }
}

/// A client at an authorization server.
struct TokenClient {
    issuer: IssuerUrl,
    id: String,
    secret: ClientSecret,
    authentication: ClientAuthentication,
    http: ProviderHttp,
    endpoint: OnceCell<SecureUrl>,
}

impl TokenClient {
    async fn endpoint(&self) -> Result<&SecureUrl, ProviderFault> {
        let fetch = async || {
            let metadata = IssuerMetadata::fetch(&self.http, &self.issuer).await?;
            let without = || ProviderFault::new(self.issuer.as_str(), "publishes no `token_endpoint`");
            metadata.token_endpoint.ok_or_else(without)
        };
        self.endpoint.get_or_try_init(fetch).await
    }

    /// Exchanges a user's token.
    async fn exchange(
        &self,
        subject: &str,
        wanted_type: &str,
        wanted: &[(&str, &str)],
    ) -> Result<StrictObject, ExchangeError> {
        let fields = [
            ("grant_type", TOKEN_EXCHANGE),
            ("subject_token", subject),
            ("subject_token_type", ACCESS_TOKEN),
            ("requested_token_type", wanted_type),
        ];
        self.request([&fields, wanted].concat()).await
    }

    /// The token for an assertion.
    async fn redeemed(&self, assertion: &str) -> Result<UpstreamToken, ExchangeError> {
        let answer = self.request(vec![("grant_type", JWT_BEARER), ("assertion", assertion)]).await?;
        self.bearer(&answer)
    }

    async fn request(&self, mut fields: Vec<(&str, &str)>) -> Result<StrictObject, ExchangeError> {
        fields.retain(|(_, value)| !value.is_empty());
        let credentials = match self.authentication {
            ClientAuthentication::Basic => {
                RequestCredentials::Client { id: &self.id, secret: self.secret.text() }
            }
            ClientAuthentication::Post => {
                fields.extend([("client_id", self.id.as_str()), ("client_secret", self.secret.text())]);
                RequestCredentials::None
            }
        };
        let answer = self.http.post(self.endpoint().await?, credentials, &fields).await?;
        let is_good = answer.status == StatusCode::OK;
        let object = StrictObject::parse(&answer.body);
        match object {
            Some(object) if is_good => Ok(object),
            Some(object) if answer.status.is_client_error() => {
                let code = object.text("error").filter(|code| is_code(code));
                let code = code.unwrap_or("it does not say why").to_owned();
                Err(ExchangeError::Refused { issuer: self.issuer.to_string(), code })
            }
            _ => Err(self.no("answers with something that is no answer with a token")),
        }
    }

    /// The bearer token of an answer.
    fn bearer(&self, answer: &StrictObject) -> Result<UpstreamToken, ExchangeError> {
        if !answer.text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("Bearer")) {
            return Err(self.no("gives a token that is no bearer token"));
        }
        let token = self.token_in(answer)?;
        let life = match answer.0.get("expires_in") {
            None | Some(Value::Null) => UNSAID,
            Some(seconds) => {
                let seconds = seconds.as_u64().filter(|seconds| *seconds > 0);
                Duration::from_secs(seconds.ok_or_else(|| self.no("gives a token that has expired"))?)
            }
        };
        Ok(UpstreamToken { token, life })
    }

    fn token_in(&self, answer: &StrictObject) -> Result<String, ExchangeError> {
        let is_usable = |token: &&str| {
            (1..=LONGEST).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let token = answer.text("access_token").filter(is_usable);
        token.map(str::to_owned).ok_or_else(|| self.no("gives no token that could be sent"))
    }

    fn no(&self, why: &'static str) -> ExchangeError {
        ExchangeError::Answer { issuer: self.issuer.to_string(), why }
    }
}

/// Whether the text is a code as specifications have them: nothing secret hides in it.
fn is_code(code: &str) -> bool {
    (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
}

/// The audience that a JSON Web Token names, which its reader verifies; `None` for an opaque token.
fn audience_of(token: &str) -> Option<Vec<String>> {
    let mut parts = token.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let claims = StrictObject::parse(&URL_SAFE_NO_PAD.decode(payload).ok()?)?;
    Some(match claims.0.get("aud") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => {
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audience_of_a_web_token_is_read_and_nothing_of_another() {
        let token = |claims: &str| format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(audience_of(&token(r#"{"aud": "a"}"#)), Some(vec!["a".to_owned()]));
        assert_eq!(audience_of(&token(r#"{"aud": ["a", 1, "b"]}"#)).unwrap(), ["a", "b"]);
        assert_eq!(audience_of(&token("{}")), Some(Vec::new()));
        for opaque in ["a", "a.b", "a.b.c.d", "e30.!.x", "e30.e30"] {
            assert_eq!(audience_of(opaque), None, "{opaque}");
        }
    }

    #[test]
    fn no_secret_is_taken_for_the_code_of_an_error() {
        assert!(is_code("invalid_target") && is_code("access_denied"));
        for other in ["", "eyJhbGciOi.x.y", "Error", "a b", &"a".repeat(65)] {
            assert!(!is_code(other), "{other}");
        }
    }
}
