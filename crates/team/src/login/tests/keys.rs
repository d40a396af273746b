//! Keys that sign the tokens of tests.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

/// A key of some kind, with the identifier by which tokens name it.
pub(super) struct TestKey {
    pub(super) id: String,
    kind: KeyKind,
}

enum KeyKind {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl TestKey {
    pub(super) fn es256(id: &str) -> Self {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &SystemRandom::new());
        Self { id: id.to_owned(), kind: KeyKind::Es256(pair.unwrap()) }
    }

    pub(super) fn es384(id: &str) -> Self {
        let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &SystemRandom::new());
        Self { id: id.to_owned(), kind: KeyKind::Es384(pair.unwrap()) }
    }

    pub(super) fn ed(id: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        Self { id: id.to_owned(), kind: KeyKind::Ed(pair) }
    }

    /// Always the same one: `ring` makes none.
    pub(super) fn rsa(id: &str) -> Self {
        let document = include_str!("rsa_key.txt").split_whitespace().collect::<String>();
        let pair = RsaKeyPair::from_der(&STANDARD.decode(document).unwrap()).unwrap();
        Self { id: id.to_owned(), kind: KeyKind::Rsa(pair) }
    }

    /// The public key as JWK.
    pub(super) fn jwk(&self) -> Value {
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let ec = |curve: &str, pair: &EcdsaKeyPair| {
            let point = &pair.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            json!({"kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y), "kid": self.id})
        };
        match &self.kind {
            KeyKind::Es256(pair) => ec("P-256", pair),
            KeyKind::Es384(pair) => ec("P-384", pair),
            KeyKind::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(pair.public_key().as_ref()), "kid": self.id})
            }
            KeyKind::Rsa(_) => {
                let public = self.rsa_components();
                json!({"kty": "RSA", "n": encoded(&public.n), "e": encoded(&public.e), "kid": self.id})
            }
        }
    }

    pub(super) fn rsa_components(&self) -> PublicKeyComponents<Vec<u8>> {
        let KeyKind::Rsa(pair) = &self.kind else { panic!("no RSA key") };
        PublicKeyComponents::from(pair.public())
    }

    /// A token with this header's changes and these claims.
    pub(super) fn token(&self, header: Value, claims: &Value) -> String {
        self.token_of(header, &claims.to_string())
    }

    pub(super) fn token_of(&self, changes: Value, claims: &str) -> String {
        let mut header = json!({"alg": self.algorithm(), "typ": "at+jwt", "kid": self.id});
        super::changed(&mut header, changes);
        let message =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.sign(message.as_bytes(), header["alg"] == "PS256");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn algorithm(&self) -> &'static str {
        match &self.kind {
            KeyKind::Es256(_) => "ES256",
            KeyKind::Es384(_) => "ES384",
            KeyKind::Ed(_) => "EdDSA",
            KeyKind::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8], by_pss: bool) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.kind {
            KeyKind::Es256(pair) | KeyKind::Es384(pair) => {
                pair.sign(&random, message).unwrap().as_ref().to_vec()
            }
            KeyKind::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            KeyKind::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let padding: &'static dyn ring::signature::RsaEncoding =
                    if by_pss { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }
}
