//! What hostile servers do to a login: MCP's security best practices, RFC 9700.

use super::*;
use crate::support::Place;

/// The login fails with these words, and nothing is asked of the given place.
async fn refused(flags: &[&str], expected: &str) {
    let behind = Behind::sdk(flags);
    fails(&Place::new(), &behind.url, expected).await;
}

#[tokio::test]
async fn an_answer_of_another_authorization_server_is_not_used() {
    refused(&["--fault", "mixup"], "the answer is not usable").await;
    refused(&["--fault", "iss-missing"], "the answer is not usable").await;
    refused(&["--fault", "issuer-mismatch"], "issuer").await;
    log_in(&Place::new(), &Behind::sdk(&["--fault", "no-iss"]).url).await;
}

#[tokio::test]
async fn metadata_do_not_lead_to_private_places() {
    refused(&["--fault", "metadata-private"], "the authorization server cannot be found").await;
    refused(&["--fault", "resource-mismatch"], "the authorization server cannot be found").await;
    refused(&["--fault", "redirect-metadata"], "the authorization server cannot be found").await;
    refused(&["--fault", "huge-metadata"], "the authorization server cannot be found").await;
    refused(&["--fault", "huge-metadata", "prm"], "the authorization server cannot be found").await;
}

#[tokio::test]
async fn users_are_sent_to_web_pages_alone() {
    refused(&["--fault", "javascript-url"], "is not the address of a web page").await;
    refused(&["--fault", "file-url"], "is not the address of a web page").await;
    refused(&["--fault", "plain-http"], "is not encrypted").await;
    refused(&["--fault", "user-info"], "hides where it leads behind a user name").await;
}

#[tokio::test]
async fn the_password_in_a_servers_url_is_neither_sent_on_nor_shown() {
    let behind = Behind::sdk(&[]);
    let place = Place::new();
    let with_password = behind.url.replace("//", "//me:its-password@");
    log_in(&place, &with_password).await;
    let mut ipybox = session_with(&place, json!({}), &["--log-level", "DEBUG"]).await;
    ipybox.register("notes", json!({"url": with_password})).await.ok();
    let listed = text(&run(&place, &["servers"]).await);
    assert!(listed.contains("//…@127.0.0.1") && listed.contains("logged in"), "{listed}");
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let log = behind.log().await;
    let flow = log["requests"].as_array().unwrap().iter().filter(|request| request["path"] != "/mcp");
    let all = format!("{listed} {:?} {}", flow.collect::<Vec<_>>(), ipybox.log());
    assert!(!all.contains("its-password"), "{all}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_token_that_no_server_can_be_sent_is_no_login() {
    refused(&["--fault", "token-type", "mac"], "its token is of the type `mac`").await;
    refused(&["--fault", "access-token", ""], "its access token is empty").await;
    refused(&["--fault", "access-token", "AB\r\nX-Evil: 1"], "characters that no header can have").await;
    refused(&["--fault", "access-token", "töken"], "characters that no header can have").await;
}

#[tokio::test]
async fn a_forged_answer_does_not_end_the_login() {
    let behind = Behind::sdk(&["--fault", "state-mismatch"]);
    log_in(&Place::new(), &behind.url).await;
    let log = behind.log().await;
    assert!(log["forged_callbacks"].to_string().contains("400"), "{}", log["forged_callbacks"]);
}

#[tokio::test]
async fn proof_of_the_code_is_not_left_out() {
    refused(&["--fault", "no-s256"], "PKCE").await;
}

#[tokio::test]
async fn what_a_server_says_is_shown_without_control_characters() {
    for part in ["authorize", "code"] {
        let behind = Behind::sdk(&["--fault", "html-error", part]);
        let output = fails(&Place::new(), &behind.url, "denied").await;
        assert!(output.len() < 2000, "{output}");
    }
}
