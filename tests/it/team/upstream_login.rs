//! Servers at which users log in by a browser, which comes back to the server of the team.

use std::collections::BTreeMap;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::approvals::PageBrowser;
use super::support::{TeamClient, TeamPlace};
use super::upstream::Company;
use crate::support::PATIENCE;

/// A browser, which keeps cookies and follows redirects.
#[derive(Default)]
struct LoginBrowser(BTreeMap<String, String>);

impl LoginBrowser {
    /// Goes to a page, and on from there until the server of the team is reached: the query of its page.
    async fn visit(&mut self, url: &str) -> String {
        let mut url = reqwest::Url::parse(url).unwrap();
        for _ in 0..20 {
            if url.path() == "/oauth/callback" {
                return url.query().unwrap().to_owned();
            }
            let client = plain(|client| client.redirect(reqwest::redirect::Policy::none()));
            let cookies: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let answer = client.get(url.clone()).header("cookie", cookies.join("; ")).send().await.unwrap();
            for cookie in answer.headers().get_all("set-cookie") {
                let (name, value) =
                    cookie.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
                self.0.insert(name.to_owned(), value.to_owned());
            }
            let location =
                answer.headers().get("location").unwrap_or_else(|| panic!("{url}")).to_str().unwrap();
            url = url.join(location).unwrap();
        }
        panic!("it leads nowhere");
    }
}

fn plain(change: fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> reqwest::Client {
    ipybox::http_client(|client| change(client.no_proxy())).unwrap()
}

/// The page of the server to which a browser comes back.
struct CallbackPage {
    origin: String,
}

impl CallbackPage {
    async fn open(&self, query: &str) -> (StatusCode, String) {
        let url = format!("{}/oauth/callback?{query}", self.origin);
        let answer = plain(|client| client).get(url).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// Goes on, from a page of this origin.
    async fn go_on(&self, query: &str, origin: Option<&str>) -> (StatusCode, String) {
        self.go_on_as("", query, origin).await
    }

    /// Goes on in a browser that has a cookie.
    async fn go_on_as(&self, cookie: &str, query: &str, origin: Option<&str>) -> (StatusCode, String) {
        let body = reqwest::Url::parse_with_params("http://x/", [("query", query)]).unwrap();
        let request =
            plain(|client| client).post(format!("{}/oauth/callback", self.origin)).timeout(PATIENCE);
        let request = match origin {
            Some(origin) => request.header("origin", origin),
            None => request,
        };
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.header("cookie", cookie);
        let answer = request.body(body.query().unwrap().to_owned()).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }
}

/// A call whose stream has brought a question, and what comes after it.
struct AskingCall {
    response: reqwest::Response,
    text: String,
    read: usize,
}

impl AskingCall {
    async fn begin(client: &mut TeamClient, call: Value) -> Self {
        let response = client.send("tools/call", call).await;
        assert_eq!(response.status(), StatusCode::OK);
        Self { response, text: String::new(), read: 0 }
    }

    /// The next message with this member.
    async fn next(&mut self, member: &str) -> Value {
        loop {
            while let Some(end) = self.text[self.read..].find('\n') {
                let line = &self.text[self.read..self.read + end];
                let message =
                    line.strip_prefix("data:").and_then(|data| serde_json::from_str(data.trim()).ok());
                self.read += end + 1;
                if let Some(message) = message.filter(|message: &Value| message.get(member).is_some()) {
                    return message;
                }
            }
            let chunk =
                self.response.chunk().await.unwrap().unwrap_or_else(|| panic!("it ends: {}", self.text));
            self.text.push_str(&String::from_utf8_lossy(&chunk));
        }
    }

    /// The page of a login that the user is asked to open, which the client does.
    async fn page(&mut self, client: &TeamClient) -> String {
        let question = self.next("method").await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let accepted = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
        assert_eq!(client.post(&accepted).await.status(), StatusCode::ACCEPTED);
        question["params"]["url"].as_str().unwrap_or_else(|| panic!("{question}")).to_owned()
    }
}

#[tokio::test]
async fn a_user_logs_in_by_a_browser_that_comes_back_to_the_server() {
    let company = Company::of("oidc.mjs", &[]);
    let place = TeamPlace::new("");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let (server, log) = place.serve_in_and_log(&[]);
    let mut clients = Vec::new();
    for token in &tokens {
        let mut client = place.client(token);
        client.begin(json!({"elicitation": {"form": {}, "url": {}}})).await;
        clients.push(client);
    }
    let origin = format!("http://127.0.0.1:{}", place.port);
    let page = CallbackPage { origin: origin.clone() };
    let params = json!({"url": company.at("url")});
    let call = json!({"name": "register_mcp_server", "arguments": {"server_name": "notes", "server_params": params}});

    // An answer of another authorization server is not taken.
    let ann = &mut clients[0];
    let mut asking = AskingCall::begin(ann, call.clone()).await;
    let address = asking.page(ann).await;
    assert!(
        address.contains(&format!("{}%2Foauth%2Fcallback", origin.replace(':', "%3A").replace('/', "%2F"))),
        "{address}"
    );
    let query = LoginBrowser::default().visit(&address).await;
    let other: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("iss=")).collect();
    let mixed = format!("{}&iss=https%3A%2F%2Fevil.example", other.join("&"));
    let (_, said) = page.go_on(&mixed, Some(&origin)).await;
    assert!(said.contains("not logged in"), "{said}");
    let answer = asking.next("result").await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");

    let mut asking = AskingCall::begin(ann, call.clone()).await;
    let address = asking.page(ann).await;
    let query = LoginBrowser::default().visit(&address).await;
    let (status, said) = page.open("code=c&state=a-state-that-somebody-has-made-up").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{said}");
    let (status, said) = page.open(&query).await;
    assert!(
        status == StatusCode::OK && said.contains("of <b>ann</b>") && said.contains("127.0.0.1"),
        "{said}"
    );
    // Another page cannot go on for the user.
    for other in [None, Some("null"), Some("https://evil.example")] {
        assert_eq!(page.go_on(&query, other).await.0, StatusCode::FORBIDDEN);
    }
    let (status, said) = page.go_on(&query, Some(&origin)).await;
    assert!(status == StatusCode::OK && said.contains("ipybox is logged in"), "{said}");
    let answer = asking.next("result").await;
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(page.go_on(&query, Some(&origin)).await.0, StatusCode::GONE);
    assert_eq!(page.open(&query).await.0, StatusCode::NOT_FOUND);
    let said = ann.cell("from mcptools.notes import whoami\nprint(whoami.run())").await;
    assert!(said.contains("subject='alice'"), "{said}");

    // It is not the login of another user.
    let bob = &mut clients[1];
    let mut asking = AskingCall::begin(bob, call).await;
    let address = asking.page(bob).await;
    let query = LoginBrowser::default().visit(&address).await;
    assert!(page.open(&query).await.1.contains("of <b>bob</b>"));
    let code = query
        .split('&')
        .find(|pair| pair.starts_with("code="))
        .unwrap()
        .trim_start_matches("code=")
        .to_owned();
    assert_eq!(page.go_on(&query, Some(&origin)).await.0, StatusCode::OK);
    asking.next("result").await;
    server.stop().await;
    assert!(!log.join().unwrap().join("\n").contains(&code));
}

/// The address in an answer that offers a login.
fn link_in(answer: &str) -> String {
    let (_, after) =
        answer.split_once("do the same again afterwards: ").unwrap_or_else(|| panic!("{answer}"));
    after.split(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_client_that_asks_nobody_gets_a_link_in_its_answer() {
    let company = Company::of("oidc.mjs", &[]);
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let (server, log) = place.serve_in_and_log(&[]);
    let mut ann = place.client(&token);
    ann.begin(json!({})).await;
    let origin = format!("http://127.0.0.1:{}", place.port);
    let page = CallbackPage { origin: origin.clone() };
    let params = json!({"url": company.at("url")});
    let call = json!({"name": "register_mcp_server", "arguments": {"server_name": "notes", "server_params": params}});
    let registered = async |ann: &mut TeamClient| {
        AskingCall::begin(ann, call.clone()).await.next("result").await["result"].clone()
    };
    let refused = registered(&mut ann).await;
    assert_eq!(refused["isError"], true, "{refused}");
    let address = link_in(refused["content"][0]["text"].as_str().unwrap());
    // The login goes on, and there is one.
    let again = registered(&mut ann).await;
    assert_eq!(link_in(again["content"][0]["text"].as_str().unwrap()), address);
    let query = LoginBrowser::default().visit(&address).await;
    let (_, said) = page.go_on(&query, Some(&origin)).await;
    assert!(said.contains("ipybox is logged in"), "{said}");
    let done = registered(&mut ann).await;
    assert_ne!(done["isError"], true, "{done}");
    let code = "from mcptools.notes import whoami\ntry:\n    print(whoami.run())\nexcept Exception as error:\n    print(error)";
    assert!(ann.cell(code).await.contains("subject='alice'"));

    // Of a call in a cell, code sees no link.
    assert!(place.run(&["end", "ann"]).status.success());
    let logins = format!("find {} -name logins.json -delete -print", place.path("state").display());
    let removed = std::process::Command::new("sh").args(["-c", &logins]).output().unwrap();
    assert!(String::from_utf8_lossy(&removed.stdout).contains("logins.json"));
    let said = ann.cell(code).await;
    let address = link_in(&said);
    assert_eq!(said.matches("state=").count(), 1, "{said}");
    let query = LoginBrowser::default().visit(&address).await;
    page.go_on(&query, Some(&origin)).await;
    let said = ann.cell(code).await;
    assert!(said.contains("subject='alice'"), "{said}");
    server.stop().await;
    log.join().unwrap();
}

#[tokio::test]
async fn where_browsers_log_in_nobody_else_ends_the_login_of_a_session() {
    let company = Company::of("oidc.mjs", &[]);
    let place = TeamPlace::new("[approvals]\nwait = \"10m\"\n");
    let [token, other] = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    let mut ann = place.client(&token);
    ann.begin(json!({})).await;
    let page = CallbackPage { origin: format!("http://127.0.0.1:{}", place.port) };
    let params = json!({"url": company.at("url")});
    let call = json!({"name": "register_mcp_server", "arguments": {"server_name": "notes", "server_params": params}});
    let refused = AskingCall::begin(&mut ann, call.clone()).await.next("result").await;
    // The link reaches somebody who has an account at the server, and who follows it.
    let query = LoginBrowser::default()
        .visit(&link_in(refused["result"]["content"][0]["text"].as_str().unwrap()))
        .await;
    let own = PageBrowser::new(&place, &token).await;
    let stranger = PageBrowser::new(&place, &other).await;
    for cookie in ["", "ipybox-approvals=x", stranger.cookie.as_str()] {
        let (status, said) = page.go_on_as(cookie, &query, Some(&page.origin)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{said}");
        assert!(said.contains("not logged in here as that user") && said.contains("of <b>ann</b>"), "{said}");
    }
    let (status, said) = page.go_on_as(&own.cookie, &query, Some(&page.origin)).await;
    assert!(status == StatusCode::OK && said.contains("ipybox is logged in"), "{said}");
    let done = AskingCall::begin(&mut ann, call).await.next("result").await;
    assert_ne!(done["result"]["isError"], true, "{done}");
    server.stop().await;
}
