//! Clients that can ask their users: the page is asked the same, and the first answer counts.

use serde_json::{Value, json};

use super::{Visitor, start};
use crate::support::{Ipybox, Place, eventually};

const PAGES: &str = r#"{"elicitation": {"form": {}, "url": {}}}"#;

async fn opening(place: &Place) -> (Ipybox, String, String) {
    start(place, &["--approval-timeout", "300"], serde_json::from_str(PAGES).unwrap()).await
}

#[tokio::test]
async fn a_client_that_opens_pages_sends_its_user_to_the_page() {
    let place = Place::new();
    let (mut ipybox, url, code) = opening(&place).await;
    let running = ipybox.start_cell("!echo on the page").await;
    let question = ipybox.question().await;
    let params = &question["params"];
    assert_eq!((&params["mode"], &params["url"]), (&json!("url"), &json!(url)), "{question}");
    assert!(params["message"].as_str().unwrap().ends_with(&format!("this code: {code}")), "{question}");
    // There is no secret in the URL.
    assert!(!url.contains(&code[..4]) && !url.contains('?') && !url.contains('#'), "{url}");
    ipybox.respond(&question, json!({"action": "accept"})).await;

    let visitor = Visitor::enter(&url, &code).await;
    let asked = visitor.question().await;
    // That the user has opened the page has decided nothing.
    assert!(asked["row"]["scope"].is_string(), "{asked}");
    assert!(visitor.answer(&asked, "once").await);
    assert!(running.answer().await.ok().contains("on the page"));
    eventually("the client is notified that the user is done", || {
        ipybox
            .sent("notifications/elicitation/complete")
            .iter()
            .any(|message| message["params"]["elicitationId"] == params["elicitationId"])
    })
    .await;

    // With the page before their eyes, users are not sent there again.
    let watching = visitor.post("events", json!({})).await;
    let running = ipybox.start_cell("!echo again").await;
    assert!(visitor.answer(&visitor.question().await, "no").await);
    running.answer().await.error();
    assert!(ipybox.sent("elicitation/create").is_empty());
    drop(watching);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_open_the_page_asks_by_a_form_that_names_it() {
    for action in ["decline", "cancel"] {
        let place = Place::new();
        let (mut ipybox, url, code) = opening(&place).await;
        let running = ipybox.start_cell("!echo never").await;
        let invitation = ipybox.question().await;
        assert_eq!(invitation["params"]["mode"], "url", "{invitation}");
        ipybox.respond(&invitation, json!({"action": action})).await;
        let form = ipybox.question().await;
        let message = form["params"]["message"].as_str().unwrap();
        assert!(
            message.contains("echo never") && message.contains(&url) && message.contains(&code),
            "{form}"
        );
        ipybox.respond(&form, json!({"action": action})).await;
        let denied = running.answer().await;
        assert!(denied.is_error && denied.text.contains("rejected"), "{}", denied.text);
        assert!(!denied.text.contains(&code), "{}", denied.text);
        // It is not sent there again, and the page decides as ever.
        let running = ipybox.start_cell("!echo by form").await;
        ipybox.decide("allow once").await;
        assert!(running.answer().await.ok().contains("by form"));
        let running = ipybox.start_cell("!echo by page").await;
        ipybox.question().await;
        let visitor = Visitor::enter(&url, &code).await;
        assert!(visitor.answer(&visitor.question().await, "once").await);
        assert!(running.answer().await.ok().contains("by page"));
        ipybox.stop().await;
    }
}

/// As `claude -p` and `codex exec` do, in which nobody is asked.
#[tokio::test]
async fn a_client_that_cancels_every_question_leaves_the_decision_to_an_open_page() {
    let place = Place::new();
    let flags = ["--approval-timeout", "300"];
    let (mut ipybox, url, code) = start(&place, &flags, json!({"elicitation": {}})).await;
    let visitor = Visitor::enter(&url, &code).await;
    let watching = visitor.post("events", json!({})).await;
    for (answer, is_allowed) in [("once", true), ("no", false)] {
        let running = ipybox.start_cell("!echo by page").await;
        let asked = visitor.question().await;
        let form = ipybox.question().await;
        assert!(!form["params"]["message"].as_str().unwrap().contains(&url), "{form}");
        ipybox.respond(&form, json!({"action": "cancel"})).await;
        ipybox.request("ping", json!({})).await.response().await.unwrap();
        assert!(visitor.answer(&asked, answer).await);
        assert_eq!(!running.answer().await.is_error, is_allowed);
    }
    drop(watching);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_form_and_the_page_ask_the_same_and_the_first_answer_counts() {
    let place = Place::new();
    let flags = ["--approval-timeout", "300"];
    let (mut ipybox, url, code) = start(&place, &flags, json!({"elicitation": {}})).await;
    let visitor = Visitor::enter(&url, &code).await;

    let running = ipybox.start_cell("!echo by page").await;
    let form = ipybox.question().await;
    assert!(form["params"]["message"].as_str().unwrap().contains("echo by page"), "{form}");
    assert!(visitor.answer(&visitor.question().await, "once").await);
    assert!(running.answer().await.ok().contains("by page"));
    eventually("the form is taken back", || {
        ipybox
            .sent("notifications/cancelled")
            .iter()
            .any(|message| message["params"]["requestId"] == form["id"])
    })
    .await;
    // Too late: nothing is decided by it.
    ipybox.respond(&form, json!({"action": "decline"})).await;

    let running = ipybox.start_cell("!echo by form").await;
    let asked = visitor.question().await;
    ipybox.decide("allow once").await;
    assert!(running.answer().await.ok().contains("by form"));
    assert!(!visitor.answer(&asked, "no").await);
    let decisions = visitor.scene().await["decisions"].clone();
    assert_eq!(decisions.as_array().unwrap().last().unwrap()["how"], "allowed once", "{decisions}");

    // A refusal in the form is one on the page too.
    let running = ipybox.start_cell("!echo never").await;
    visitor.question().await;
    ipybox.decide("deny").await;
    running.answer().await.error();
    assert_eq!(visitor.scene().await["questions"], json!([]));
    ipybox.stop().await;
}

#[tokio::test]
async fn progress_says_where_calls_are_decided() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let call: Value = json!({
        "name": "execute_ipython_cell",
        "arguments": {"code": "!echo slowly"},
        "_meta": {"progressToken": 1},
    });
    let running = ipybox.request("tools/call", call).await;
    let expected =
        format!("waiting for approval of a call, on the page {url}, which asks for the code {code}");
    eventually("progress says so", || ipybox.progress().contains(&expected)).await;
    let visitor = Visitor::enter(&url, &code).await;
    assert!(visitor.answer(&visitor.question().await, "once").await);
    assert!(running.answer().await.ok().contains("slowly"));
    ipybox.stop().await;
}
