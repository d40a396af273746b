//! Tokens that attackers make: none of them makes a user.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;

use super::provider::ProviderReply;
use super::*;

/// A token whose signature is these bytes.
fn unsigned(header: &Value, claims: &Value, signature: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = signature(message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn an_unsigned_token_is_refused() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let claims = claims(&provider, json!({}));
    for algorithm in
        [json!("none"), json!("None"), json!("nOnE"), json!(""), json!(null), json!(["ES256"]), json!(0)]
    {
        let token = unsigned(&json!({"alg": algorithm, "kid": "a"}), &claims, |_| Vec::new());
        assert_eq!(fault(&authenticator, &token).await, TokenFault::Algorithm, "{algorithm}");
    }
    let token = unsigned(&json!({"kid": "a"}), &claims, |_| Vec::new());
    assert_eq!(fault(&authenticator, &token).await, TokenFault::Algorithm);
    for signature in [vec![], vec![0; 64], vec![1; 63]] {
        let token = unsigned(&json!({"alg": "ES256", "kid": "a"}), &claims, |_| signature.clone());
        assert_eq!(fault(&authenticator, &token).await, TokenFault::Signature);
    }
    assert!(provider.requests("/keys").len() <= 1);
}

#[tokio::test]
async fn a_public_key_is_no_shared_secret() {
    let key = TestKey::rsa("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let claims = claims(&provider, json!({}));
    let public = key.rsa_components();
    let pem =
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(&public.n));
    for secret in [public.n.clone(), URL_SAFE_NO_PAD.encode(&public.n).into_bytes(), pem.into_bytes()] {
        let sign = |message: &[u8]| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), message).as_ref().to_vec()
        };
        let token = unsigned(&json!({"alg": "HS256", "kid": "a"}), &claims, sign);
        assert_eq!(fault(&authenticator, &token).await, TokenFault::Algorithm);
    }
    // A secret among the public keys is of no use to anybody either.
    let secret = json!({"kty": "oct", "k": URL_SAFE_NO_PAD.encode("known"), "kid": "b"});
    provider.answers("/keys", ProviderReply::Json(json!({"keys": [key.jwk(), secret]})));
    let sign =
        |message: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"known"), message).as_ref().to_vec();
    for algorithm in ["HS256", "RS256", "ES256"] {
        let token = unsigned(&json!({"alg": algorithm, "kid": "b"}), &claims, sign);
        let fault = fault(&authenticator, &token).await;
        assert!(matches!(fault, TokenFault::Algorithm | TokenFault::Signature), "{fault:?}");
    }
}

#[tokio::test]
async fn a_key_verifies_only_by_its_own_algorithms() {
    let keys = [TestKey::es256("es"), TestKey::ed("ed"), TestKey::rsa("rs")];
    let provider = TestProvider::new(&[]).await;
    let mut pinned = keys[2].jwk();
    changed(&mut pinned, json!({"alg": "RS256"}));
    let mut encrypts = keys[0].jwk();
    changed(&mut encrypts, json!({"use": "enc", "kid": "enc"}));
    let mut signs = keys[0].jwk();
    changed(&mut signs, json!({"key_ops": ["sign"], "kid": "ops"}));
    let all = json!({"keys": [keys[0].jwk(), keys[1].jwk(), pinned, encrypts, signs, {"kty": "new", "kid": "new"}, 1]});
    provider.answers("/keys", ProviderReply::Json(all));
    let any = "algorithms = [\"RS256\", \"PS256\", \"ES256\", \"ES384\", \"EdDSA\"]";
    let authenticator = with_provider(&provider, any, SLOW);
    let claims = claims(&provider, json!({}));
    user(&authenticator, &keys[2].token(json!({}), &claims)).await.unwrap();
    let confused = [
        (&keys[2], json!({"alg": "PS256"})),
        (&keys[0], json!({"alg": "EdDSA"})),
        (&keys[0], json!({"alg": "ES384"})),
        (&keys[0], json!({"kid": "rs"})),
        (&keys[1], json!({"kid": "es"})),
        (&keys[0], json!({"kid": "enc"})),
        (&keys[0], json!({"kid": "ops"})),
        (&keys[0], json!({"kid": "new"})),
    ];
    for (key, header) in confused {
        assert_eq!(
            fault(&authenticator, &key.token(header.clone(), &claims)).await,
            TokenFault::Signature,
            "{header}"
        );
    }
    let strict = with_provider(&provider, "algorithms = [\"ES256\"]", SLOW);
    assert_eq!(fault(&strict, &keys[2].token(json!({}), &claims)).await, TokenFault::Algorithm);
}

#[tokio::test]
async fn a_key_that_the_token_brings_is_not_used() {
    let (key, mine) = (TestKey::es256("a"), TestKey::es256("a"));
    let (provider, attacker) = (TestProvider::new(&[&key]).await, TestProvider::new(&[&mine]).await);
    let authenticator = with_provider(&provider, "", SLOW);
    let claims = claims(&provider, json!({}));
    let keys = format!("{}/keys", attacker.url);
    for header in [
        json!({"jwk": mine.jwk()}),
        json!({"jwk": mine.jwk(), "kid": null}),
        json!({"jku": keys}),
        json!({"x5u": keys}),
        json!({"x5c": ["MIIB"]}),
        json!({"jku": keys, "kid": "b"}),
        json!({"kid": keys}),
        json!({"kid": "../../keys"}),
    ] {
        assert_eq!(
            fault(&authenticator, &mine.token(header.clone(), &claims)).await,
            TokenFault::Signature,
            "{header}"
        );
    }
    assert_eq!(attacker.requests("/keys").len(), 0);
    // The right key still is one.
    user(&authenticator, &key.token(json!({"jwk": mine.jwk(), "jku": keys}), &claims)).await.unwrap();
}

#[tokio::test]
async fn a_token_of_another_issuer_or_for_another_server_is_refused() {
    let key = TestKey::es256("a");
    let (provider, other) = (TestProvider::new(&[&key]).await, TestProvider::new(&[&key]).await);
    let authenticator = with_provider(&provider, "", SLOW);
    let token = |changes| key.token(json!({}), &claims(&provider, changes));
    let slash = format!("{}/", provider.url);
    for issuer in [other.url.as_str(), &slash, "local", ""] {
        assert_eq!(fault(&authenticator, &token(json!({"iss": issuer}))).await, TokenFault::Issuer);
    }
    for issuer in [json!([provider.url]), json!(1), json!(null)] {
        assert_eq!(fault(&authenticator, &token(json!({"iss": issuer}))).await, TokenFault::Malformed);
    }
    assert_eq!(other.requests("/keys").len(), 0);
    for audience in
        [json!("https://other.example"), json!([]), json!(null), json!(format!("{RESOURCE}/")), json!("")]
    {
        assert_eq!(
            fault(&authenticator, &token(json!({"aud": audience}))).await,
            TokenFault::Audience,
            "{audience}"
        );
    }
    for audience in [json!(1), json!({RESOURCE: 1}), json!([RESOURCE, 1]), json!([[RESOURCE]]), json!(true)] {
        assert_eq!(
            fault(&authenticator, &token(json!({"aud": audience}))).await,
            TokenFault::Claim,
            "{audience}"
        );
    }
}

#[tokio::test]
async fn one_issuer_signs_for_no_other_one() {
    let (key, evil) = (TestKey::es256("a"), TestKey::es256("a"));
    let (provider, second) = (TestProvider::new(&[&key]).await, TestProvider::new(&[&evil]).await);
    let table = |provider: &TestProvider| format!("[[login.issuer]]\nissuer = \"{}\"\n", provider.url);
    let authenticator = configured(&format!("{}{}", table(&provider), table(&second)), SLOW);
    user(&authenticator, &evil.token(json!({}), &claims(&second, json!({})))).await.unwrap();
    let forged = evil.token(json!({}), &claims(&provider, json!({})));
    assert_eq!(fault(&authenticator, &forged).await, TokenFault::Signature);
}

#[tokio::test]
async fn an_extension_that_is_not_known_is_refused() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    for critical in [json!(["b64"]), json!([]), json!(["exp"]), json!("x")] {
        let header = json!({"crit": critical, "b64": false, "exp": 1});
        let token = key.token(header, &claims(&provider, json!({})));
        assert_eq!(fault(&authenticator, &token).await, TokenFault::Critical);
    }
}

#[tokio::test]
async fn a_token_that_says_two_things_is_refused() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let good = claims(&provider, json!({})).to_string();
    user(&authenticator, &key.token_of(json!({}), &good)).await.unwrap();
    for twice in ["\"sub\":\"root\"", "\"\\u0073ub\":\"root\"", "\"a\":{\"b\":1,\"b\":2}", "\"x\":1,\"x\":1"]
    {
        for claims in
            [good.replacen('{', &format!("{{{twice},"), 1), good.replace("\"}", &format!("\",{twice}}}"))]
        {
            assert_ne!(claims, good);
            assert_eq!(fault(&authenticator, &key.token_of(json!({}), &claims)).await, TokenFault::Malformed);
        }
    }
}

#[tokio::test]
async fn what_is_no_access_token_is_refused() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let token = |header: Value, changes| key.token(header, &claims(&provider, changes));
    for header in ["id_token", "logout+jwt", "dpop+jwt", "rt+jwt", "application/jwt+x"] {
        assert_eq!(fault(&authenticator, &token(json!({"typ": header}), json!({}))).await, TokenFault::Kind);
    }
    assert_eq!(fault(&authenticator, &token(json!({"typ": 1}), json!({}))).await, TokenFault::Kind);
    let plain = json!({"typ": "JWT"});
    user(&authenticator, &token(plain.clone(), json!({"typ": "Bearer", "token_use": "access"})))
        .await
        .unwrap();
    for changes in [
        json!({"nonce": "n"}),
        json!({"at_hash": "h"}),
        json!({"c_hash": "h"}),
        json!({"typ": "ID"}),
        json!({"typ": "Refresh"}),
        json!({"token_use": "id"}),
        json!({"token_use": 1}),
    ] {
        assert_eq!(
            fault(&authenticator, &token(plain.clone(), changes.clone())).await,
            TokenFault::Kind,
            "{changes}"
        );
    }
    let bound = json!({"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}});
    assert_eq!(fault(&authenticator, &token(json!({}), bound)).await, TokenFault::Bound);
}

#[tokio::test]
async fn claims_of_wrong_types_make_no_user() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let long = "a".repeat(600);
    for (changes, expected) in [
        (json!({"sub": null}), TokenFault::Subject),
        (json!({"sub": ""}), TokenFault::Subject),
        (json!({"sub": "a\u{0}b"}), TokenFault::Subject),
        (json!({"sub": long}), TokenFault::Subject),
        (json!({"sub": 1}), TokenFault::Subject),
        (json!({"exp": null}), TokenFault::Claim),
        (json!({"exp": "2100"}), TokenFault::Claim),
        (json!({"exp": -1}), TokenFault::Claim),
        (json!({"exp": 1e300}), TokenFault::Claim),
        (json!({"nbf": "0"}), TokenFault::Claim),
        (json!({"groups": {"a": 1}}), TokenFault::Claim),
        (json!({"groups": ["a", 1]}), TokenFault::Claim),
        (json!({"scope": 1}), TokenFault::Claim),
        (json!({"_claim_names": {"groups": "src1"}}), TokenFault::Groups),
    ] {
        let token = key.token(json!({}), &claims(&provider, changes.clone()));
        assert_eq!(fault(&authenticator, &token).await, expected, "{changes}");
    }
}

#[tokio::test]
async fn malformed_tokens_are_shown_to_nobody() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let good = key.token(json!({}), &claims(&provider, json!({})));
    let parts: Vec<&str> = good.split('.').collect();
    let (header, body, signature) = (parts[0], parts[1], parts[2]);
    let deep = URL_SAFE_NO_PAD.encode(format!("{{\"iss\": \"a\", \"a\": {}}}", "[".repeat(5000)));
    let head = good.len() - 1;
    for token in [
        format!("{header}..{signature}"),
        format!("{header}.{header}"),
        format!("{header}.{body}.{signature}.{signature}"),
        format!("{header}.{body}="),
        format!("{header}.{deep}.{signature}"),
        format!("{header}.{body}.{signature}="),
        format!("{header}.{body}.{}", STANDARD.encode(signature)),
        good[..head].to_owned(),
        "a".to_owned(),
        "..".to_owned(),
    ] {
        let fault = fault(&authenticator, &token).await;
        let expected = [TokenFault::Malformed, TokenFault::Unknown, TokenFault::Signature];
        assert!(expected.contains(&fault), "{token}: {fault:?}");
    }
    user(&authenticator, &good).await.unwrap();
}
