//! JSON Web Tokens as access tokens (RFC 9068), by the best current practices (RFC 8725).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode};
use serde_json::{Map, Value};

use super::config::IssuerConfig;
use super::key_set::KeySet;
use super::strict_json::StrictObject;
use super::{TokenAlgorithm, TokenFault};

/// The longest identifier of a key, in bytes.
const LONGEST_KEY_ID: usize = 512;
/// The claims by which an ID token is told from an access token of the same issuer (OpenID Connect Core, 2 and 3.3.2.11).
const OF_ID_TOKENS: [&str; 4] = ["nonce", "at_hash", "c_hash", "s_hash"];

/// A token that claims to be a JWT of an issuer. Nothing of it is verified.
#[derive(Debug)]
pub(super) struct UnverifiedJwt<'t> {
    token: &'t str,
    header: StrictObject,
    issuer: String,
}

impl<'t> UnverifiedJwt<'t> {
    /// Reads a token that looks like a JWT; none if it does not.
    pub(super) fn parse(token: &'t str) -> Option<Result<Self, TokenFault>> {
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let part = |text| URL_SAFE_NO_PAD.decode(text).ok();
        // What has such a header is a JWT, though maybe a bad one; it is not shown to anybody else.
        if !part(header)?.starts_with(b"{") {
            return None;
        }
        let read = || {
            let header = StrictObject::parse(&part(header)?)?;
            let claims = StrictObject::parse(&part(claims)?)?;
            Some(Self { token, header, issuer: claims.text("iss")?.to_owned() })
        };
        Some(read().ok_or(TokenFault::Malformed))
    }

    /// The issuer that the token names.
    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The key that the token names.
    pub(super) fn key_id(&self) -> Result<Option<&str>, TokenFault> {
        match self.header.0.get("kid") {
            None => Ok(None),
            Some(Value::String(id)) if id.len() <= LONGEST_KEY_ID => Ok(Some(id)),
            Some(_) => Err(TokenFault::Malformed),
        }
    }

    /// The checks that need no key, so that nothing is asked for a token that is refused anyway.
    pub(super) fn check_header(&self, issuer: &IssuerConfig) -> Result<TokenAlgorithm, TokenFault> {
        if self.header.0.contains_key("crit") {
            return Err(TokenFault::Critical);
        }
        self.key_id()?;
        let algorithm = self.header.text("alg").and_then(TokenAlgorithm::by_name);
        let algorithm = algorithm.filter(|algorithm| issuer.algorithms.contains(*algorithm));
        let algorithm = algorithm.ok_or(TokenFault::Algorithm)?;
        match self.header.0.get("typ") {
            None => Ok(algorithm),
            Some(Value::String(kind)) if is_access_token(kind) || kind.eq_ignore_ascii_case("JWT") => {
                Ok(algorithm)
            }
            Some(_) => Err(TokenFault::Kind),
        }
    }

    /// The claims, if a key of the issuer has signed them and they are valid now, whatever kind of token it is.
    ///
    /// The header's own keys (`jwk`, `jku`, `x5c`, `x5u`) are the sender's, and never used.
    pub(super) fn verify(
        &self,
        issuer: &IssuerConfig,
        keys: &KeySet,
        skew: Duration,
    ) -> Result<Map<String, Value>, TokenFault> {
        let algorithm = self.check_header(issuer)?;
        let mut validation = Validation::new(algorithm.get());
        validation.set_required_spec_claims(&["exp", "iss", "sub"]);
        validation.set_issuer(&[issuer.issuer.as_str()]);
        validation.validate_nbf = true;
        validation.leeway = skew.as_secs();
        // `claims.rs` does, for tokens of every kind.
        validation.validate_aud = false;
        let mut fault = TokenFault::Signature;
        for key in keys.candidates(self.key_id()?, algorithm) {
            match decode::<StrictObject>(self.token, key, &validation) {
                Ok(decoded) => return Ok(decoded.claims.0),
                Err(error) => match fault_of(error.kind()) {
                    TokenFault::Signature => {}
                    other => fault = other,
                },
            }
        }
        Err(fault)
    }

    /// Whether its header says that it is an access token (RFC 9068).
    pub(super) fn is_said_to_be_for_access(&self) -> bool {
        self.header.text("typ").is_some_and(is_access_token)
    }

    /// Whether verified claims may be those of an access token: nothing says that they are something else.
    pub(super) fn may_be_for_access(&self, claims: &Map<String, Value>) -> bool {
        self.is_said_to_be_for_access() || !OF_ID_TOKENS.iter().any(|claim| claims.contains_key(*claim))
    }
}

fn is_access_token(kind: &str) -> bool {
    ["at+jwt", "application/at+jwt"].iter().any(|name| kind.eq_ignore_ascii_case(name))
}

fn fault_of(kind: &ErrorKind) -> TokenFault {
    match kind {
        ErrorKind::ExpiredSignature => TokenFault::Expired,
        ErrorKind::ImmatureSignature => TokenFault::Early,
        ErrorKind::InvalidIssuer => TokenFault::Issuer,
        ErrorKind::MissingRequiredClaim(claim) if claim == "sub" => TokenFault::Subject,
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => TokenFault::Claim,
        ErrorKind::InvalidSignature => TokenFault::Signature,
        ErrorKind::InvalidAlgorithm => TokenFault::Algorithm,
        // A key that cannot be used is the issuer's fault; another may fit.
        ErrorKind::InvalidRsaKey(_) | ErrorKind::InvalidEcdsaKey | ErrorKind::InvalidKeyFormat => {
            TokenFault::Signature
        }
        _ => TokenFault::Malformed,
    }
}
