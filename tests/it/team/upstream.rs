//! Servers that users reach as themselves: the server exchanges the tokens of users at their identity provider.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::actions::{caller, publish};
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
pub(super) struct Company {
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
    pub(super) fn of(script: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(tool("bin/node"));
        command.arg(test_server(script)).arg("--packages").arg(tool("npm")).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let places = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it did not start: {line}"));
        Self { child, places, _output: output }
    }

    /// The address of this name.
    pub(super) fn at(&self, name: &str) -> &str {
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
