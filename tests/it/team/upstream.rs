//! Servers that users reach as themselves: the server exchanges the tokens of users at their identity provider.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::actions::{caller, publish};
use super::approvals::PageBrowser;
use super::support::{TeamClient, TeamPlace, user_directory};
use crate::support::{PATIENCE, eventually, test_server, tool};

const SECRET: &str = "s3cret-of-the-exchange";
const VARIABLES: [(&str, &str); 1] = [("EXCHANGE_SECRET", SECRET)];
/// Calls a tool of each server that the first words of a cell name.
const WHO: &str = "
def who(*modules):
    for module in modules:
        try: said = module.run()
        except Exception as error: said = error
        print('said', said)
";

/// `tests/servers/exchange.mjs`: an identity provider, and MCP servers that take nothing but exchanged tokens.
struct Company {
    child: Child,
    places: Value,
    /// Open as long as it lives: it may print more.
    _output: BufReader<ChildStdout>,
}

impl Company {
    fn start() -> Self {
        Self::of("exchange.mjs", &["--secret", SECRET])
    }

    /// Another fixture, which prints its places.
    fn of(script: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(tool("bin/node"));
        command.arg(test_server(script)).arg("--packages").arg(tool("npm")).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let places = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it did not start: {line}"));
        Self { child, places, _output: output }
    }

    fn at(&self, name: &str) -> &str {
        self.places[name].as_str().unwrap()
    }

    /// A team whose users the provider knows.
    fn team(&self, login: &str, crm: &str) -> TeamPlace {
        let [issuer, authority, url, wiki] = ["issuer", "authority", "crm", "wiki"].map(|name| self.at(name));
        let login = format!("{login}\n[[login.issuer]]\nissuer = {issuer:?}\naudience = \"team\"");
        let client = "client_id = \"ipybox\", client_secret_env = \"EXCHANGE_SECRET\"";
        let more = format!(
            "[[upstream]]\nname = \"crm\"\nurl = {url:?}\nexchange = {{ {client}{crm} }}\n\
             [[upstream]]\nname = \"wiki\"\nurl = {wiki:?}\n[upstream.exchange]\n{}\n\
             authorization_server = {{ issuer = {authority:?}, {client} }}",
            client.replace(", ", "\n"),
        );
        TeamPlace::with_login(&login, &more)
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let client = ipybox::http_client(reqwest::ClientBuilder::no_proxy).unwrap();
        let request = client.request(method, format!("{}{path}", self.at("control"))).timeout(PATIENCE);
        let response = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    }

    /// A token by which a user comes to the team's server.
    async fn token(&self, subject: &str) -> String {
        let wish = json!({"subject": subject, "seconds": 3600});
        let answer = self.ask(Method::POST, "/token", wish).await;
        answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Has exchanges fail in this way, and the servers take no earlier token.
    async fn fail(&self, kind: &str) {
        self.ask(Method::PUT, "/fault", json!({"kind": kind})).await;
        self.ask(Method::POST, "/revoke", json!({})).await;
    }

    async fn heal(&self) {
        self.ask(Method::PUT, "/fault", json!({})).await;
    }

    /// The requests at these places.
    async fn asked_at(&self, names: &[&str]) -> Vec<Value> {
        let mut log = self.ask(Method::GET, "/log", Value::Null).await;
        let origins: Vec<&str> = names.iter().map(|name| self.at(name).trim_end_matches("/mcp")).collect();
        let requests = log["requests"].as_array_mut().unwrap();
        requests.retain(|request| origins.contains(&request["origin"].as_str().unwrap()));
        std::mem::take(requests)
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The answers of both servers.
async fn both(client: &mut TeamClient) -> String {
    client
        .cell(&format!(
            "from mcptools.crm import whoami as a\nfrom mcptools.wiki import whoami as b{WHO}who(a, b)"
        ))
        .await
}

/// The answer of the first server.
async fn crm(client: &mut TeamClient) -> String {
    client.cell(&format!("from mcptools.crm import whoami as a{WHO}who(a)")).await
}

/// Whether a file below the directory has the text.
fn has_text(directory: &Path, text: &str) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| {
        entries.any(|entry| {
            let path = entry.unwrap().path();
            match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => has_text(&path, text),
                Ok(metadata) if metadata.is_file() => has_in(&path, text),
                _ => false,
            }
        })
    })
}

fn has_in(path: &Path, text: &str) -> bool {
    let content = std::fs::read(path).unwrap_or_default();
    content.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Whether the environment or the arguments of a process have the text.
fn has_process(text: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().any(|entry| {
        let path = entry.unwrap().path();
        has_in(&path.join("environ"), text) || has_in(&path.join("cmdline"), text)
    })
}

#[tokio::test]
async fn users_reach_servers_as_themselves_and_their_tokens_stay_in_the_front() {
    let company = Company::start();
    let place = company.team("tokens_file = \"tokens.json\"", "");
    place.token("carol");
    place.change("[[upstream]]", "[approvals]\n[actions]\napprover = \"group:finance\"\n[[upstream]]");
    let (server, log) = place.serve_in_and_log(&VARIABLES);
    let mut tokens = Vec::new();
    for name in ["ann", "bob"] {
        let token = company.token(name).await;
        let mut client = place.begun(&token).await;
        for said in [both(&mut client).await, both(&mut client).await] {
            let own = format!("subject='{name}' client='ipybox'");
            assert_eq!(said.matches(&own).count(), 2, "{said}");
        }
        tokens.push(token);
    }
    let upstream = company.asked_at(&["crm", "wiki", "control"]).await;
    let shown: Vec<&str> =
        upstream.iter().filter_map(|request| request["headers"]["authorization"].as_str()).collect();
    let mut secrets: Vec<&str> = shown.iter().map(|header| header.strip_prefix("Bearer ").unwrap()).collect();
    secrets.sort_unstable();
    secrets.dedup();
    assert_eq!(secrets.len(), 4, "a token for each user and server, which is asked for once");
    let text = json!(upstream).to_string();
    assert!(tokens.iter().all(|token| !text.contains(token)) && !text.contains(SECRET), "{text}");
    secrets.extend(tokens.iter().map(String::as_str));
    for secret in &secrets {
        assert!(!has_text(&place.path("state"), secret), "a file has a token");
        assert!(!has_process(secret), "a process has a token where others can read it");
    }
    // So do the published actions that they call.
    let code = "def run() -> str:\n    from mcptools.crm import whoami\n    return str(whoami.run())\n";
    publish(&place, "who", code);
    let mut calling = caller(&place, &tokens[1]).await;
    let said = calling.call("tools/call", json!({"name": "who", "arguments": {}})).await;
    assert!(said.to_string().contains("subject='bob' client='ipybox'"), "{said}");
    server.stop().await;
    let said = log.join().unwrap().join("\n");
    assert!(said.contains("request"), "{said}");
    assert!(secrets.iter().all(|secret| !said.contains(secret)) && !said.contains(SECRET), "{said}");
}

#[tokio::test]
async fn bad_answers_of_a_provider_are_named_without_secrets() {
    let company = Company::start();
    // By the name of the server at the provider.
    let place = company.team("", ", audience = \"crm\", authentication = \"client_secret_post\"");
    let (server, log) = place.serve_in_and_log(&VARIABLES);
    let token = company.token("ann").await;
    let mut ann = place.begun(&token).await;
    let said = crm(&mut ann).await;
    assert!(said.contains("subject='ann'"), "{said}");
    let issuer = company.at("issuer");
    let faults = [
        ("invalid_target", "refuses it: invalid_target"),
        ("access_denied", "refuses it: access_denied"),
        ("indiscreet", "refuses it: it does not say why"),
        ("html", "answers with something that is no answer with a token"),
        ("huge", "answers with more than"),
        ("redirect", "leads to another address"),
        ("outage", "answers 503"),
        ("silent", "does not answer within"),
        ("other-audience", "gives a token for another audience"),
        ("own", "gives back the user's own token"),
        ("bound", "no bearer token"),
        ("untyped", "no access token"),
    ];
    for (kind, words) in faults {
        company.fail(kind).await;
        let deadline = std::time::Instant::now() + PATIENCE;
        // A failure of the provider holds for a moment.
        loop {
            let said = crm(&mut ann).await;
            assert!(said.contains("said") && !said.contains("subject="), "{kind}: {said}");
            assert!(!said.contains(&token) && !said.contains(SECRET), "{kind}: {said}");
            if said.contains(words) {
                assert!(said.contains("`crm`") && said.contains(issuer), "{kind}: {said}");
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{kind}: {said}");
        }
    }
    assert!(company.asked_at(&["control"]).await.is_empty(), "a redirect was followed");
    company.heal().await;
    let said = loop {
        let said = crm(&mut ann).await;
        if said.contains("subject=") {
            break said;
        }
    };
    assert!(said.contains("subject='ann'"), "{said}");
    server.stop().await;
    let said = log.join().unwrap().join("\n");
    assert!(said.contains("a user has no token for an upstream server"), "{said}");
    assert!(!said.contains(&token) && !said.contains(SECRET), "{said}");
}

#[tokio::test]
async fn a_server_that_was_started_anew_needs_a_new_request() {
    let company = Company::start();
    let place = company.team("", "");
    let server = place.serve_in(&VARIABLES);
    let token = company.token("ann").await;
    let ann = &mut place.begun(&token).await;
    crm(ann).await;
    let key = place.json(&["users"])[0]["key"].clone();
    let workspace = user_directory(&place, &key).join("workspace");
    // A cell that goes on while there is no server, and reaches for the user's account then.
    let code = format!(
        "import os, time\nfrom mcptools.crm import whoami as a{WHO}open('begun', 'w').close()\n\
         while not os.path.exists('go'): time.sleep(0.05)\n\
         try: said = a.run()\nexcept Exception as error: said = error\n\
         open('part', 'w').write(str(said)); os.rename('part', 'said')"
    );
    let waiting = ann.again();
    let call = json!({"name": "execute_ipython_cell", "arguments": {"code": code}});
    let waiting = tokio::spawn(async move {
        let request = json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": call});
        let request = waiting
            .request(Method::POST)
            .header("content-type", "application/json")
            .body(request.to_string());
        // It breaks off with the server.
        request.send().await.ok();
        waiting
    });
    eventually("the cell has begun", || workspace.join("begun").exists()).await;
    server.kill();
    let mut ann = waiting.await.unwrap();
    company.ask(Method::POST, "/revoke", json!({})).await;
    let server = place.serve_in(&VARIABLES);
    std::fs::write(workspace.join("go"), "").unwrap();
    eventually("the cell was told", || workspace.join("said").exists()).await;
    let said = std::fs::read_to_string(workspace.join("said")).unwrap();
    assert!(said.contains("it takes a new request of the user") && said.contains("`crm`"), "{said}");
    let said = crm(&mut ann).await;
    assert!(said.contains("subject='ann'"), "{said}");
    server.stop().await;
}

#[tokio::test]
async fn users_whom_the_provider_refuses_or_does_not_know_have_no_token() {
    let company = Company::start();
    let place = company.team("tokens_file = \"tokens.json\"", "");
    let local = place.token("carol");
    let server = place.serve_in(&VARIABLES);
    let mallory = company.token("mallory").await;
    for (token, words) in
        [(mallory, "refuses it: access_denied"), (local, "and this one has logged in at `local`")]
    {
        let mut client = place.begun(&token).await;
        let said = client.cell("1").await;
        for name in ["crm", "wiki"] {
            assert!(said.contains(&format!("`{name}`")), "{said}");
        }
        assert!(said.contains(words) && said.contains(company.at("issuer")), "{said}");
    }
    assert!(
        company.asked_at(&["crm", "wiki", "authority"]).await.is_empty(),
        "a server was asked without a token"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_client_without_its_secret_is_a_mistake_and_doctor_asks_the_providers() {
    let company = Company::start();
    let place = company.team("", "");
    let output = place.run(&["serve"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("`EXCHANGE_SECRET`"), "{said}");
    let good = std::fs::read_to_string(place.path("team.toml")).unwrap();
    let issuer = company.at("issuer");
    for (from, to, words) in [
        ("name = \"crm\"".to_owned(), "name = \"C R M\"", "is no name of a package"),
        ("name = \"crm\"".to_owned(), "name = \"wiki\"", "is there twice"),
        (
            format!("issuer = {issuer:?}"),
            "issuer = \"https://id.example\"\njwks_uri = \"https://id.example/keys\"\n[[login.issuer]]\nissuer = \"https://id2.example\"",
            "names no identity provider",
        ),
        (format!("url = {:?}", company.at("crm")), "url = \"http://crm.example.org/mcp\"", "not encrypted"),
    ] {
        std::fs::write(place.path("team.toml"), good.replacen(&from, to, 1)).unwrap();
        let output = place.run(&["users"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{to}: {said}");
    }
    std::fs::write(place.path("team.toml"), good).unwrap();
    let doctor = |place: &TeamPlace| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.args(["doctor", "--team"]).arg(place.path("team.toml")).envs(VARIABLES);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let said = doctor(&place);
    assert!(said.contains("upstream crm") && said.contains("upstream wiki"), "{said}");
    assert!(!said.contains("publishes no metadata"), "{said}");
    let authority = company.at("authority").to_owned();
    place.change(&authority, &format!("{authority}/other"));
    let said = doctor(&place);
    assert!(said.contains("upstream wiki") && said.contains("publishes no metadata"), "{said}");
}

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
