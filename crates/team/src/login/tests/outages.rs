//! Keys that change, and providers that do not answer.

use std::sync::Arc;

use super::provider::ProviderReply;
use super::*;

const METADATA: &str = "/.well-known/oauth-authorization-server";

fn unavailable(user: Result<TeamUser, TokenLoginError>) -> String {
    match user {
        Err(error @ TokenLoginError::Unavailable(_)) => {
            assert_eq!(error.status(), 503);
            assert!(!error.public_text().contains("127.0.0.1"));
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn made_up_keys_cost_the_provider_one_request() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = Arc::new(with_provider(&provider, "", SLOW));
    let claims = claims(&provider, json!({}));
    let mut requests = tokio::task::JoinSet::new();
    for index in 0..200 {
        let token = key.token(json!({"kid": format!("made up {index}")}), &claims);
        let authenticator = Arc::clone(&authenticator);
        requests.spawn(async move { fault(&authenticator, &token).await });
    }
    assert!(requests.join_all().await.iter().all(|fault| *fault == TokenFault::Signature));
    assert_eq!(provider.requests("/keys").len(), 1);
    user(&authenticator, &key.token(json!({}), &claims)).await.unwrap();
    let long = key.token(json!({"kid": "k".repeat(1000)}), &claims);
    assert_eq!(fault(&authenticator, &long).await, TokenFault::Malformed);
    assert_eq!(provider.requests("/keys").len(), 1);
}

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it() {
    let (old, new) = (TestKey::es256("old"), TestKey::es256("new"));
    let provider = TestProvider::new(&[&old]).await;
    let authenticator = with_provider(&provider, "", KeyTimes { urgent: Duration::ZERO, ..SLOW });
    let claims = claims(&provider, json!({}));
    user(&authenticator, &old.token(json!({}), &claims)).await.unwrap();
    provider.has_keys(&[&old, &new]);
    user(&authenticator, &new.token(json!({}), &claims)).await.unwrap();
    user(&authenticator, &old.token(json!({}), &claims)).await.unwrap();
    assert_eq!(provider.requests("/keys").len(), 2);
}

#[tokio::test]
async fn a_withdrawn_key_is_soon_refused() {
    let (old, new) = (TestKey::es256("old"), TestKey::es256("new"));
    let provider = TestProvider::new(&[&old, &new]).await;
    let authenticator = with_provider(&provider, "", EAGER);
    let token = old.token(json!({}), &claims(&provider, json!({})));
    user(&authenticator, &token).await.unwrap();
    provider.has_keys(&[&new]);
    let refused = async {
        loop {
            if let Err(error) = user(&authenticator, &token).await {
                return error;
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(60), refused).await.unwrap();
    assert_eq!(refused, TokenFault::Signature.into());
}

#[tokio::test]
async fn known_keys_outlast_an_outage_but_not_a_long_one() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let (mut outage, unknown) = (with_provider(&provider, "", EAGER), with_provider(&provider, "", EAGER));
    let claims = claims(&provider, json!({}));
    let token = key.token(json!({}), &claims);
    user(&outage, &token).await.unwrap();
    provider.breaks();
    user(&outage, &token).await.unwrap();
    provider.is_asked(METADATA, 2).await;
    // What only the provider could tell is not guessed.
    unavailable(user(&outage, &key.token(json!({"kid": "b"}), &claims)).await);
    assert!(unavailable(user(&unknown, &token).await).contains("answers 500"));
    outage.issuers[0].times.longest = Duration::ZERO;
    unavailable(user(&outage, &token).await);
    // A token that is refused anyway needs no provider.
    let expected = TokenFault::Issuer;
    assert_eq!(
        fault(&unknown, &key.token(json!({}), &json!({"iss": "https://other.example"}))).await,
        expected
    );
    let checks = unknown.check().await;
    assert_eq!(checks[0].issuer, provider.url);
    assert!(checks[0].result.as_ref().unwrap_err().to_string().contains("answers 500"));
}

#[tokio::test]
async fn nobody_waits_for_a_provider_that_sleeps_but_who_asks() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = Arc::new(with_provider(&provider, "", EAGER));
    let token = key.token(json!({}), &claims(&provider, json!({})));
    user(&authenticator, &token).await.unwrap();
    provider.sleeps();
    let before = provider.requests(METADATA).len();
    let waiting = tokio::spawn({
        let (authenticator, token) = (Arc::clone(&authenticator), token.clone());
        async move { user(&authenticator, &token).await }
    });
    provider.is_asked(METADATA, before + 1).await;
    for _ in 0..10 {
        user(&authenticator, &token).await.unwrap();
    }
    assert_eq!(provider.requests(METADATA).len(), before + 1);
    provider.awakes();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn clients_that_hang_up_do_not_make_the_provider_be_asked_again() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let token = key.token(json!({}), &claims(&provider, json!({})));
    provider.sleeps();
    for _ in 0..20 {
        let mut request = std::pin::pin!(user(&authenticator, &token));
        // Polled once, and dropped.
        assert!(futures_now(request.as_mut()).await.is_none());
    }
    provider.is_asked(METADATA, 1).await;
    provider.awakes();
    user(&authenticator, &token).await.unwrap();
    assert_eq!((provider.requests(METADATA).len(), provider.requests("/keys").len()), (1, 1));
}

#[tokio::test]
async fn a_key_may_be_replaced_under_its_name() {
    let (old, new) = (TestKey::es256("a"), TestKey::es256("a"));
    let provider = TestProvider::new(&[&old]).await;
    let authenticator = with_provider(&provider, "", KeyTimes { urgent: Duration::ZERO, ..SLOW });
    let held = with_provider(&provider, "", SLOW);
    let claims = claims(&provider, json!({}));
    for (name, authenticator) in [(json!({}), &authenticator), (json!({"kid": null}), &held)] {
        user(authenticator, &old.token(name, &claims)).await.unwrap();
    }
    provider.has_keys(&[&new]);
    user(&authenticator, &new.token(json!({"kid": null}), &claims)).await.unwrap();
    assert_eq!(fault(&authenticator, &old.token(json!({}), &claims)).await, TokenFault::Signature);
    // But not more often than the provider bears.
    let before = provider.requests("/keys").len();
    assert_eq!(fault(&held, &new.token(json!({}), &claims)).await, TokenFault::Signature);
    assert_eq!(provider.requests("/keys").len(), before);
}

/// The result of a future that has one at once.
async fn futures_now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut future = Some(future);
    std::future::poll_fn(move |context| {
        let polled = future.take().map(|future| future.poll(context));
        std::task::Poll::Ready(match polled {
            Some(std::task::Poll::Ready(result)) => Some(result),
            _ => None,
        })
    })
    .await
}

#[tokio::test]
async fn answers_that_are_no_keys_are_faults() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let attacker = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", EAGER);
    let token = key.token(json!({}), &claims(&provider, json!({})));
    let large = format!("{{\"keys\": [{}]}}", " ".repeat(600 * 1024));
    for (reply, said) in [
        (ProviderReply::Redirect(format!("{}/keys", attacker.url)), "leads to another address"),
        (ProviderReply::Text(large), "more than 524288 bytes"),
        (ProviderReply::Text("<html>".to_owned()), "no set of keys"),
        (ProviderReply::Json(json!({"keys": []})), "has no key that could verify"),
        (ProviderReply::Json(json!({"keys": [{"kty": "oct", "k": "AAAA"}]})), "has no key that could verify"),
        (ProviderReply::Status(404), "answers 404"),
        (ProviderReply::Status(429), "answers 429"),
    ] {
        provider.answers("/keys", reply);
        let error = unavailable(user(&authenticator, &token).await);
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(attacker.requests("/keys").len(), 0);
    let other = json!({"issuer": attacker.url, "jwks_uri": format!("{}/keys", attacker.url)});
    provider.answers(METADATA, ProviderReply::Json(other));
    let error = unavailable(user(&authenticator, &token).await);
    assert!(error.contains("is the metadata of the issuer"), "{error}");
    assert_eq!(attacker.requests("/keys").len(), 0);
}

#[tokio::test]
async fn keys_may_have_an_address_of_their_own() {
    let key = TestKey::es256("a");
    let (provider, keys) = (TestProvider::new(&[]).await, TestProvider::new(&[&key]).await);
    let authenticator = with_provider(&provider, &format!("jwks_uri = \"{}/keys\"", keys.url), SLOW);
    user(&authenticator, &key.token(json!({}), &claims(&provider, json!({})))).await.unwrap();
    assert_eq!(provider.requests(METADATA).len(), 0);
}
