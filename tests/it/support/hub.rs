//! A real JupyterHub with its proxy, whose users have servers of their own. Linux only.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{Ipybox, PATIENCE, Place, environment, kernel_python, test_server, tool};

/// The scopes that ipybox needs.
pub(crate) const SCOPES: [&str; 2] = ["access:servers!user", "servers!user"];

/// A running Hub. It ends with its users' servers when this is dropped, or the tests' process ends.
pub(crate) struct Hub {
    child: Child,
    pipes: Arc<Mutex<Option<HubPipes>>>,
    home: PathBuf,
    url: String,
    /// The URL of the Hub's API, without the proxy.
    api: String,
    /// The tokens of services, by their names.
    services: Value,
}

/// The way of commands to it, and of its answers.
struct HubPipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Hub {
    pub(crate) async fn start() -> Self {
        Self::start_at(&[]).await
    }

    /// A Hub whose users have subdomains of this host, which nobody else knows: its `url` is the proxy's all the same.
    pub(crate) async fn start_with_subdomains(host: &str) -> Self {
        Self::start_at(&[host]).await
    }

    async fn start_at(host: &[&str]) -> Self {
        let home = tempfile::Builder::new().prefix("hub-").tempdir().unwrap().keep();
        let mut child = Command::new(tool("jupyter/bin/python"))
            .arg(test_server("jupyterhub_users.py"))
            .arg(&home)
            .arg(tool("bin/node"))
            .arg(tool("npm/node_modules/configurable-http-proxy/bin/configurable-http-proxy"))
            .arg(kernel_python())
            .args(host)
            .env_clear()
            .env("PATH", &environment()["PATH"])
            .env("LANG", "C.UTF-8")
            .env("HOME", &home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the tests: it comes from them as the end of stdin.
            .process_group(0)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let pipes = Arc::new(Mutex::new(Some(HubPipes { input, output })));
        let [url, api] = Default::default();
        let mut hub = Self { child, pipes, home, url, api, services: Value::Null };
        let ready = hub.said(None).await;
        ready["url"].as_str().unwrap().clone_into(&mut hub.url);
        ready["api"].as_str().unwrap().clone_into(&mut hub.api);
        hub.services = ready["services"].clone();
        hub
    }

    /// The Hub that all tests of this process share that do not stop it; each has users of its own.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Hub> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// The token of a user whose server runs already, for sessions that share it.
    pub(crate) async fn token_of_running_server(&self) -> &'static str {
        static TOKEN: OnceCell<String> = OnceCell::const_new();
        let prepared = async {
            let token = self.user("team").await;
            self.run_server("team").await;
            token
        };
        TOKEN.get_or_init(|| prepared).await
    }

    /// Ends with a slash.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
    }

    /// The token of a service: `tests` may do everything, `ipybox` make tokens and users, `clerk` make tokens.
    pub(crate) fn token_of_service(&self, name: &str) -> &str {
        self.services[name].as_str().unwrap()
    }

    /// Lets the servers of patient users start.
    pub(crate) fn open(&self) {
        std::fs::write(self.home.join("open"), "").unwrap();
    }

    /// `stop hub`, `start proxy` and the like; returns when it is done.
    pub(crate) async fn command(&self, command: &str) {
        self.said(Some(format!("{command}\n"))).await;
    }

    async fn said(&self, command: Option<String>) -> Value {
        let pipes = Arc::clone(&self.pipes);
        let asking = tokio::task::spawn_blocking(move || {
            let mut pipes = pipes.lock();
            let HubPipes { input, output } = pipes.as_mut().unwrap();
            if let Some(command) = command {
                input.write_all(command.as_bytes()).unwrap();
            }
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line
        });
        let line = asking.await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the Hub ended: {line}"))
    }

    /// Makes a user, and a token of theirs.
    pub(crate) async fn user(&self, name: &str) -> String {
        let (status, body) = self.ask("POST", &format!("users/{name}"), &json!({})).await;
        assert_eq!(status, 201, "{body}");
        self.token_of(name, &SCOPES, None).await
    }

    /// Makes a token of a user, with these scopes and for so many seconds.
    pub(crate) async fn token_of(&self, user: &str, scopes: &[&str], seconds: Option<u64>) -> String {
        let wanted = json!({"scopes": scopes, "expires_in": seconds});
        let (status, body) = self.ask("POST", &format!("users/{user}/tokens"), &wanted).await;
        assert_eq!(status, 201, "{body}");
        body["token"].as_str().unwrap().to_owned()
    }

    /// Starts a user's server, and waits until it is ready.
    pub(crate) async fn run_server(&self, user: &str) {
        self.ask("POST", &format!("users/{user}/server"), &json!({})).await;
        self.until(user, "", true).await;
    }

    /// Waits until a server is ready, or there is none.
    pub(crate) async fn until(&self, user: &str, server: &str, is_ready: bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let model = self.server(user, server).await;
            if if is_ready { model["ready"] == true } else { model.is_null() } {
                return;
            }
            assert!(Instant::now() < deadline, "{model}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The Hub's model of a server; null if it does not run.
    pub(crate) async fn server(&self, user: &str, server: &str) -> Value {
        let (status, body) = self.ask("GET", &format!("users/{user}"), &Value::Null).await;
        assert_eq!(status, 200, "{body}");
        body["servers"][server].clone()
    }

    /// Asks the Hub's API as the service.
    pub(crate) async fn ask(&self, method: &str, path: &str, document: &Value) -> (u16, Value) {
        self.ask_as(self.token_of_service("tests"), method, path, document).await
    }

    pub(crate) async fn ask_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        document: &Value,
    ) -> (u16, Value) {
        // Another test has done it already, perhaps.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("{}{path}", self.api);
        let request = client
            .request(method.parse().unwrap(), url)
            .header("Authorization", format!("token {token}"))
            .header("Content-Type", "application/json");
        let request = if document.is_null() { request } else { request.body(document.to_string()) };
        let answer = request.timeout(PATIENCE).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        drop(self.pipes.lock().take());
        self.child.wait().expect("the Hub ends");
    }
}

impl Place {
    /// ipybox with kernels on a user's server at a Hub.
    pub(crate) fn start_at_hub(
        &self,
        launcher: &[&str],
        hub: &Hub,
        token: &str,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Ipybox {
        let server = ["--kernel-hub-url", hub.url(), "--kernel-hub-token-env", "HUB_TOKEN_OF_TESTS"];
        let variables = [&[("HUB_TOKEN_OF_TESTS", token)], variables].concat();
        Ipybox::spawn(self, launcher, None, &[&super::remote_flags(flags)[..], &server].concat(), &variables)
    }
}
