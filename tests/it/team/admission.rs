//! Requests and configurations are refused for what is wrong with them, and questions reach their user.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::support::{TeamPlace, answer_in, text_of};
use crate::support::environment;

#[tokio::test]
async fn requests_without_a_user_learn_where_to_log_in() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    let client = place.client("ipybox_wrong");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let response = client.post(&list).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let challenge = response.headers()["www-authenticate"].to_str().unwrap().to_owned();
    let metadata = challenge.split('"').find(|part| part.starts_with("http")).unwrap().to_owned();
    let http = ipybox::http_client(reqwest::ClientBuilder::no_proxy).unwrap();
    let metadata: Value =
        serde_json::from_str(&http.get(metadata).send().await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!(metadata["resource"], client.url);
    // A token in the address is in logs.
    let url = format!("{}?access_token={token}", client.url);
    let response =
        http.post(url).header("content-type", "application/json").body(list.to_string()).send().await;
    assert!(response.unwrap().status().is_client_error());
    for path in ["healthz", "readyz"] {
        let url = client.url.replace("mcp", path);
        assert_eq!(http.get(url).send().await.unwrap().status(), StatusCode::OK);
    }
    server.stop().await;
}

#[tokio::test]
async fn requests_from_web_pages_and_to_other_names_are_refused() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    let client = place.client(&token);
    for (name, value, status) in [
        ("origin", "https://evil.example", StatusCode::FORBIDDEN),
        ("origin", "null", StatusCode::FORBIDDEN),
        ("host", "evil.example", StatusCode::MISDIRECTED_REQUEST),
    ] {
        let response = client.request(Method::POST).header(name, value).body("{}").send().await.unwrap();
        assert_eq!(response.status(), status, "{name}: {value}");
    }
    server.stop().await;
}

#[tokio::test]
async fn half_requests_large_ones_and_nonsense_end() {
    let place = TeamPlace::new("");
    std::fs::write(
        place.path("team.toml"),
        std::fs::read_to_string(place.path("team.toml")).unwrap().replacen(
            "[login]",
            "max_request_bytes = 100000\n[login]",
            1,
        ),
    )
    .unwrap();
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    let large =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"x": "x".repeat(200_000)}});
    assert_eq!(client.post(&large).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
    for body in ["", "{", "[]", "null", "{\"jsonrpc\": \"2.0\"}", "\u{0}"] {
        let request = client.request(Method::POST).header("content-type", "application/json").body(body);
        let status = request.send().await.unwrap().status();
        assert!(status.is_client_error(), "{body:?}: {status}");
    }
    // Connections that do not go on take nothing from others.
    let mut half = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
        stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthor").unwrap();
        half.push(stream);
    }
    assert_eq!(client.cell("1 + 1").await, "2");
    let mut stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
    stream.write_all(b"NONSENSE\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_question_reaches_its_user() {
    let place = TeamPlace::new("[sessions]\napproval = \"ask\"\n");
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.client(&token);
    client.begin(json!({"elicitation": {}})).await;
    let answering = client.again();
    let asked = client.send(
        "tools/call",
        json!({"name": "install_package", "arguments": {"package_name": "nothing-of-this-name"}}),
    );
    let mut response = asked.await;
    let mut text = String::new();
    let mut has_answered = false;
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        if !has_answered && let Some(id) = question_in(&text) {
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"action": "decline"}});
            assert_eq!(answering.post(&answer).await.status(), StatusCode::ACCEPTED);
            has_answered = true;
        }
    }
    assert!(has_answered, "no question on the stream of its call: {text}");
    let said = text_of(&answer_in(&text));
    assert!(said.contains("rejected"), "{said}");
    server.stop().await;
}

/// The id of the question in a stream of events.
fn question_in(text: &str) -> Option<Value> {
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?.trim()).ok());
    events.filter(|event| event["method"] == "elicitation/create").map(|event| event["id"].clone()).next()
}

#[test]
fn configurations_with_mistakes_are_refused_by_name() {
    let place = TeamPlace::new("");
    let good = std::fs::read_to_string(place.path("team.toml")).unwrap();
    for (from, to, words) in [
        ("[server]", "[server]\nlisten_on = 1", "unknown field `listen_on`"),
        ("127.0.0.1:", "0.0.0.0:", "`server.listen` is not a loopback address"),
        ("/mcp\"", "/other\"", "`login.resource` does not end with `/mcp`"),
        ("[sessions]", "[sessions]\napproval = \"maybe\"", "unknown variant `maybe`"),
        ("[sessions]", "[sessions]\nlimit_memory = \"much\"", "`sessions.limit_memory` is no size"),
        ("[sessions]", "[sessions]\nenvironment = [\"A=1\"]", "is no name of a variable"),
        ("tokens_file = \"tokens.json\"", "", "nobody who could log in"),
    ] {
        // The address to listen on comes first.
        std::fs::write(place.path("team.toml"), good.replacen(from, to, 1)).unwrap();
        let output = place.run(&["serve"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{to}: {said}");
    }
    std::fs::write(place.path("team.toml"), good).unwrap();
}

#[test]
fn without_a_sandbox_nobody_is_served() {
    let place = TeamPlace::new("");
    place.token("ann");
    let mut command = place.command(&["serve"]);
    // Neither bubblewrap nor anything else is there.
    let empty = place.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = command.env("PATH", empty).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("without which no team is served"), "{said}");
}

#[test]
fn doctor_tries_what_a_server_needs() {
    let place = TeamPlace::new("");
    place.token("ann");
    let examine = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.arg("doctor").arg("--team").arg(place.path("team.toml"));
        let output = command.env_clear().envs(environment()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (is_well, said) = examine();
    assert!(said.contains("ok      sandbox\n") && said.contains("ok      login\n"), "{said}");
    assert!(is_well, "{said}");
    place.change("[login]", "tls = {certificate = \"missing.pem\", key = \"key.pem\"}\n[login]");
    let (is_well, said) = examine();
    assert!(!is_well && said.contains("FAILED  server.tls: ") && said.contains("missing.pem"), "{said}");
}
