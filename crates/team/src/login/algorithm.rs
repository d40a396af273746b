//! The algorithms by which tokens may be signed.

use jsonwebtoken::Algorithm;
use serde::Deserialize;

/// An algorithm of RFC 7518 or RFC 8037 with a public key. Neither `none` nor those with a shared secret (`HS256`…).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct TokenAlgorithm(Algorithm);

/// Why a text names no [`TokenAlgorithm`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no algorithm with a public key; use some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA"
)]
pub struct AlgorithmError(String);

impl TokenAlgorithm {
    /// The algorithms that an issuer signs with unless its configuration names others.
    pub const DEFAULT: [Self; 3] = [Self(Algorithm::RS256), Self(Algorithm::ES256), Self(Algorithm::EdDSA)];

    const ALL: [(&'static str, Algorithm); 9] = [
        ("RS256", Algorithm::RS256),
        ("RS384", Algorithm::RS384),
        ("RS512", Algorithm::RS512),
        ("PS256", Algorithm::PS256),
        ("PS384", Algorithm::PS384),
        ("PS512", Algorithm::PS512),
        ("ES256", Algorithm::ES256),
        ("ES384", Algorithm::ES384),
        ("EdDSA", Algorithm::EdDSA),
    ];

    /// The algorithm that a token's header names.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| Self(*algorithm))
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().map(|(_, algorithm)| Self(*algorithm))
    }

    pub(super) fn get(self) -> Algorithm {
        self.0
    }
}

impl TryFrom<String> for TokenAlgorithm {
    type Error = AlgorithmError;

    fn try_from(name: String) -> Result<Self, AlgorithmError> {
        Self::by_name(&name).ok_or(AlgorithmError(name))
    }
}
