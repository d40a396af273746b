//! Why a request has no user.

use std::time::Duration;

use http::StatusCode;

/// The time after which a client may try again when an identity provider did not answer.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a request has no user. No text of it holds a token or a claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenLoginError {
    /// The request shows no bearer token.
    #[error("the request has no header `Authorization: Bearer …`")]
    Missing,
    /// The request shows a token in a way that is not allowed.
    #[error("{0}")]
    Request(#[from] RequestFault),
    /// The token is not good.
    #[error("{0}")]
    Token(#[from] TokenFault),
    /// The token is good, but not for this.
    #[error("the token lacks the scope `{}`", missing.join(" "))]
    Scope {
        /// The scopes that it lacks.
        missing: Vec<String>,
    },
    /// Nobody can say whether the token is good.
    #[error("{0}")]
    Unavailable(#[from] ProviderFault),
}

/// Why the way in which a request shows a token is not allowed (RFC 6750, 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum RequestFault {
    #[error("the request has several headers `Authorization`; send one")]
    Repeated,
    #[error("the request has a token in its URL, where logs keep it; send it in the header `Authorization`")]
    Query,
}

/// Why a token is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum TokenFault {
    #[error("the token is longer than any that is taken")]
    Long,
    #[error("the token is malformed")]
    Malformed,
    #[error("the token is of an issuer that is not configured here")]
    Issuer,
    #[error("the token is signed by an algorithm that its issuer may not use here")]
    Algorithm,
    #[error("the token asks for an extension of JWS (`crit`) that is not known here")]
    Critical,
    #[error("the token's signature does not verify by a key of its issuer")]
    Signature,
    #[error("the token is no access token")]
    Kind,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    Early,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token names no user")]
    Subject,
    #[error("the token has a claim of the wrong type")]
    Claim,
    #[error("the token has more groups than it can name; let the provider leave some out")]
    Groups,
    #[error(
        "the token is bound to a key of its owner, and no proof of that key is taken here; ask for a bearer token"
    )]
    Bound,
    #[error("the token is not known, or not valid any more")]
    Unknown,
}

/// Why an identity provider, or the file of tokens, could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{place}` {why}")]
pub struct ProviderFault {
    place: String,
    why: String,
}

impl ProviderFault {
    pub(crate) fn new(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { place: place.into(), why: why.into() }
    }
}

impl TokenLoginError {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Missing | Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Scope { .. } => StatusCode::FORBIDDEN,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The code of RFC 6750, 3.1. A request without a token gets none.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Missing => None,
            Self::Request(_) => Some("invalid_request"),
            Self::Token(_) => Some("invalid_token"),
            Self::Scope { .. } => Some("insufficient_scope"),
            Self::Unavailable(_) => Some("temporarily_unavailable"),
        }
    }

    /// The text for the client. Of a provider that does not answer, clients learn no more than that.
    pub fn public_text(&self) -> String {
        match self {
            Self::Unavailable(_) => "the login cannot be checked at the moment; try again".to_owned(),
            other => other.to_string(),
        }
    }
}
