//! The assertion by which a client authenticates with its key (RFC 7523), signed by `ring`.
//!
//! rmcp does it with `jsonwebtoken` on `aws-lc-rs`, a second library of cryptography in the program beside that of
//! rustls.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use super::{Error, SigningAlgorithm};

/// The lifetime of an assertion, in seconds.
const LIFETIME_SECS: u64 = 300;

/// An assertion for the authorization server `audience`.
///
/// # Errors
/// The key is not one in PEM that the algorithm takes.
pub(super) fn assertion(
    client_id: &str,
    audience: &str,
    private_key: &str,
    algorithm: SigningAlgorithm,
    now: u64,
) -> Result<String, Error> {
    let header = json!({"alg": algorithm.name(), "typ": "JWT"});
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + LIFETIME_SECS,
        "jti": uuid::Uuid::new_v4().to_string(),
    });
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(&claims));
    let signature = sign(signed.as_bytes(), private_key, algorithm)?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn sign(message: &[u8], private_key: &str, algorithm: SigningAlgorithm) -> Result<Vec<u8>, Error> {
    let unusable = |why: String| Error::Key(why);
    let key = PrivateKeyDer::from_pem_slice(private_key.as_bytes())
        .map_err(|error| unusable(format!("it is no private key in PEM: {error}")))?;
    let random = SystemRandom::new();
    let rejected =
        |error: ring::error::KeyRejected| unusable(format!("{} does not take it: {error}", algorithm.name()));
    let ec = |kind| match &key {
        PrivateKeyDer::Pkcs8(key) => {
            let pair = EcdsaKeyPair::from_pkcs8(kind, key.secret_pkcs8_der(), &random).map_err(rejected)?;
            let signature = pair.sign(&random, message).map_err(|error| unusable(error.to_string()))?;
            Ok(signature.as_ref().to_vec())
        }
        _ => Err(unusable("an EC key has to be in PKCS#8: `openssl pkcs8 -topk8 -nocrypt`".to_owned())),
    };
    let rsa = |padding| {
        let pair = match &key {
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err(unusable(format!("{} takes an RSA key", algorithm.name()))),
        };
        let pair = pair.map_err(rejected)?;
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(padding, &random, message, &mut signature).map_err(|error| unusable(error.to_string()))?;
        Ok(signature)
    };
    match algorithm {
        SigningAlgorithm::Es256 => ec(&ECDSA_P256_SHA256_FIXED_SIGNING),
        SigningAlgorithm::Es384 => ec(&ECDSA_P384_SHA384_FIXED_SIGNING),
        SigningAlgorithm::Rs256 => rsa(&RSA_PKCS1_SHA256),
        SigningAlgorithm::Rs384 => rsa(&RSA_PKCS1_SHA384),
        SigningAlgorithm::Rs512 => rsa(&RSA_PKCS1_SHA512),
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};

    use super::*;

    #[test]
    fn an_assertion_is_signed_for_its_audience() {
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let body = base64::engine::general_purpose::STANDARD.encode(document.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        let assertion = assertion("me", "https://as", &pem, SigningAlgorithm::Es256, 1000).unwrap();
        let parts: Vec<&str> = assertion.split('.').collect();
        let claims = URL_SAFE_NO_PAD.decode(parts[1]).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!((claims["sub"].as_str(), claims["aud"].as_str()), (Some("me"), Some("https://as")));
        assert_eq!(claims["exp"], 1300);
        let pair = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            document.as_ref(),
            &SystemRandom::new(),
        );
        let pair = pair.unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        let signed = format!("{}.{}", parts[0], parts[1]);
        public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(parts[2]).unwrap()).unwrap();
    }

    #[test]
    fn a_key_that_cannot_sign_is_refused_and_not_shown() {
        for key in ["", "s3cret", "-----BEGIN PRIVATE KEY-----\nczNjcmV0\n-----END PRIVATE KEY-----\n"] {
            for (_, algorithm) in SigningAlgorithm::NAMES {
                let error = assertion("me", "https://as", key, algorithm, 0).unwrap_err().to_string();
                assert!(
                    error.starts_with("`private_key` cannot be used") && !error.contains("s3cret"),
                    "{error}"
                );
            }
        }
    }
}
