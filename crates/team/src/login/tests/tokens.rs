//! Good tokens, and the users that they make.

use std::collections::BTreeSet;

use super::*;

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[tokio::test]
async fn a_token_of_each_algorithm_makes_a_user() {
    let keys = [TestKey::es256("a"), TestKey::es384("b"), TestKey::ed("c"), TestKey::rsa("d")];
    let provider = TestProvider::new(&keys.each_ref()).await;
    let all = "algorithms = [\"RS256\", \"PS256\", \"ES256\", \"ES384\", \"EdDSA\"]";
    let authenticator = with_provider(&provider, all, SLOW);
    let claims = claims(&provider, json!({"name": "Alice", "groups": ["a", "b"]}));
    for key in &keys {
        let user = user(&authenticator, &key.token(json!({}), &claims)).await.unwrap();
        let identity = UserIdentity { issuer: provider.url.clone(), subject: "alice".to_owned() };
        assert_eq!((user.identity, user.name.as_str()), (identity, "Alice"));
        assert_eq!((user.groups, user.scopes), (set(&["a", "b"]), set(&["ipybox"])));
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(claims["exp"].as_u64().unwrap());
        assert_eq!(user.expires_at, Some(end));
    }
    user(&authenticator, &keys[3].token(json!({"alg": "PS256"}), &claims)).await.unwrap();
    assert_eq!(provider.requests("/keys").len(), 1);
}

#[tokio::test]
async fn a_token_that_names_no_key_is_verified_by_any_that_fits() {
    let keys = [TestKey::es256("a"), TestKey::ed("b"), TestKey::es256("c")];
    let provider = TestProvider::new(&keys.each_ref()).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let without = json!({"kid": null, "typ": null});
    for key in &keys {
        user(&authenticator, &key.token(without.clone(), &claims(&provider, json!({})))).await.unwrap();
    }
    let foreign = TestKey::es256("a").token(without, &claims(&provider, json!({})));
    assert_eq!(fault(&authenticator, &foreign).await, TokenFault::Signature);
}

#[tokio::test]
async fn claims_may_have_other_names_and_forms() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let names = "claims = { groups = [\"/realm/a~1b\", \"roles\"], name = \"nick\" }";
    let authenticator = with_provider(&provider, names, SLOW);
    let token = |changes| key.token(json!({"typ": "application/AT+jwt"}), &claims(&provider, changes));
    let made =
        user(&authenticator, &token(json!({"realm": {"a/b": ["x"]}, "roles": "y", "nick": "A\u{202e}l\ni"})))
            .await
            .unwrap();
    assert_eq!((made.name.as_str(), made.groups), ("Ali", set(&["x", "y"])));
    let made =
        user(&authenticator, &token(json!({"scope": null, "scp": ["y", "z"], "aud": ["b", RESOURCE]}))).await;
    let made = made.unwrap();
    assert_eq!((made.name.as_str(), made.scopes, made.groups), ("alice", set(&["y", "z"]), set(&[])));
    let made =
        user(&authenticator, &token(json!({"realm": {"a/b": "one"}, "exp": now() + 5}))).await.unwrap();
    assert_eq!(made.groups, set(&["one"]));
}

#[tokio::test]
async fn an_issuer_may_have_an_audience_of_its_own() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "audience = \"api://ipybox\"", SLOW);
    let token = |audience| key.token(json!({}), &claims(&provider, json!({"aud": audience})));
    user(&authenticator, &token("api://ipybox")).await.unwrap();
    assert_eq!(fault(&authenticator, &token(RESOURCE)).await, TokenFault::Audience);
}

#[tokio::test]
async fn a_token_may_have_to_have_scopes() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let lines = format!("required_scopes = [\"a\", \"b\"]\n[[login.issuer]]\nissuer = \"{}\"", provider.url);
    let authenticator = configured(&lines, SLOW);
    let token = |scope| key.token(json!({}), &claims(&provider, json!({"scope": scope})));
    user(&authenticator, &token("b c a")).await.unwrap();
    let error = user(&authenticator, &token("a ab")).await.unwrap_err();
    assert_eq!(error, TokenLoginError::Scope { missing: vec!["b".to_owned()] });
    assert_eq!(error.status(), 403);
}

#[tokio::test]
async fn clocks_may_differ_a_little() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let authenticator = with_provider(&provider, "", SLOW);
    let token = |changes| key.token(json!({}), &claims(&provider, changes));
    user(&authenticator, &token(json!({"exp": now() - 30, "nbf": now() - 60}))).await.unwrap();
    user(&authenticator, &token(json!({"nbf": now() + 50}))).await.unwrap();
    assert_eq!(fault(&authenticator, &token(json!({"exp": now() - 70}))).await, TokenFault::Expired);
    assert_eq!(fault(&authenticator, &token(json!({"nbf": now() + 600}))).await, TokenFault::Early);
}

#[tokio::test]
async fn the_name_at_a_hub_is_that_of_the_configured_claim_or_of_the_first_usual_one() {
    let key = TestKey::es256("a");
    let provider = TestProvider::new(&[&key]).await;
    let login = config(&format!("[[login.issuer]]\nissuer = \"{}\"", provider.url));
    let by_mail = LoginConfig { hub_user_claim: Some("email".to_owned()), ..login.clone() };
    let both = [login, by_mail].map(|login| authenticator_of(login, SLOW));
    for (changes, expected) in [
        (
            json!({"preferred_username": "ann", "username": "b", "email": "c"}),
            [("preferred_username", "ann"), ("email", "c")],
        ),
        (json!({"preferred_username": "", "username": "b"}), [("username", "b"), ("email", "")]),
        (json!({"username": 7, "email": ["c"]}), [("sub", "alice"), ("email", "")]),
    ] {
        let token = key.token(json!({}), &claims(&provider, changes));
        for (authenticator, (claim, value)) in both.iter().zip(expected) {
            let found = user(authenticator, &token).await.unwrap().hub_user;
            assert_eq!((found.claim.as_str(), found.value.as_str()), (claim, value));
        }
    }
}
