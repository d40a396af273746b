//! The page on which calls are decided: its HTTP surface, and how it works in a real browser.

mod attacks;
mod browser;
#[cfg(target_os = "linux")]
mod changes;
mod clicks;
mod http;
mod invited;
mod kept;
mod looks;

use serde_json::{Value, json};

use crate::support::{Browser, Ipybox, Place, kernel_python, tool};

/// A server whose one tool takes what it is given.
const TAKES_ALL: &str = "
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations
server = FastMCP('takes-all')
@server.tool(annotations=ToolAnnotations(readOnlyHint=False, destructiveHint=True))
def change(path: str = '', mode: str = '', text: str = '') -> str:
    return 'changed ' + path
server.run()";

/// Starts ipybox with a page, as a client with these capabilities. Returns the page's address and code, too.
async fn start(place: &Place, flags: &[&str], capabilities: Value) -> (Ipybox, String, String) {
    let python = kernel_python();
    let ours = ["--python", python.to_str().unwrap(), "--approval", "ask", "--approval-ui"];
    let ours = [&ours[..], &["--approve-shell-cmds"]].concat();
    let mut ipybox = place.start(&[&ours, flags].concat()).await;
    let log = ipybox.logged("which asks for the code").await;
    let line = log.lines().find(|line| line.contains("which asks for the code")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let url = words.iter().find(|word| word.starts_with("http://")).unwrap().trim_end_matches(',');
    let code = words.last().unwrap().to_string();
    ipybox.initialize_with(capabilities).await;
    (ipybox, url.to_owned(), code)
}

/// The code that the log has after these words.
async fn code_after(ipybox: &Ipybox, words: &str) -> String {
    let log = ipybox.logged(words).await;
    let (_, rest) = log.split_once(words).unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

/// Registers the server whose tool takes everything, by the page.
async fn register(ipybox: &mut Ipybox, visitor: &Visitor) {
    let params = json!({"command": tool("mcp1/bin/python"), "args": ["-c", TAKES_ALL]});
    let named = json!({"server_name": "files", "server_params": params});
    let registering = ipybox.start_call("register_mcp_server", named).await;
    let question = visitor.question().await;
    visitor.answer(&question, "once").await;
    registering.answer().await.ok();
}

/// Starts ipybox with that server and a page, which a visitor and a browser have entered. Returns the page's address, too.
async fn start_with_both(place: &Place) -> (Ipybox, String, Visitor, Browser) {
    let (mut ipybox, url, code) = start(place, &["--approval-timeout", "300"], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    register(&mut ipybox, &visitor).await;
    let code = code_after(&ipybox, "another one needs the code ").await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    (ipybox, url, visitor, browser)
}

/// Somebody who speaks HTTP with the page as its script does.
struct Visitor {
    client: reqwest::Client,
    url: String,
    cookie: String,
    key: String,
}

fn client() -> reqwest::Client {
    // Each process has one; another test may have been first.
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

impl Visitor {
    /// One who has entered.
    async fn enter(url: &str, code: &str) -> Self {
        let mut visitor =
            Self { client: client(), url: url.to_owned(), cookie: String::new(), key: String::new() };
        let entered = visitor.post("enter", json!({"code": code})).await;
        assert_eq!(entered.status(), 200);
        let cookie = entered.headers()["set-cookie"].to_str().unwrap().to_owned();
        visitor.cookie = cookie.split(';').next().unwrap().to_owned();
        let body: Value = serde_json::from_str(&entered.text().await.unwrap()).unwrap();
        visitor.key = body["key"].as_str().unwrap().to_owned();
        visitor
    }

    fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client
            .post(format!("{}{path}", self.url))
            .header("origin", self.url.trim_end_matches('/'))
            .header("content-type", "application/json")
            .header("cookie", &self.cookie)
            .header("x-ipybox-key", &self.key)
            .body(body.to_string())
    }

    async fn post(&self, path: &str, body: Value) -> reqwest::Response {
        self.request(path, &body).send().await.unwrap()
    }

    /// What the page shows, now.
    async fn scene(&self) -> Value {
        let mut response = self.post("events", json!({})).await;
        assert_eq!(response.status(), 200);
        let mut text = Vec::new();
        while !text.contains(&b'\n') {
            text.extend(response.chunk().await.unwrap().unwrap());
        }
        let line = text.split(|byte| *byte == b'\n').next().unwrap();
        serde_json::from_slice(line).unwrap()
    }

    /// The first question, once there is one.
    async fn question(&self) -> Value {
        for _ in 0..6_000 {
            if let Some(question) = self.scene().await["questions"].get(0) {
                return question.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("nothing is asked");
    }

    /// Answers a question. Returns whether it was passed on.
    async fn answer(&self, question: &Value, answer: &str) -> bool {
        let id = &question["row"]["id"];
        let answered = self.post("answer", json!({"questions": [id], "answer": answer})).await;
        assert_eq!(answered.status(), 200);
        let body: Value = serde_json::from_str(&answered.text().await.unwrap()).unwrap();
        body["passed_on"] == json!([id])
    }
}

impl Browser {
    fn start() -> Self {
        Self::run_by("tests/it/page/browser.mjs", "page", &[])
    }

    /// Opens the page and enters it, by keyboard alone.
    async fn enter(&mut self, url: &str, code: &str) {
        self.run(&format!(
            "await page.goto({url:?});
             await page.waitForSelector('#enter:not([hidden])');
             await page.waitForFunction(() => document.activeElement.id === 'code');
             await page.keyboard.type({code:?});
             await page.keyboard.press('Enter');
             await page.waitForSelector('#inside:not([hidden])');
             await page.waitForFunction(() => document.getElementById('state').textContent === 'Connected');"
        ))
        .await;
    }
}
