//! A team server of a test's own, and clients that speak plain HTTP to it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::attacks::host::python_for_others;
use crate::support::{PATIENCE, environment, eventually, free_port, is_running, tool};

/// The version of requests with a session.
pub(super) const LEGACY: &str = "2025-11-25";
/// The version of requests without one.
pub(super) const MODERN: &str = "2026-07-28";

/// A directory with the configuration of a server, and with all that it keeps.
pub(super) struct TeamPlace {
    root: tempfile::TempDir,
    python: PathBuf,
    pub(super) port: u16,
}

impl TeamPlace {
    /// With more tables in the configuration.
    pub(super) fn new(more: &str) -> Self {
        Self::with_login("tokens_file = \"tokens.json\"", more)
    }

    /// With these keys in `[login]`.
    pub(super) fn with_login(login: &str, more: &str) -> Self {
        let root = tempfile::Builder::new().prefix("it-").tempdir().unwrap();
        // Users pass through it to what is theirs.
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let python = python_for_others(&root.path().join("python"));
        let port = free_port();
        let sessions = if more.contains("[sessions]") { "" } else { "[sessions]" };
        let (before, after) = more.split_once("[sessions]").unwrap_or(("", more));
        let (own, other) = if sessions.is_empty() { (after, "") } else { ("", after) };
        let is_root = rustix::process::geteuid().is_root();
        let other = match (is_root, other.contains("[users]")) {
            (true, _) => other.to_owned(),
            (false, true) => other.replacen("[users]", "[users]\nshare_id = true", 1),
            (false, false) => format!("{other}\n[users]\nshare_id = true"),
        };
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\nstate_dir = \"state\"\n{before}\n[login]\n\
             resource = \"http://127.0.0.1:{port}/mcp\"\n{login}\n[sessions]\npython = {python:?}\n{own}\n{other}\n",
        );
        std::fs::write(root.path().join("team.toml"), config).unwrap();
        Self { root, python, port }
    }

    /// The Python of kernels.
    pub(super) fn python(&self) -> &Path {
        &self.python
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Changes the configuration.
    pub(super) fn change(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path("team.toml")).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(self.path("team.toml"), text.replacen(from, to, 1)).unwrap();
    }

    /// The only user of this name.
    pub(super) fn user(&self, name: &str) -> Value {
        let users = self.json(&["users"]);
        users.as_array().unwrap().iter().find(|user| user["name"] == name).unwrap().clone()
    }

    /// `ipybox team` with these arguments.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_ipybox")), arguments)
    }

    fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("team").args(arguments).arg("--config").arg(self.path("team.toml"));
        // As where it is installed for all users.
        let uv = tool("uv/bin/uv");
        let path = format!("{}:{}", environment()["PATH"], uv.parent().unwrap().display());
        command.env_clear().envs(environment()).env("PATH", path).stdin(Stdio::null()).current_dir("/");
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The JSON that it prints with `--json`.
    pub(super) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A token for a user.
    pub(super) fn token(&self, name: &str) -> String {
        self.json(&["user", "add", name])["token"].as_str().unwrap().to_owned()
    }

    /// A server that serves.
    pub(super) fn serve(&self) -> TeamProcess {
        self.serve_and_log().0
    }

    /// A server of another program that serves.
    pub(super) fn serve_with(&self, program: &Path) -> TeamProcess {
        Self::begin(self.command_of(program, &["serve"])).0
    }

    /// A server that serves with more variables.
    pub(super) fn serve_in(&self, variables: &[(&str, &str)]) -> TeamProcess {
        let mut command = self.command(&["serve"]);
        command.envs(variables.iter().copied());
        Self::begin(command).0
    }

    /// A server that serves, and a thread with what it says until it ends.
    pub(super) fn serve_and_log(&self) -> (TeamProcess, JoinHandle<Vec<String>>) {
        Self::begin(self.command(&["serve"]))
    }

    /// A server that serves with more variables, and a thread with all that it logs.
    pub(super) fn serve_in_and_log(
        &self,
        variables: &[(&str, &str)],
    ) -> (TeamProcess, JoinHandle<Vec<String>>) {
        let mut command = self.command(&["serve", "--log-level", "debug"]);
        command.envs(variables.iter().copied());
        Self::begin(command)
    }

    fn begin(mut command: Command) -> (TeamProcess, JoinHandle<Vec<String>>) {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        loop {
            let Some(line) = lines.next() else { panic!("it does not serve: {said}") };
            let line = line.unwrap();
            if line.starts_with("ipybox: serving ") {
                break;
            }
            said.push_str(&line);
            said.push('\n');
        }
        // So that it never waits for somebody who reads.
        let log = std::thread::spawn(move || lines.map_while(Result::ok).collect());
        (TeamProcess(child), log)
    }

    /// A client with a user's token.
    pub(super) fn client(&self, token: &str) -> TeamClient {
        TeamClient {
            // A connection for each request: one that is kept may be of a server that was killed.
            http: ipybox::http_client(|client| client.no_proxy().pool_max_idle_per_host(0)).unwrap(),
            url: format!("http://127.0.0.1:{}/mcp", self.port),
            token: token.to_owned(),
            session: None,
            last: 0,
        }
    }

    /// A client that has begun a session.
    pub(super) async fn begun(&self, token: &str) -> TeamClient {
        let mut client = self.client(token);
        client.begin(json!({})).await;
        client
    }
}

impl Drop for TeamPlace {
    /// Ends the sessions of all users: nothing must outlive the test.
    fn drop(&mut self) {
        let output = self.run(&["users", "--json"]);
        let users: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let mut left = Vec::new();
        for user in &users {
            let key = user["key"].as_str().unwrap_or_default();
            let sessions = self.run(&["sessions", key, "--json"]);
            let sessions: Vec<Value> = serde_json::from_slice(&sessions.stdout).unwrap_or_default();
            left.extend(sessions.iter().filter_map(|session| session["process"].as_i64()));
            let ids: Vec<&str> = sessions.iter().filter_map(|session| session["id"].as_str()).collect();
            if !ids.is_empty() {
                self.run(&[&["end", key], &ids[..]].concat());
            }
        }
        if !std::thread::panicking() {
            let running = || left.iter().filter(|id| is_running(i32::try_from(**id).unwrap())).count();
            let deadline = Instant::now() + PATIENCE;
            // An entry is given up a moment before its process ends.
            while running() > 0 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(running(), 0, "keepers have outlived their end");
        }
    }
}

/// The process of a server.
pub(super) struct TeamProcess(Child);

impl TeamProcess {
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as a machine that loses power does.
    pub(super) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Asks it to end.
    pub(super) async fn stop(mut self) {
        let id = i32::try_from(self.0.id()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM).unwrap();
        eventually("the server has ended", || !is_running(id)).await;
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for TeamProcess {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A client that knows no more of MCP than a test needs.
pub(super) struct TeamClient {
    http: reqwest::Client,
    pub(super) url: String,
    pub(super) token: String,
    pub(super) session: Option<String>,
    last: u64,
}

impl TeamClient {
    /// Another one with the same session, or without.
    pub(super) fn again(&self) -> Self {
        Self {
            http: self.http.clone(),
            url: self.url.clone(),
            token: self.token.clone(),
            session: self.session.clone(),
            last: self.last + 1000,
        }
    }

    /// Begins a session.
    pub(super) async fn begin(&mut self, capabilities: Value) {
        let params = json!({
            "protocolVersion": LEGACY,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        });
        let response = self.send("initialize", params).await;
        assert_eq!(response.status(), StatusCode::OK, "{}", response.text().await.unwrap());
        self.session = Some(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        let answer = answer_in(&response.text().await.unwrap());
        let name = answer["result"]["serverInfo"]["name"].as_str().unwrap_or_default();
        assert!(name.starts_with("ipybox"), "{answer}");
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let response = self.post(&initialized).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
    }

    /// A request that can still be changed.
    pub(super) fn request(&self, method: Method) -> reqwest::RequestBuilder {
        let mut request = self.http.request(method, &self.url).timeout(PATIENCE);
        request = request.header("accept", "application/json, text/event-stream").bearer_auth(&self.token);
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", LEGACY);
        }
        request
    }

    pub(super) async fn post(&self, message: &Value) -> Response {
        let request = self.request(Method::POST).header("content-type", "application/json");
        request.body(message.to_string()).send().await.unwrap()
    }

    pub(super) async fn send(&mut self, method: &str, params: Value) -> Response {
        self.last += 1;
        self.post(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})).await
    }

    /// The answer to a request.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Value {
        let response = self.send(method, params).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{text}");
        answer_in(&text)
    }

    /// The text of a cell's answer.
    pub(super) async fn cell(&mut self, code: &str) -> String {
        text_of(&self.call("tools/call", cell(code)).await)
    }

    /// The text of a cell's answer, by a request without a session.
    pub(super) async fn modern_cell(&mut self, code: &str) -> String {
        let mut params = cell(code);
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.last += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last, "method": "tools/call", "params": params});
        let request = self.request(Method::POST).header("content-type", "application/json");
        let request = request.header("mcp-protocol-version", MODERN).header("mcp-method", "tools/call");
        let request = request.header("mcp-name", "execute_ipython_cell").body(message.to_string());
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{text}");
        text_of(&answer_in(&text))
    }
}

fn cell(code: &str) -> Value {
    json!({"name": "execute_ipython_cell", "arguments": {"code": code}})
}

/// The text of a tool's answer.
pub(super) fn text_of(answer: &Value) -> String {
    let content = answer["result"]["content"].as_array();
    let content = content.unwrap_or_else(|| panic!("no answer of a tool: {answer}"));
    content.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The answer in a body: JSON, or the last event of a stream with an id.
pub(super) fn answer_in(body: &str) -> Value {
    if let Ok(value) = serde_json::from_str(body) {
        return value;
    }
    let events =
        body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?.trim()).ok());
    let answers: Vec<Value> = events
        .filter(|event: &Value| event.get("result").is_some() || event.get("error").is_some())
        .collect();
    answers.last().unwrap_or_else(|| panic!("there is no answer in: {body}")).clone()
}

/// The directory of a user's files.
pub(super) fn user_directory(place: &TeamPlace, key: &Value) -> PathBuf {
    place.path("state/users").join(Path::new(key.as_str().unwrap()))
}
