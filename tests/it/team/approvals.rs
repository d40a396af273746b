//! Decisions on the page of the server: of users about their own calls, and of approvers whom rules name.

use std::time::Instant;

use base64::Engine as _;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::support::{TeamClient, TeamPlace, user_directory};
use crate::support::{PATIENCE, repository};

/// A transfer needs finance, a small one nobody, and what is not called so its own user.
const POLICY: &str = "default = \"allow\"
[[rule]]
server = \"bank\"
arguments = [{ pointer = \"/amount\", less_than = 10 }]
effect = \"ask\"
[[rule]]
name = \"payments\"
server = \"bank\"
effect = \"ask\"
approver = \"group:finance\"
";

fn approving(more: &str) -> TeamPlace {
    let place = TeamPlace::new(&format!(
        "[sessions]\napproval_policy = \"policy.toml\"\n[approvals]\nwait = \"10m\"\n{more}"
    ));
    std::fs::write(place.path("policy.toml"), POLICY).unwrap();
    std::fs::copy(repository().join("tests/it/team/bank.py"), place.path("bank.py")).unwrap();
    place
}

pub(super) fn token_in(place: &TeamPlace, name: &str, group: &str) -> String {
    place.json(&["user", "add", name, "--group", group])["token"].as_str().unwrap().to_owned()
}

/// A client of a user whose session has a bank.
pub(super) async fn with_bank(place: &TeamPlace, token: &str) -> TeamClient {
    let mut client = place.begun(token).await;
    let server = json!({"command": "/usr/bin/python3", "args": [place.path("bank.py")]});
    let arguments = json!({"server_name": "bank", "server_params": server});
    let call = json!({"name": "register_mcp_server", "arguments": arguments});
    let answer = client.call("tools/call", call).await;
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    client
}

fn pay(amount: u32) -> String {
    format!(
        "from mcptools.bank import transfer\ntry: said = transfer.run(transfer.Params(amount={amount}))\n\
         except Exception as error: said = str(error)\nprint(said)"
    )
}

/// A cell that goes on beside the test.
fn paying(mut client: TeamClient, amount: u32) -> JoinHandle<(TeamClient, String)> {
    tokio::spawn(async move {
        let said = client.cell(&pay(amount)).await;
        (client, said)
    })
}

/// The payments of a user's server.
pub(super) fn paid(place: &TeamPlace, name: &str) -> String {
    let directory = user_directory(place, &place.user(name)["key"]);
    std::fs::read_to_string(directory.join("home/paid")).unwrap_or_default()
}

/// A browser that shows the page.
pub(super) struct PageBrowser {
    http: reqwest::Client,
    origin: String,
    pub(super) cookie: String,
}

impl PageBrowser {
    pub(super) async fn new(place: &TeamPlace, token: &str) -> Self {
        let mut browser = Self::stranger(place);
        let response = browser.ask("enter", &json!({"code": token})).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
        browser.cookie = cookie.split(';').next().unwrap().to_owned();
        browser
    }

    /// One that has not logged in.
    pub(super) fn stranger(place: &TeamPlace) -> Self {
        Self {
            http: ipybox::http_client(|client| client.no_proxy().pool_max_idle_per_host(0)).unwrap(),
            origin: format!("http://127.0.0.1:{}", place.port),
            cookie: String::new(),
        }
    }

    /// A request as the page sends it.
    pub(super) fn ask(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = self.http.request(Method::POST, format!("{}/approvals/{path}", self.origin));
        let request = request.timeout(PATIENCE).header("origin", &self.origin);
        let request = request.header("content-type", "application/json").header("cookie", &self.cookie);
        request.body(body.to_string())
    }

    async fn events(&self) -> PageEvents {
        let response = self.ask("events", &json!({})).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        PageEvents { response, text: String::new() }
    }

    /// All that the page shows, once the server has said whose it is.
    pub(super) async fn all(&self) -> Value {
        let mut events = self.events().await;
        // A new page is shown to be empty before the board fills it, which has answered once it says who is there.
        loop {
            let event = events.next().await;
            let about = &event["about"]["client"];
            if event["event"] == "all" && about.is_string() {
                return event;
            }
            events = self.events().await;
        }
    }

    /// The rows of the questions that wait for this user.
    pub(super) async fn rows(&self) -> Vec<Value> {
        let all = self.all().await;
        all["questions"].as_array().unwrap().iter().map(|open| open["row"].clone()).collect()
    }

    /// The row of the only question, once it waits.
    pub(super) async fn row(&self) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut rows = self.rows().await;
            if let Some(row) = rows.pop() {
                assert!(rows.is_empty(), "{rows:?}");
                return row;
            }
            assert!(Instant::now() < deadline, "no question waits");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// The rows of two questions, once both wait.
    pub(super) async fn two_rows(&self) -> [Value; 2] {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(rows) = self.rows().await.try_into() {
                return rows;
            }
            assert!(Instant::now() < deadline, "no two questions wait");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Answers; whether the answer was passed on.
    async fn answer(&self, row: &Value, answer: &str) -> bool {
        let body = json!({"questions": [row["id"]], "answer": answer});
        let response = self.ask("answer", &body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let said: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        said["passed_on"] == json!([row["id"]])
    }

    /// Answers, and waits until the decision is known.
    pub(super) async fn decide(&self, row: &Value, answer: &str) -> String {
        let mut events = self.events().await;
        assert!(self.answer(row, answer).await);
        loop {
            let event = events.next().await;
            if event["event"] == "decided" && event["id"] == row["id"] {
                return event["decision"]["how"].as_str().unwrap().to_owned();
            }
        }
    }
}

/// The events that the page hears.
struct PageEvents {
    response: Response,
    text: String,
}

impl PageEvents {
    async fn next(&mut self) -> Value {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                self.text = rest.to_owned();
                return event;
            }
            let chunk = self.response.chunk().await.unwrap().expect("the events go on");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

#[tokio::test]
async fn a_rule_has_another_person_decide_and_nobody_else_can() {
    let place = approving("");
    // In the group too, which does not help with her own calls.
    let ann = token_in(&place, "ann", "finance");
    let (bob, fay) = (token_in(&place, "bob", "sales"), token_in(&place, "fay", "finance"));
    let server = place.serve();
    let client = with_bank(&place, &ann).await;
    let cell = paying(client, 50);
    let page = PageBrowser::new(&place, &fay).await;
    let row = page.row().await;
    assert_eq!((&row["server"], &row["tool"]), (&json!("bank"), &json!("transfer")));
    assert_eq!(row["arguments"][0]["parts"], json!(["50"]));
    assert_eq!(row["asker"], "ann (ann at local) asks, and rule 2 (\"payments\") names group:finance");
    for token in [&ann, &bob] {
        let other = PageBrowser::new(&place, token).await;
        assert!(other.rows().await.is_empty());
        assert!(!other.answer(&row, "once").await);
    }
    // Answers that hold for more than this call are nobody's.
    assert!(!page.answer(&row, "always").await && !page.answer(&row, "session").await);
    refuse_strangers(&place, &page, &row).await;
    assert_eq!(paid(&place, "ann"), "");
    assert_eq!(page.decide(&row, "once").await, "allowed by fay (fay at local)");
    let (client, said) = cell.await.unwrap();
    assert_eq!((said.as_str(), paid(&place, "ann").as_str()), ("paid 50", "50\n"));
    // The same answer again, and that about the next call.
    assert!(!page.answer(&row, "once").await);
    let cell = paying(client, 60);
    let row = page.row().await;
    assert_eq!(page.decide(&row, "no").await, "denied by fay (fay at local)");
    let (_, said) = cell.await.unwrap();
    assert!(said.contains("the call of `bank.transfer` was rejected by fay (fay at local)"), "{said}");
    assert_eq!(paid(&place, "ann"), "50\n");
    check_records(&place);
    let end = page.ask("leave", &json!({})).send().await.unwrap();
    assert_eq!(end.status(), StatusCode::OK);
    assert_eq!(page.ask("answer", &json!({})).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let page = PageBrowser::new(&place, &fay).await;
    place.run(&["user", "remove", "fay"]);
    assert_eq!(page.ask("answer", &json!({})).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    server.stop().await;
}

/// Everything that is not the page of somebody who has logged in.
async fn refuse_strangers(place: &TeamPlace, page: &PageBrowser, row: &Value) {
    let body = json!({"questions": [row["id"]], "answer": "once"});
    let status = async |request: RequestBuilder| request.send().await.unwrap().status();
    let stranger = PageBrowser::stranger(place);
    assert_eq!(status(stranger.ask("answer", &body)).await, StatusCode::UNAUTHORIZED);
    let wrong = stranger.ask("enter", &json!({"code": "ipybox_no-token"}));
    assert_eq!(status(wrong).await, StatusCode::FORBIDDEN);
    // The cookie of another server, and the token of a client instead of a cookie.
    let name = page.cookie.split('=').next().unwrap();
    let other = stranger.ask("answer", &body).header("cookie", format!("{name}={}", "x".repeat(43)));
    assert_eq!(status(other).await, StatusCode::UNAUTHORIZED);
    // Another page in the browser of an approver.
    let url = format!("{}/approvals/answer", page.origin);
    let sent = |origin: &str, kind: &str| {
        let request = page.http.post(&url).header("cookie", &page.cookie).body(body.to_string());
        request.header("origin", origin).header("content-type", kind)
    };
    let json_kind = "application/json";
    for origin in ["null", "https://evil.example", "http://127.0.0.1:1"] {
        assert_eq!(status(sent(origin, json_kind)).await, StatusCode::FORBIDDEN, "{origin}");
    }
    assert_eq!(status(sent(&page.origin, "text/plain")).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let without = page.http.post(&url).header("cookie", &page.cookie).header("content-type", json_kind);
    assert_eq!(status(without.body(body.to_string())).await, StatusCode::FORBIDDEN);
    // The page itself is for everybody, and in no frame.
    let shown = page.http.get(format!("{}/approvals/", page.origin)).send().await.unwrap();
    assert_eq!(shown.status(), StatusCode::OK);
    assert!(shown.headers()["content-security-policy"].to_str().unwrap().contains("frame-ancestors 'none'"));
    assert_eq!(shown.headers()["cache-control"], "no-store");
    assert!(shown.text().await.unwrap().contains("<body data-login>"));
    let framed = page.http.get(format!("{}/approvals/", page.origin)).header("sec-fetch-dest", "iframe");
    assert_eq!(status(framed).await, StatusCode::FORBIDDEN);
}

/// The server's own record and the user's audit log say the same.
fn check_records(place: &TeamPlace) {
    let lines = |path: std::path::PathBuf| -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let decisions = lines(place.path("state/approvals/decisions.jsonl"));
    let log = lines(user_directory(place, &place.user("ann")["key"]).join("audit/log.jsonl"));
    let logged: Vec<_> = log.iter().filter(|event| event["by"] == "approver").collect();
    assert_eq!((decisions.len(), logged.len()), (2, 2));
    for (decision, event) in decisions.iter().zip(logged) {
        assert_eq!((&decision["question"], &decision["by"]), (&event["question"], &event["approver"]));
        assert_eq!(decision["by"], "fay (fay at local)");
        assert_eq!(decision["is_allowed"], event["decision"] == "accepted");
        assert_eq!(event["via"], "approvals");
    }
}

#[tokio::test]
async fn questions_and_decisions_outlive_the_server() {
    let place = approving("");
    let (ann, fay) = (token_in(&place, "ann", "sales"), token_in(&place, "fay", "finance"));
    let server = place.serve();
    let client = with_bank(&place, &ann).await;
    let cell = paying(client, 70);
    let page = PageBrowser::new(&place, &fay).await;
    page.row().await;
    server.kill();
    // The client's request broke off.
    assert!(cell.await.is_err());
    let server = place.serve();
    assert_eq!(page.ask("answer", &json!({})).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let page = PageBrowser::new(&place, &fay).await;
    let row = page.row().await;
    assert_eq!(page.decide(&row, "once").await, "allowed by fay (fay at local)");
    // At once: whether the session has heard of it or not, it is told.
    server.kill();
    let server = place.serve();
    crate::support::eventually("the call has run", || paid(&place, "ann") == "70\n").await;
    let page = PageBrowser::new(&place, &fay).await;
    assert!(page.rows().await.is_empty());
    let decisions = std::fs::read_to_string(place.path("state/approvals/decisions.jsonl")).unwrap();
    assert_eq!((decisions.lines().count(), paid(&place, "ann").as_str()), (1, "70\n"));
    server.stop().await;
}

#[tokio::test]
async fn users_decide_about_their_own_calls_on_the_page() {
    let place = approving("");
    let (ann, fay) = (token_in(&place, "ann", "sales"), token_in(&place, "fay", "finance"));
    let server = place.serve();
    let client = with_bank(&place, &ann).await;
    let cell = paying(client, 5);
    let own = PageBrowser::new(&place, &ann).await;
    let row = own.row().await;
    assert_eq!(row["asker"], Value::Null);
    assert!(PageBrowser::new(&place, &fay).await.rows().await.is_empty());
    assert_eq!(own.decide(&row, "session").await, "allowed for this session");
    let (client, said) = cell.await.unwrap();
    assert_eq!(said, "paid 5");
    // The answer holds for the session, but not where a rule names approvers.
    let (client, said) = paying(client, 6).await.unwrap();
    assert_eq!(said, "paid 6");
    let cell = paying(client, 10);
    let page = PageBrowser::new(&place, &fay).await;
    let row = page.row().await;
    assert!(own.rows().await.is_empty());
    page.decide(&row, "no").await;
    assert!(cell.await.unwrap().1.contains("rejected by fay"));
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_is_told_of_questions_and_can_verify_it() {
    const SECRET: &str = "a secret that is long enough to sign";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let place = approving(&format!("[approvals.webhook]\nurl = \"{url}\"\nsecret_env = \"HOOK_SECRET\"\n"));
    let (ann, fay) = (token_in(&place, "ann", "sales"), token_in(&place, "fay", "finance"));
    let refused = place.run(&["serve"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`HOOK_SECRET` is not set"));
    let server = place.serve_in(&[("HOOK_SECRET", SECRET)]);
    let client = with_bank(&place, &ann).await;
    let cell = paying(client, 80);
    // The first message is not taken, and comes again.
    let (first, _) = received(&listener, "500 No").await;
    let (head, body) = received(&listener, "200 OK").await;
    let header = |head: &str, name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("{name} in {head}"))
    };
    let id = header(&head, "webhook-id");
    assert_eq!(header(&first, "webhook-id"), id);
    let signed = format!("{id}.{}.{body}", header(&head, "webhook-timestamp"));
    let expected =
        base64::engine::general_purpose::STANDARD.encode(hmac(SECRET.as_bytes(), signed.as_bytes()));
    assert_eq!(header(&head, "webhook-signature"), format!("v1,{expected}"));
    let message: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(message["data"]["url"], format!("http://127.0.0.1:{}/approvals/", place.port));
    assert_eq!((&message["data"]["tool"], &message["data"]["arguments"]), (&json!("transfer"), &Value::Null));
    assert_eq!(message["data"]["asker"]["user"], "ann at local");
    let page = PageBrowser::new(&place, &fay).await;
    let row = page.row().await;
    page.decide(&row, "once").await;
    assert_eq!(cell.await.unwrap().1, "paid 80");
    server.stop().await;
}

/// A request that comes, as its head and its body.
async fn received(listener: &TcpListener, status: &str) -> (String, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    loop {
        stream.read_buf(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            let head = text.split_once("\r\n\r\n").unwrap().0.replace("\r\n", "\n");
            return (head, body.to_owned());
        }
    }
}

/// HMAC-SHA256 (RFC 2104), by the standard's own words.
pub(super) fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let padded = |with: u8| -> Vec<u8> {
        (0..64).map(|index| key.get(index).copied().unwrap_or_default() ^ with).collect()
    };
    let inner = Sha256::digest([&padded(0x36), text].concat());
    Sha256::digest([padded(0x5c), inner.to_vec()].concat()).to_vec()
}
