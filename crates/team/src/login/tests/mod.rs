//! Tokens of a provider on loopback, good ones and those of attackers.

mod answers;
mod attacks;
mod keys;
mod local;
mod lookups;
mod outages;
mod provider;
mod tokens;

use std::time::{Duration, SystemTime};

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use serde_json::{Value, json};

use super::issuer_keys::KeyTimes;
use super::*;
use keys::TestKey;
use provider::TestProvider;

const RESOURCE: &str = "https://ipybox.example/mcp";
/// Times that no test waits for.
const SLOW: KeyTimes = KeyTimes {
    fresh: Duration::from_secs(3600),
    calm: Duration::from_secs(3600),
    urgent: Duration::from_secs(3600),
    longest: Duration::from_secs(7200),
};
/// Keys that are always old, and may always be fetched.
const EAGER: KeyTimes =
    KeyTimes { fresh: Duration::ZERO, calm: Duration::ZERO, urgent: Duration::ZERO, longest: SLOW.longest };

#[derive(serde::Deserialize)]
struct TestConfig {
    login: LoginConfig,
}

/// The configuration with these lines in `[login]`.
fn config(lines: &str) -> LoginConfig {
    let text = format!("[login]\nresource = \"{RESOURCE}\"\n{lines}");
    toml::from_str::<TestConfig>(&text).unwrap_or_else(|error| panic!("{error}")).login
}

/// An authenticator with this provider, and these lines in its table.
fn with_provider(provider: &TestProvider, lines: &str, times: KeyTimes) -> UserAuthenticator {
    configured(&format!("[[login.issuer]]\nissuer = \"{}\"\n{lines}", provider.url), times)
}

fn configured(lines: &str, times: KeyTimes) -> UserAuthenticator {
    authenticator_of(config(lines), times)
}

fn authenticator_of(config: LoginConfig, times: KeyTimes) -> UserAuthenticator {
    // An error means that another test has done so.
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = configure_client(Client::builder()).no_proxy().build().unwrap();
    let secret = |name: &str| (name == "TEST_SECRET").then(|| "s3cret: with/all+kinds".to_owned());
    UserAuthenticator::with_times(config, client, secret, times).unwrap()
}

/// The user of a request with this token.
async fn user(authenticator: &UserAuthenticator, token: &str) -> Result<TeamUser, TokenLoginError> {
    let headers: HeaderMap =
        [(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())].into_iter().collect();
    let user = authenticator.authenticate(&Uri::from_static("/mcp"), &headers).await;
    if let Err(error) = &user {
        let shown = format!("{error:?} {error} {} {:?}", error.public_text(), authenticator.refusal(error));
        assert!(token.len() < 8 || !shown.contains(token), "{shown}");
    }
    user
}

/// The reason for which a token is refused.
async fn fault(authenticator: &UserAuthenticator, token: &str) -> TokenFault {
    match user(authenticator, token).await {
        Err(TokenLoginError::Token(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap()
}

/// Good claims of the provider, with changes: `null` takes one away.
fn claims(provider: &TestProvider, changes: Value) -> Value {
    let mut claims = json!({
        "iss": provider.url, "sub": "alice", "aud": RESOURCE, "exp": now() + 3000, "iat": now(), "scope": "ipybox",
    });
    changed(&mut claims, changes);
    claims
}

fn changed(object: &mut Value, changes: Value) {
    let (Some(object), Value::Object(changes)) = (object.as_object_mut(), changes) else {
        panic!("no objects")
    };
    for (name, value) in changes {
        if value.is_null() {
            object.remove(&name);
        } else {
            object.insert(name, value);
        }
    }
}
