//! A JupyterHub.

use std::io::Write as _;

use super::*;

#[tokio::test]
async fn its_users_log_in_with_tokens_for_the_service() {
    let mut hub = RealProvider::python("jupyterhub_provider.py", &[]);
    let api = hub.text("api").to_owned();
    let issuer = api.trim_end_matches("/api").to_owned();
    let table = format!("jupyterhub = {{ api = \"{api}\", service = \"ipybox\" }}");
    let authenticator = || super::authenticator("https://ipybox.example/mcp", &issuer, &table);
    let tokens = hub.ready["tokens"].clone();
    let token = |name: &str| tokens[name].as_str().unwrap().to_owned();
    let first = authenticator();
    for name in ["good", "all"] {
        let alice = user(&first, &token(name)).await.unwrap();
        assert_eq!(
            (alice.identity.subject.as_str(), alice.identity.issuer.as_str()),
            ("alice", issuer.as_str())
        );
    }
    assert_eq!(user(&first, &token("other")).await, refused(TokenFault::Audience));
    assert_eq!(user(&first, &token("service")).await, refused(TokenFault::Subject));
    assert_eq!(user(&first, "0123456789abcdef0123456789abcdef").await, refused(TokenFault::Unknown));
    assert!(first.check().await.iter().all(|check| check.result.is_ok()));
    hub.input.write_all(b"revoke\n").unwrap();
    hub.line();
    assert_eq!(user(&authenticator(), &token("good")).await, refused(TokenFault::Unknown));
}
