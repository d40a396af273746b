//! The public keys of an issuer (RFC 7517), each for the algorithms that fit it.

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use serde::Deserialize;
use serde_json::Value;

use super::TokenAlgorithm;

/// The number of keys of an issuer that are kept. Those with the most rotate among about ten.
const MOST_KEYS: usize = 64;
/// The number of keys that are tried on a token that names none.
const MOST_TRIED: usize = 8;

/// The keys of an issuer that can verify tokens.
#[derive(Debug)]
pub(super) struct KeySet(Vec<VerificationKey>);

#[derive(Debug)]
struct VerificationKey {
    id: Option<String>,
    /// The algorithms that the key itself allows.
    algorithms: Vec<TokenAlgorithm>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct WrittenKeySet {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a JWK Set. Keys that are not for signatures, or of unknown kinds, are left out (RFC 7517, 5).
    ///
    /// # Errors
    /// It is none; the text follows the address.
    pub(super) fn parse(json: &[u8]) -> Result<Self, &'static str> {
        let written: WrittenKeySet = serde_json::from_slice(json)
            .map_err(|_| "answers with something that is no set of keys (JWKS)")?;
        let keys = written.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let keys: Vec<_> = keys.filter_map(|key: Jwk| VerificationKey::new(&key)).take(MOST_KEYS).collect();
        if keys.is_empty() { Err("has no key that could verify a signature") } else { Ok(Self(keys)) }
    }

    /// Whether a token that names this key can be verified at all.
    pub(super) fn has(&self, id: Option<&str>) -> bool {
        self.0.iter().any(|key| key.is(id))
    }

    /// The keys by which a token may be signed that names the key `id` and the algorithm.
    pub(super) fn candidates(
        &self,
        id: Option<&str>,
        algorithm: TokenAlgorithm,
    ) -> impl Iterator<Item = &DecodingKey> {
        let fitting = move |key: &&VerificationKey| key.is(id) && key.algorithms.contains(&algorithm);
        self.0.iter().filter(fitting).take(MOST_TRIED).map(|key| &key.key)
    }
}

impl VerificationKey {
    fn new(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let is_for_signatures = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature))
            && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        let algorithms: Vec<_> = TokenAlgorithm::all()
            .filter(|algorithm| {
                common.key_algorithm.is_none_or(|only| only == KeyAlgorithm::from(algorithm.get()))
            })
            .filter(|algorithm| fits(&jwk.algorithm, *algorithm))
            .collect();
        if !is_for_signatures || algorithms.is_empty() {
            return None;
        }
        Some(Self { id: common.key_id.clone(), algorithms, key: DecodingKey::from_jwk(jwk).ok()? })
    }

    fn is(&self, id: Option<&str>) -> bool {
        id.is_none() || self.id.as_deref() == id
    }
}

/// Whether a key of this kind can verify signatures of this algorithm.
fn fits(kind: &AlgorithmParameters, algorithm: TokenAlgorithm) -> bool {
    use jsonwebtoken::{Algorithm, AlgorithmFamily};
    match kind {
        AlgorithmParameters::RSA(_) => algorithm.get().family() == AlgorithmFamily::Rsa,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => algorithm.get() == Algorithm::ES256,
            EllipticCurve::P384 => algorithm.get() == Algorithm::ES384,
            _ => false,
        },
        AlgorithmParameters::OctetKeyPair(key) => {
            key.curve == EllipticCurve::Ed25519 && algorithm.get() == Algorithm::EdDSA
        }
        // A secret that is published is none.
        _ => false,
    }
}
