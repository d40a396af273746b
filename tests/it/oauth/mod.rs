//! Servers behind OAuth, with real authorization servers: that of the Python SDK, and `oidc-provider`.

mod attacks;
mod conformance;
mod keyring;
mod login;
mod questions;
mod tokens;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{Ipybox, PATIENCE, Place, kernel_python, repository, test_server, tool};

/// An authorization server with an MCP server behind it. Killed when dropped.
struct Behind {
    child: Child,
    url: String,
    /// Open as long as it lives: it may print more.
    _output: BufReader<std::process::ChildStdout>,
}

impl Behind {
    /// `tests/servers/oauth.py` with these flags.
    fn sdk(flags: &[&str]) -> Self {
        let mut command = Command::new(tool("mcp1/bin/python"));
        command.arg(test_server("oauth.py")).args(flags);
        Self::start(command)
    }

    /// `tests/servers/oidc.mjs` with these flags.
    fn oidc(flags: &[&str]) -> Self {
        let mut command = Command::new(tool("bin/node"));
        command.arg(test_server("oidc.mjs")).arg("--packages").arg(tool("npm")).args(flags);
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it did not start: {line}"));
        Self { child, url: ready["url"].as_str().unwrap().to_owned(), _output: output }
    }

    /// What the servers were asked.
    async fn log(&self) -> Value {
        let url = reqwest::Url::parse(&self.url).unwrap().join("/log").unwrap();
        let client = http();
        serde_json::from_str(&client.get(url).send().await.unwrap().text().await.unwrap()).unwrap()
    }

    /// Has the server of `sdk` err so from now on, as its flag `--fault` does from the start.
    async fn arm(&self, fault: &[&str]) {
        let url = reqwest::Url::parse(&self.url).unwrap().join("/fault").unwrap();
        let armed = http().put(url).body(json!(fault).to_string()).send().await.unwrap();
        assert!(armed.status().is_success(), "{fault:?}: {}", armed.status());
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A client that follows no redirects.
fn http() -> reqwest::Client {
    // An error means that another test has done so.
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

/// The command of the scripted browser.
fn browser() -> String {
    let script = repository().join("tests/conformance/browser.py");
    format!("{} {}", tool("mcp1/bin/python").display(), script.display())
}

/// `ipybox` with a subcommand, for the place.
fn command(place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
    command
        .args(words)
        .arg("--workspace")
        .arg(place.workspace())
        .arg("--state-dir")
        .arg(place.states())
        .env("IPYBOX_KEYRING", "off")
        .env("BROWSER", browser())
        .stdin(Stdio::null());
    command
}

/// Runs a subcommand off the runtime's thread, with this on stdin.
async fn run_with(place: &Place, words: &[&str], input: &str) -> Output {
    let (mut command, input) = (command(place, words), input.to_owned());
    tokio::task::spawn_blocking(move || {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The command may not read it.
        child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
        child.wait_with_output().unwrap()
    })
    .await
    .unwrap()
}

async fn run(place: &Place, words: &[&str]) -> Output {
    let mut command = command(place, words);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Logs in by the scripted browser.
async fn log_in(place: &Place, target: &str) {
    let output = run(place, &["login", target]).await;
    assert!(output.status.success(), "{}", text(&output));
}

/// A login that fails with these words, before its time is over.
async fn fails(place: &Place, target: &str, expected: &str) -> String {
    let words = ["login", target, "--timeout", "280"];
    let logging_in = run(place, &words);
    let output = tokio::time::timeout(PATIENCE, logging_in).await.expect("it does not end");
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(expected), "{text} has no {expected}");
    assert!(!text.contains(|character: char| character.is_control() && character != '\n'), "{text:?}");
    text
}

/// A session of a client with these capabilities.
async fn session_with(place: &Place, capabilities: Value, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap()], flags].concat();
    let mut ipybox = place.start_with(&flags, &[("IPYBOX_KEYRING", "off")]).await;
    ipybox.initialize_with(capabilities).await;
    ipybox
}

async fn session(place: &Place) -> Ipybox {
    session_with(place, json!({}), &[]).await
}

/// Visits a page as a user's browser does.
async fn visit(url: &str) {
    let (browser, url) = (browser(), url.to_owned());
    let words: Vec<String> = browser.split(' ').map(str::to_owned).collect();
    let visiting = move || Command::new(&words[0]).args(&words[1..]).arg(url).output().unwrap();
    let output = tokio::task::spawn_blocking(visiting).await.unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// No token of the server lies in this text.
#[track_caller]
fn has_no_token(log: &Value, text: &str) {
    let mut tokens = Vec::new();
    collect_tokens(log, &mut tokens);
    assert!(!tokens.is_empty(), "the server gave no token");
    for token in tokens {
        assert!(!text.contains(&token), "a token lies in: {text}");
    }
}

/// The bearer tokens and refresh tokens in what a server was asked.
fn collect_tokens(value: &Value, tokens: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if let (true, Some(text)) =
                    (["refresh_token", "code_verifier", "code"].contains(&name.as_str()), value.as_str())
                {
                    tokens.push(text.to_owned());
                }
                collect_tokens(value, tokens);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_tokens(item, tokens)),
        Value::String(text) => {
            if let Some(token) = text.strip_prefix("Bearer ") {
                tokens.push(token.to_owned());
            }
        }
        _ => {}
    }
}

/// All files below the directory, as one text.
fn everything_below(directory: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.push_str(&everything_below(&path))
        } else {
            all.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()))
        }
    }
    all
}
