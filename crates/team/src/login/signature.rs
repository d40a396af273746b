//! Verification of signatures by `ring`, which TLS has in the program already, for `jsonwebtoken`.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result, new_error};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

static RING: CryptoProvider = CryptoProvider {
    signer_factory: refuse_to_sign,
    verifier_factory: verifier,
    // For keys that are private or in PEM, of which there are none here.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Lets `jsonwebtoken` verify by `ring`.
pub(super) fn install() {
    // An error means that it has a provider already.
    RING.install_default().ok();
}

fn refuse_to_sign(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(new_error(ErrorKind::UnsupportedAlgorithm))
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if key.family() != algorithm.family() || key.family() == AlgorithmFamily::Hmac {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let verified = match (self.key.kind(), rsa(self.algorithm), curve(self.algorithm)) {
            (DecodingKeyKind::RsaModulusExponent { n, e }, Some(parameters), _) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (DecodingKeyKind::SecretOrDer(key), None, Some(curve)) => {
                UnparsedPublicKey::new(curve, key).verify(message, signature)
            }
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&ED25519),
        _ => None,
    }
}
