//! The answers to requests without a user, by which clients find the login.

use http::header::{CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE};

use super::*;

const METADATA: &str = "https://ipybox.example/.well-known/oauth-protected-resource/mcp";

fn lab() -> UserAuthenticator {
    let issuers = "required_scopes = [\"ipybox\", \"a:b\"]\n[[login.issuer]]\nissuer = \"https://id.example/\"\n\
                   [[login.issuer]]\nissuer = \"https://hub.example\"\n\
                   jupyterhub = { api = \"https://hub.example/hub/api\", service = \"ipybox\" }";
    configured(issuers, SLOW)
}

#[test]
fn the_metadata_names_those_who_can_be_found() {
    let authenticator = lab();
    assert_eq!(authenticator.metadata_path(), "/.well-known/oauth-protected-resource/mcp");
    let expected = json!({
        "resource": RESOURCE,
        "resource_name": "ipybox",
        "bearer_methods_supported": ["header"],
        "authorization_servers": ["https://id.example/"],
        "scopes_supported": ["ipybox", "a:b"],
    });
    assert_eq!(*authenticator.resource_metadata(), expected);
}

#[test]
fn a_client_is_told_where_to_log_in() {
    let authenticator = lab();
    let challenge = |error: &TokenLoginError| {
        let response = authenticator.refusal(error);
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        let challenge =
            response.headers().get(WWW_AUTHENTICATE).map(|value| value.to_str().unwrap().to_owned());
        let body: Value = serde_json::from_str(response.body()).unwrap();
        (response.status().as_u16(), challenge, body["error"].as_str().unwrap().to_owned())
    };
    let login = format!("scope=\"ipybox a:b\", resource_metadata=\"{METADATA}\"");
    let plain = format!("Bearer {login}");
    assert_eq!(challenge(&TokenLoginError::Missing), (401, Some(plain), "unauthorized".to_owned()));
    let expired =
        format!("Bearer error=\"invalid_token\", error_description=\"the token has expired\", {login}");
    assert_eq!(challenge(&TokenFault::Expired.into()), (401, Some(expired), "invalid_token".to_owned()));
    let (status, lacking, code) = challenge(&TokenLoginError::Scope { missing: vec!["a:b".to_owned()] });
    assert_eq!((status, code.as_str()), (403, "insufficient_scope"));
    let said = "error=\"insufficient_scope\", error_description=\"the token lacks the scope 'a:b'\"";
    assert_eq!(lacking.unwrap(), format!("Bearer {said}, {login}"));
    assert_eq!(challenge(&RequestFault::Query.into()).0, 400);
    let outage = TokenLoginError::from(ProviderFault::new("https://id.example/keys", "answers 500"));
    assert_eq!(challenge(&outage), (503, None, "temporarily_unavailable".to_owned()));
    let response = authenticator.refusal(&outage);
    assert_eq!(response.headers()[RETRY_AFTER], "5");
    assert!(!response.body().contains("id.example"));
}

#[test]
fn every_fault_can_be_said_in_a_header() {
    let authenticator = lab();
    for fault in [
        TokenFault::Long,
        TokenFault::Malformed,
        TokenFault::Issuer,
        TokenFault::Algorithm,
        TokenFault::Critical,
        TokenFault::Signature,
        TokenFault::Kind,
        TokenFault::Expired,
        TokenFault::Early,
        TokenFault::Audience,
        TokenFault::Subject,
        TokenFault::Claim,
        TokenFault::Groups,
        TokenFault::Bound,
        TokenFault::Unknown,
    ] {
        let challenge = authenticator.challenge(&fault.into()).unwrap();
        assert_eq!(challenge.to_str().unwrap().matches('"').count(), 8, "{challenge:?}");
    }
}

#[test]
fn the_place_of_the_metadata_follows_the_resource() {
    for (resource, path) in [
        ("https://a.example", ""),
        ("https://a.example/", ""),
        ("http://127.0.0.1:8000/team/mcp/", "/team/mcp"),
    ] {
        let text =
            format!("[login]\nresource = \"{resource}\"\n[[login.issuer]]\nissuer = \"https://id.example\"");
        let config = toml::from_str::<TestConfig>(&text).unwrap().login;
        let signs = LoginSigns::new(&config);
        assert_eq!(signs.metadata_path(), format!("/.well-known/oauth-protected-resource{path}"));
        assert_eq!(signs.metadata()["resource"], resource);
    }
}
