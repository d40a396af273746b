//! The login with real identity providers: `oidc-provider`, one made with Authlib, and a JupyterHub.
//!
//! A missing one fails the test.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what helps it")]

mod authlib;
mod jupyterhub;
mod oidc;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use ipybox_team::login::{
    LoginConfig, TeamUser, TokenFault, TokenLoginError, UserAuthenticator, configure_client,
};
use reqwest::Client;
use serde_json::Value;

const SECRET: &str = "s3cret";

/// A server of `tests/servers`. Killed when dropped.
struct RealProvider {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The line that it has printed.
    ready: Value,
}

impl RealProvider {
    fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut provider = Self { child, input, output: BufReader::new(output), ready: Value::Null };
        provider.ready = provider.line();
        provider
    }

    /// A Python server, with these flags.
    fn python(name: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(tool("login/bin/python"));
        command.arg(server(name)).args(flags);
        Self::start(command)
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("it printed {line:?}"))
    }

    fn text(&self, name: &str) -> &str {
        self.ready[name].as_str().unwrap()
    }
}

impl Drop for RealProvider {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn server(name: &str) -> PathBuf {
    repository().join("tests/servers").join(name)
}

/// A program that `tests/tools/install` has installed.
fn tool(path: &str) -> PathBuf {
    let tools = std::env::var_os("IPYBOX_TEST_TOOLS");
    let path = tools.map_or_else(|| repository().join("target/test-tools"), PathBuf::from).join(path);
    assert!(path.exists(), "{} is missing\nhint: run `tests/tools/install`", path.display());
    path
}

fn client() -> Client {
    // An error means that another test has done so.
    rustls::crypto::ring::default_provider().install_default().ok();
    configure_client(Client::builder()).no_proxy().build().unwrap()
}

#[derive(serde::Deserialize)]
struct TeamConfig {
    login: LoginConfig,
}

/// An authenticator with this resource, and this table for its issuer.
fn authenticator(resource: &str, issuer: &str, table: &str) -> UserAuthenticator {
    let text =
        format!("[login]\nresource = \"{resource}\"\n[[login.issuer]]\nissuer = \"{issuer}\"\n{table}");
    let config: TeamConfig = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let secret = |name: &str| (name == "IPYBOX_SECRET").then(|| SECRET.to_owned());
    UserAuthenticator::new(config.login, client(), secret).unwrap()
}

async fn user(authenticator: &UserAuthenticator, token: &str) -> Result<TeamUser, TokenLoginError> {
    let headers: HeaderMap =
        [(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())].into_iter().collect();
    authenticator.authenticate(&Uri::from_static("/mcp"), &headers).await
}

/// Posts a form as the client `ipybox`, and returns the answer.
async fn post(url: &str, fields: &[(&str, &str)]) -> Value {
    let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = client().post(url).basic_auth("ipybox", Some(SECRET));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
    let answer = request.send().await.unwrap();
    let text = answer.text().await.unwrap();
    if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }
}

/// The token of such an answer.
async fn token(url: &str, fields: &[(&str, &str)]) -> String {
    let answer = post(url, fields).await;
    answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn refused(fault: TokenFault) -> Result<TeamUser, TokenLoginError> {
    Err(TokenLoginError::Token(fault))
}

type Cookies = HashMap<String, String>;
