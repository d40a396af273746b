//! Answers that are too much, malformed or without end, over each of the transports.

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::*;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/hostile.py");

async fn http() -> (Child, String) {
    over_http_by(&[SERVER, "http"]).await
}

/// A server over HTTP by a script that prints its port, and its URL.
pub(super) async fn over_http_by(script: &[&str]) -> (Child, String) {
    let mut command = Command::new("python3");
    command.args(script).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut server = command.kill_on_drop(true).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).await.unwrap();
    (server, format!("http://127.0.0.1:{}", port.trim()))
}

async fn stdio(list: &str) -> Connection {
    let parameters = parameters(json!({"command": "python3", "args": [SERVER, "stdio", list]}));
    connector(Path::new("/")).connect("hostile", &parameters).await.unwrap()
}

async fn over_http(url: &str, path: &str) -> Connection {
    let kind = if path == "sse" { "sse" } else { "http" };
    let parameters = parameters(json!({"url": format!("{url}/{path}"), "type": kind}));
    connector(Path::new("/")).connect("hostile", &parameters).await.unwrap()
}

async fn check_refused(connection: &Connection, tool: &str, value: Value, expected: &str) {
    match tokio::time::timeout(SOON, connection.call(tool, arguments(value))).await {
        Ok(Err(CallError::Unusable { reason })) => assert!(reason.contains(expected), "{tool}: {reason}"),
        Ok(other) => panic!("{tool}: {:?}", other.map(|received| received.weight)),
        Err(_) => panic!("{tool} hangs"),
    }
}

/// Bad answers fail the calls that they are answers to, and good ones arrive before and after.
async fn check(connection: Connection) {
    let _turn = LARGE.lock().await;
    check_refused(&connection, "deep", json!({"depth": 100_000}), "nested more than 120 levels deep").await;
    check_refused(&connection, "deep", json!({"depth": 200}), "nested more than 120 levels deep").await;
    check_refused(&connection, "malformed", json!({}), "the server's answer").await;
    check_refused(&connection, "empty", json!({"bytes": 10 << 20}), "so many values").await;
    check_refused(&connection, "text", json!({"bytes": 41 << 20}), "longer than 40 MiB").await;
    assert_eq!(structured(&connection, "deep", json!({"depth": 100})).await["a"].to_string().len(), 200);
    for (bytes, piece, length) in [(1000, "x", 1000), (2 << 20, r"\n", 1 << 20), (30 << 20, "x", 30 << 20)] {
        let text = text(&connection, "text", json!({"bytes": bytes, "piece": piece})).await;
        assert_eq!(text.len(), length);
    }
    assert_eq!(text(&connection, "text", json!({"bytes": 6, "piece": r"\ud83d"})).await, "\u{fffd}");
    let image = connection.call("image", arguments(json!({"bytes": 8 << 20}))).await.unwrap().output;
    assert_eq!(image.content[0].data().unwrap().len(), 6 << 20);
    assert!(connection.is_alive());
    connection.close().await;
}

#[tokio::test]
async fn a_bad_answer_over_stdio_fails_its_call_alone() {
    check(stdio("").await).await;
}

#[tokio::test]
async fn a_bad_answer_over_http_fails_its_call_alone() {
    let (_server, url) = http().await;
    check(over_http(&url, "json").await).await;
}

#[tokio::test]
async fn a_bad_answer_by_an_event_fails_its_call_alone() {
    let (_server, url) = http().await;
    check(over_http(&url, "events").await).await;
}

#[tokio::test]
async fn a_bad_answer_over_the_old_sse_fails_its_call_alone() {
    let (_server, url) = http().await;
    check(over_http(&url, "sse").await).await;
}

#[tokio::test]
async fn many_requests_of_a_server_at_once_are_answered() {
    let (_server, url) = http().await;
    for path in ["events", "sse"] {
        let connection = over_http(&url, path).await;
        let call = connection.call("burst", arguments(json!({"count": 1000})));
        let answer = tokio::time::timeout(SOON, call).await.expect("the call hangs").unwrap();
        assert_eq!(answer.output.to_string(), "done", "{path}");
        connection.close().await;
    }
}

#[tokio::test]
async fn the_pages_of_a_list_have_a_sum() {
    let _turn = LARGE.lock().await;
    let listing_error =
        |list: &'static str| async move { stdio(list).await.list_tools().await.unwrap_err().to_string() };
    assert!(listing_error("pages").await.contains("the server's answer is refused: it "));
    assert!(listing_error("deep").await.contains("nested more than 120 levels deep"));
    assert_eq!(
        listing_error("thick").await,
        "the list of tools is refused: its pages would take more than 32 MiB of memory"
    );
}
