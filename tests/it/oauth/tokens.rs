//! Tokens that expire, are revoked, or do not suffice, while code runs.

use serde_json::{Value, json};

use super::*;
use crate::support::{Place, free_port};

const ECHO: &str = "from mcptools.notes import echo\n";
/// The seconds that a token lives. It is renewed until the server refuses that.
const LIFETIME: &str = "6";

async fn registered(place: &Place, behind: &Behind) -> Ipybox {
    log_in(place, &behind.url).await;
    let mut ipybox = session(place).await;
    ipybox.register("notes", json!({"url": behind.url})).await.ok();
    ipybox
}

#[tokio::test]
async fn a_token_that_expires_in_mid_cell_is_renewed() {
    for flags in [&["--rotate"][..], &[]] {
        let behind = Behind::sdk(&[flags, &["--token-lifetime", "2"]].concat());
        let place = Place::new();
        let mut ipybox = registered(&place, &behind).await;
        let code = "import time\nfor n in range(3):\n    print(echo.run(text=str(n)))\n    time.sleep(2.5)";
        let printed = ipybox.cell(&format!("{ECHO}{code}")).await.ok();
        assert_eq!(printed.lines().count(), 3, "{printed}");
        let log = behind.log().await;
        assert!(log["statistics"]["refreshes"].as_u64().unwrap() >= 2, "{}", log["statistics"]);
        assert_eq!(log["statistics"]["reused_refresh_tokens"], Value::Null, "{}", log["statistics"]);
        has_no_token(&log, &(printed + &ipybox.log() + &everything_below(&place.workspace())));
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn a_revoked_token_is_renewed_and_the_call_goes_on() {
    let behind = Behind::sdk(&["--fault", "401-after", "2"]);
    let place = Place::new();
    let mut ipybox = registered(&place, &behind).await;
    let printed = ipybox.cell(&format!("{ECHO}for n in range(4): print(echo.run(text=str(n)))")).await.ok();
    assert_eq!(printed.lines().count(), 4, "{printed}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_refused_refresh_fails_the_call_and_names_the_login_command() {
    for error in [
        "invalid_grant",
        "invalid_client",
        "unauthorized_client",
        "invalid_scope",
        "unsupported_grant_type",
        "invalid_request",
    ] {
        let behind = Behind::sdk(&["--token-lifetime", LIFETIME]);
        let place = Place::new();
        let mut ipybox = registered(&place, &behind).await;
        behind.arm(&[&format!("refresh:{error}")]).await;
        let code = format!("{ECHO}import time\ntime.sleep(6.5)\necho.run(text='x')");
        let failed = ipybox.cell(&code).await.error();
        assert!(failed.contains("`ipybox login notes "), "{error}: {failed}");
        assert!(failed.contains(error), "{error}: {failed}");
        has_no_token(&behind.log().await, &(failed + &ipybox.log()));
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn an_authorization_server_that_repeats_a_request_shows_no_secret() {
    let port = free_port();
    let redirect = format!("http://localhost:{port}/callback");
    let client = ["--client-id", "me", "--client-secret", "s3cret-of-mine", "--redirect-uri", &redirect];
    let oauth = json!({"client_id": "me", "client_secret": "s3cret-of-mine", "redirect_uri": redirect});
    for at in ["code", "refresh"] {
        let fault = ["repeated-request", at];
        let behind = Behind::sdk(&[client.as_slice(), &["--token-lifetime", LIFETIME]].concat());
        let place = Place::new();
        let audit = place.temporary().join("audit.jsonl");
        let flags = ["--audit-log", audit.to_str().unwrap(), "--audit-contents", "--log-level", "DEBUG"];
        let mut ipybox = session_with(&place, json!({}), &flags).await;
        let parameters = json!({"url": behind.url, "oauth": oauth});
        ipybox.register("notes", parameters.clone()).await.error();
        let shown = if at == "code" {
            behind.arm(&fault).await;
            fails(&place, "notes", "gave no token").await
        } else {
            log_in(&place, "notes").await;
            ipybox.register("notes", parameters).await.ok();
            behind.arm(&fault).await;
            let code = format!("{ECHO}import time\ntime.sleep(6.5)\necho.run(text='x')");
            ipybox.cell(&code).await.error()
        };
        assert!(shown.contains("temporarily_unavailable"), "{at}: {shown}");
        let all = shown + &ipybox.log() + &std::fs::read_to_string(&audit).unwrap();
        has_no_token(&behind.log().await, &all);
        // `me:s3cret-of-mine` as the value of `Authorization: Basic`.
        assert!(!all.contains("bWU6czNjcmV0LW9mLW1pbmU"), "{at}: {all}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn a_refused_code_is_reported_with_the_servers_words() {
    for error in [
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
    ] {
        let behind = Behind::sdk(&["--fault", &format!("code:{error}")]);
        let output = fails(&Place::new(), &behind.url, "the authorization server gave no token").await;
        assert!(output.contains(error), "{output}");
    }
    let behind = Behind::sdk(&["--fault", "code:unavailable"]);
    fails(&Place::new(), &behind.url, "gave no token: HTTP 503 Service Unavailable").await;
    let behind = Behind::sdk(&["--fault", "authorize:access_denied"]);
    fails(&Place::new(), &behind.url, "the authorization server refused: access_denied").await;
}

#[tokio::test]
async fn sessions_that_share_a_login_do_not_use_a_refresh_token_twice() {
    let behind = Behind::sdk(&["--rotate", "--token-lifetime", "2", "--fault", "concurrent", "0.3"]);
    let place = Place::new();
    let mut one = registered(&place, &behind).await;
    let mut two = session(&place).await;
    let code = format!(
        "{ECHO}import time\nfor n in range(5):\n    echo.run(text=str(n))\n    time.sleep(1.1)\nprint('done')"
    );
    let (first, second) = (one.start_cell(&code).await, two.start_cell(&code).await);
    assert_eq!(first.answer().await.ok(), "done");
    assert_eq!(second.answer().await.ok(), "done");
    let statistics = behind.log().await["statistics"].clone();
    assert_eq!(statistics["reused_refresh_tokens"], Value::Null, "{statistics}");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn more_scopes_are_asked_for_by_the_next_login() {
    let behind = Behind::sdk(&[]);
    let place = Place::new();
    let mut ipybox = registered(&place, &behind).await;
    let code = "from mcptools.notes import admin\nadmin.run()";
    let refused = ipybox.cell(code).await.error();
    assert!(refused.contains("the token lacks the scope `admin`"), "{refused}");
    assert!(refused.contains("`ipybox login notes "), "{refused}");
    log_in(&place, "notes").await;
    ipybox.cell(code).await.ok();
    // The earlier scopes are kept.
    let kept = ipybox.cell(&format!("{ECHO}echo.run(text='still')")).await.ok();
    assert!(kept.contains("still"), "{kept}");
    ipybox.stop().await;
}
