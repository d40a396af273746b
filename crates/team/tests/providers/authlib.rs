//! A provider made with Authlib.

use super::*;

const RESOURCE: &str = "https://ipybox.example/mcp";
const AS_ALICE: [(&str, &str); 4] =
    [("grant_type", "password"), ("username", "alice"), ("password", "pw"), ("scope", "mcp")];
const INTROSPECTION: &str =
    "introspection = { client_id = \"ipybox\", client_secret_env = \"IPYBOX_SECRET\" }";

#[tokio::test]
async fn its_web_tokens_make_users() {
    let provider = RealProvider::python("authlib_provider.py", &["--audience", RESOURCE]);
    let issuer = provider.text("issuer");
    let authenticator = authenticator(RESOURCE, issuer, "");
    let alice = user(&authenticator, &token(&format!("{issuer}/token"), &AS_ALICE).await).await.unwrap();
    assert_eq!((alice.identity.subject.as_str(), alice.identity.issuer.as_str()), ("alice", issuer));
    assert!(alice.groups.contains("finance") && alice.scopes.contains("mcp"));
    let own =
        token(&format!("{issuer}/token"), &[("grant_type", "client_credentials"), ("scope", "mcp")]).await;
    assert_eq!(user(&authenticator, &own).await.unwrap().identity.subject, "ipybox");
    assert!(authenticator.check().await[0].result.is_ok());
}

#[tokio::test]
async fn its_web_tokens_are_by_default_for_nobody_but_the_client() {
    let provider = RealProvider::python("authlib_provider.py", &[]);
    let issuer = provider.text("issuer");
    let token = token(&format!("{issuer}/token"), &AS_ALICE).await;
    assert_eq!(user(&authenticator(RESOURCE, issuer, ""), &token).await, refused(TokenFault::Audience));
    user(&authenticator(RESOURCE, issuer, "audience = \"ipybox\""), &token).await.unwrap();
}

#[tokio::test]
async fn its_opaque_tokens_are_looked_up() {
    let provider =
        RealProvider::python("authlib_provider.py", &["--tokens", "opaque", "--audience", RESOURCE]);
    let issuer = provider.text("issuer");
    let token = token(&format!("{issuer}/token"), &AS_ALICE).await;
    for method in ["client_secret_basic", "client_secret_post"] {
        let table = INTROSPECTION.replace(" }", &format!(", authentication = \"{method}\" }}"));
        let authenticator = authenticator(RESOURCE, issuer, &table);
        let alice = user(&authenticator, &token).await;
        let alice = alice.unwrap_or_else(|error| panic!("{method}: {error}"));
        assert_eq!(alice.identity.subject, "alice");
        assert_eq!(user(&authenticator, "0123").await, refused(TokenFault::Unknown));
        assert!(authenticator.check().await.iter().all(|check| check.result.is_ok()));
    }
    post(&format!("{issuer}/forget"), &[]).await;
    assert_eq!(
        user(&authenticator(RESOURCE, issuer, INTROSPECTION), &token).await,
        refused(TokenFault::Unknown)
    );
}
