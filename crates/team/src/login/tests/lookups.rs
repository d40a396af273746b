//! Opaque tokens, which only their provider knows.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;

use super::provider::ProviderReply;
use super::*;

const INTROSPECTION: &str =
    "introspection = { client_id = \"ipybox me\", client_secret_env = \"TEST_SECRET\" }";

/// A provider that knows one token, with these claims.
async fn knowing(path: &str, token: &str, claims: Value) -> TestProvider {
    let provider = TestProvider::new(&[]).await;
    knows(&provider, path, token, claims);
    provider
}

fn knows(provider: &TestProvider, path: &str, token: &str, claims: Value) {
    provider.answers(path, ProviderReply::ByToken(HashMap::from([(token.to_owned(), claims)])));
}

fn active(changes: Value) -> Value {
    let mut claims =
        json!({"active": true, "sub": "alice", "aud": RESOURCE, "exp": now() + 3000, "scope": "a b"});
    changed(&mut claims, changes);
    claims
}

#[tokio::test]
async fn an_opaque_token_is_looked_up_once() {
    let provider = knowing("/introspect", "opaque", active(json!({"username": "Alice"}))).await;
    let authenticator = Arc::new(with_provider(&provider, INTROSPECTION, SLOW));
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let authenticator = Arc::clone(&authenticator);
        requests.spawn(async move { user(&authenticator, "opaque").await.unwrap() });
    }
    for made in requests.join_all().await {
        assert_eq!((made.identity.subject.as_str(), made.name.as_str()), ("alice", "Alice"));
        assert_eq!((made.identity.issuer, made.scopes.len()), (provider.url.clone(), 2));
    }
    user(&authenticator, "opaque").await.unwrap();
    assert!((1..=3).contains(&provider.requests("/introspect").len()));
    let count = provider.requests("/introspect").len();
    user(&authenticator, "opaque").await.unwrap();
    for _ in 0..3 {
        assert_eq!(fault(&authenticator, "made-up").await, TokenFault::Unknown);
    }
    let requests = provider.requests("/introspect");
    assert_eq!(requests.len(), count + 1);
    assert_eq!(requests[0].form["token"], "opaque");
    assert_eq!(requests[0].form["token_type_hint"], "access_token");
    // RFC 6749, 2.3.1: both are form-encoded before they are put together.
    let credentials = STANDARD.encode("ipybox+me:s3cret%3A+with%2Fall%2Bkinds");
    assert_eq!(requests[0].headers[AUTHORIZATION], format!("Basic {credentials}"));
}

#[tokio::test]
async fn a_client_can_show_its_secret_in_the_form() {
    let provider = knowing("/introspect", "opaque", active(json!({}))).await;
    let post = INTROSPECTION.replace(" }", ", authentication = \"client_secret_post\" }");
    user(&with_provider(&provider, &post, SLOW), "opaque").await.unwrap();
    let request = &provider.requests("/introspect")[0];
    assert_eq!(request.form["client_secret"], "s3cret: with/all+kinds");
    assert_eq!(request.form["client_id"], "ipybox me");
    assert!(!request.headers.contains_key(AUTHORIZATION));
}

#[tokio::test]
async fn a_token_that_is_good_for_something_else_is_refused() {
    let provider = TestProvider::new(&[]).await;
    for (changes, expected) in [
        (json!({"active": false}), TokenFault::Unknown),
        (json!({"aud": null}), TokenFault::Audience),
        (json!({"aud": "https://other.example"}), TokenFault::Audience),
        (json!({"iss": "https://other.example"}), TokenFault::Issuer),
        (json!({"exp": now() - 100}), TokenFault::Expired),
        (json!({"nbf": now() + 500}), TokenFault::Early),
        (json!({"exp": "never"}), TokenFault::Claim),
        (json!({"sub": null}), TokenFault::Subject),
        (json!({"token_type": "DPoP"}), TokenFault::Bound),
        (json!({"cnf": {"x5t#S256": "a"}}), TokenFault::Bound),
        (json!({"token_type": "refresh_token"}), TokenFault::Kind),
        (json!({"typ": "Refresh"}), TokenFault::Kind),
    ] {
        let authenticator = with_provider(&provider, INTROSPECTION, SLOW);
        knows(&provider, "/introspect", "opaque", active(changes.clone()));
        assert_eq!(fault(&authenticator, "opaque").await, expected, "{changes}");
    }
    let authenticator = with_provider(&provider, INTROSPECTION, SLOW);
    knows(
        &provider,
        "/introspect",
        "opaque",
        active(json!({"exp": null, "token_type": "bearer", "iss": provider.url})),
    );
    assert_eq!(user(&authenticator, "opaque").await.unwrap().expires_at, None);
}

#[tokio::test]
async fn a_provider_that_does_not_say_yes_or_no_is_a_fault() {
    let provider = knowing("/introspect", "opaque", active(json!({}))).await;
    let authenticator = with_provider(&provider, INTROSPECTION, SLOW);
    for (reply, said) in [
        (ProviderReply::Status(401), "refuses this server's `client_id` or its secret"),
        (ProviderReply::Status(500), "answers 500"),
        (ProviderReply::Status(404), "answers 404"),
        (ProviderReply::Text("yes".to_owned()), "no introspection"),
        (ProviderReply::Json(json!({"sub": "alice"})), "no introspection"),
        (ProviderReply::Json(json!({"active": "true", "sub": "alice"})), "no introspection"),
        (ProviderReply::Text("{\"active\": false, \"active\": true}".to_owned()), "no introspection"),
    ] {
        provider.answers("/introspect", reply);
        match user(&authenticator, "opaque").await {
            Err(TokenLoginError::Unavailable(fault)) => {
                let fault = fault.to_string();
                assert!(fault.contains(said) && !fault.contains("s3cret"), "{fault}");
            }
            other => panic!("{other:?}"),
        }
    }
    // It was no answer, and is asked for again.
    knows(&provider, "/introspect", "opaque", active(json!({})));
    user(&authenticator, "opaque").await.unwrap();
    assert!(!format!("{authenticator:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_web_token_is_not_shown_to_a_provider_that_looks_up_others() {
    let (key, mine) = (TestKey::es256("a"), TestKey::es256("a"));
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, INTROSPECTION, SLOW);
    let claims = claims(&provider, json!({}));
    user(&authenticator, &key.token(json!({}), &claims)).await.unwrap();
    assert_eq!(fault(&authenticator, &mine.token(json!({}), &claims)).await, TokenFault::Signature);
    assert_eq!(fault(&authenticator, "ipybox_AAAA").await, TokenFault::Unknown);
    assert_eq!(provider.requests("/introspect").len(), 0);
}

#[tokio::test]
async fn a_missing_secret_is_named() {
    let lines = "[[login.issuer]]\nissuer = \"https://id.example\"\n".to_owned() + INTROSPECTION;
    rustls::crypto::ring::default_provider().install_default().ok();
    for secret in [None, Some(String::new())] {
        let error = UserAuthenticator::new(config(&lines), Client::new(), |_| secret.clone())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("the environment variable `TEST_SECRET`"), "{error}");
    }
}

#[tokio::test]
async fn a_token_of_a_jupyterhub_makes_its_user() {
    let hub = |changes| {
        let mut user = json!({
            "kind": "user", "name": "alice", "groups": ["lab"], "admin": false, "session_id": null,
            "scopes": ["access:services!service=ipybox", "read:users:name!user=alice"],
        });
        changed(&mut user, changes);
        user
    };
    let provider = TestProvider::new(&[]).await;
    let table = format!("jupyterhub = {{ api = \"{}/hub/api/\", service = \"ipybox\" }}", provider.url);
    let answers = |changes| knows(&provider, "/hub/api/user", "opaque", hub(changes));
    answers(json!({}));
    let made = user(&with_provider(&provider, &table, SLOW), "opaque").await.unwrap();
    assert_eq!((made.identity.subject.as_str(), made.identity.issuer), ("alice", provider.url.clone()));
    assert!(made.groups.contains("lab") && made.scopes.contains("access:services!service=ipybox"));
    answers(json!({"scopes": ["access:services"]}));
    user(&with_provider(&provider, &table, SLOW), "opaque").await.unwrap();
    for (changes, expected) in [
        (json!({"scopes": ["access:services!service=other"]}), TokenFault::Audience),
        (json!({"scopes": [], "aud": RESOURCE}), TokenFault::Audience),
        (json!({"kind": "service"}), TokenFault::Subject),
        (json!({"name": 1}), TokenFault::Subject),
    ] {
        answers(changes.clone());
        assert_eq!(fault(&with_provider(&provider, &table, SLOW), "opaque").await, expected, "{changes}");
    }
    assert_eq!(fault(&with_provider(&provider, &table, SLOW), "other").await, TokenFault::Unknown);
    let web = TestKey::es256("a").token(json!({}), &claims(&provider, json!({})));
    assert_eq!(fault(&with_provider(&provider, &table, SLOW), &web).await, TokenFault::Issuer);
}
