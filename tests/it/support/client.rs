//! An MCP client that sees everything: each message, the process, its stderr and its exit.

use std::collections::HashMap;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{PATIENCE, Place, environment, eventually};

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

/// A running ipybox.
pub(crate) struct Ipybox {
    child: Child,
    input: Option<ChildStdin>,
    waiting: Waiting,
    /// What came without being asked for: notifications and the server's own requests.
    notifications: Arc<Mutex<Vec<Value>>>,
    log: Arc<Mutex<String>>,
    /// Ends with the log.
    log_reader: tokio::task::JoinHandle<()>,
    last_id: u64,
}

/// What a tool answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    /// The mime types and files of the images.
    pub(crate) images: Vec<(String, Vec<u8>)>,
    pub(crate) is_error: bool,
}

impl Answer {
    /// The text of a success.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(!self.is_error, "an error: {}", self.text);
        self.text
    }

    /// The text of a failure.
    #[track_caller]
    pub(crate) fn error(self) -> String {
        assert!(self.is_error, "no error: {}", self.text);
        self.text
    }
}

/// A request that is under way.
pub(crate) struct Reply {
    pub(crate) id: u64,
    receiver: oneshot::Receiver<Value>,
}

impl Reply {
    /// The whole response, or `None` if the server closed its output without one.
    pub(crate) async fn response(self) -> Option<Value> {
        timeout(PATIENCE, self.receiver).await.expect("no response in time").ok()
    }

    /// The answer of a tool call.
    pub(crate) async fn answer(self) -> Answer {
        let response = self.response().await.expect("the server closed its output without a response");
        let result = &response["result"];
        assert!(result.is_object(), "a protocol error: {response}");
        let content = result["content"].as_array().unwrap();
        let content = content.iter().filter(|block| block["type"] != "resource_link");
        let (images, texts): (Vec<_>, Vec<_>) = content.partition(|block| block["type"] == "image");
        let texts: Vec<&str> = texts.into_iter().map(|block| block["text"].as_str().unwrap()).collect();
        let images = images.into_iter().map(|block| {
            let file = BASE64.decode(block["data"].as_str().unwrap()).unwrap();
            (block["mimeType"].as_str().unwrap().to_owned(), file)
        });
        Answer { text: texts.join("\n"), images: images.collect(), is_error: result["isError"] == true }
    }
}

impl Ipybox {
    /// As this user, which only root can ask for, or as the test's own; run by `launcher`, a command, if that is not
    /// empty.
    pub(super) fn spawn(
        place: &Place,
        launcher: &[&str],
        user: Option<u32>,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let words = [launcher, &[env!("CARGO_BIN_EXE_ipybox")]].concat();
        let mut command = Command::new(words[0]);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command
            .args(&words[1..])
            .arg("--workspace")
            .arg(place.workspace())
            .arg("--state-dir")
            .arg(place.states())
            .args(flags)
            .env_clear()
            .envs(environment())
            .env("TMPDIR", place.temporary())
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let waiting = Waiting::default();
        let notifications = Arc::default();
        let log = Arc::default();
        let output = BufReader::new(child.stdout.take().unwrap());
        tokio::spawn(read_messages(output, Arc::clone(&waiting), Arc::clone(&notifications)));
        let log_reader = tokio::spawn(read_log(child.stderr.take().unwrap(), Arc::clone(&log)));
        let input = child.stdin.take();
        Self { child, input, waiting, notifications, log, log_reader, last_id: 0 }
    }

    pub(crate) fn id(&self) -> i32 {
        self.child.id().unwrap().try_into().unwrap()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// What it has logged, once these words are in it: logging does not wait.
    pub(crate) async fn logged(&self, words: &str) -> String {
        eventually(&format!("it logs `{words}`"), || self.log().contains(words)).await;
        self.log()
    }

    /// The progress messages so far.
    pub(crate) fn progress(&self) -> Vec<String> {
        let notifications = self.notifications.lock().unwrap();
        let progress = notifications.iter().filter(|message| message["method"] == "notifications/progress");
        progress.map(|message| message["params"]["message"].as_str().unwrap().to_owned()).collect()
    }

    /// The messages of this method that came and were not taken.
    pub(crate) fn sent(&self, method: &str) -> Vec<Value> {
        let notifications = self.notifications.lock().unwrap();
        notifications.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    pub(crate) async fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("stdin is closed");
        input.write_all(line.as_bytes()).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }

    /// Sends a request without waiting for its response.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Reply {
        self.last_id += 1;
        let id = self.last_id;
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, sender);
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send_line(&request.to_string()).await;
        Reply { id, receiver }
    }

    /// Sends a request with these members beside its id, whatever they are.
    pub(crate) async fn raw_request(&mut self, members: &str) -> Reply {
        self.last_id += 1;
        let id = self.last_id;
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, sender);
        self.send_line(&format!("{{\"id\":{id},{members}}}")).await;
        Reply { id, receiver }
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send_line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    }

    /// Begins a session and returns what the server says of itself.
    pub(crate) async fn initialize(&mut self) -> Value {
        self.initialize_with(json!({})).await
    }

    /// Begins a session as a client with these capabilities.
    pub(crate) async fn initialize_with(&mut self, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "it", "version": "0"},
        });
        let response = self.request("initialize", params).await.response().await.unwrap();
        self.notify("notifications/initialized", json!({})).await;
        response["result"].clone()
    }

    /// Calls a tool without waiting for its answer.
    pub(crate) async fn start_call(&mut self, tool: &str, arguments: Value) -> Reply {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        self.start_call(tool, arguments).await.answer().await
    }

    /// Runs a cell.
    pub(crate) async fn cell(&mut self, code: &str) -> Answer {
        self.call("execute_ipython_cell", json!({"code": code})).await
    }

    /// Starts a cell without waiting for its end.
    pub(crate) async fn start_cell(&mut self, code: &str) -> Reply {
        self.start_call("execute_ipython_cell", json!({"code": code})).await
    }

    /// Returns when the server has begun with the calls that were just sent.
    ///
    /// It handles requests side by side: the first answer shows that it has read them, the others that it has come to
    /// them.
    pub(crate) async fn has_begun_what_was_asked(&mut self) {
        for _ in 0..5 {
            self.request("tools/list", json!({})).await.response().await.unwrap();
        }
    }

    pub(crate) async fn register(&mut self, name: &str, params: Value) -> Answer {
        self.call("register_mcp_server", json!({"server_name": name, "server_params": params})).await
    }

    pub(crate) async fn install(&mut self, package: &str) -> Answer {
        self.call("install_package", json!({"package_name": package})).await
    }

    pub(crate) async fn reset(&mut self) {
        self.call("reset", json!({})).await.ok();
    }

    /// Waits for the server's next question to the user.
    pub(crate) async fn question(&self) -> Value {
        let mut question = None;
        eventually("the user is asked", || {
            let mut notifications = self.notifications.lock().unwrap();
            let position = notifications.iter().position(|message| message["method"] == "elicitation/create");
            question = position.map(|position| notifications.remove(position));
            question.is_some()
        })
        .await;
        question.unwrap()
    }

    /// Answers a question.
    pub(crate) async fn respond(&mut self, question: &Value, result: Value) {
        self.send_line(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string()).await;
    }

    /// Waits for the server's next question to the user, answers it, and returns what was asked.
    pub(crate) async fn decide(&mut self, decision: &str) -> String {
        let question = self.question().await;
        self.respond(&question, json!({"action": "accept", "content": {"decision": decision}})).await;
        question["params"]["message"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn cancel(&mut self, reply: &Reply) {
        self.notify("notifications/cancelled", json!({"requestId": reply.id})).await;
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.id()), signal).unwrap();
    }

    /// Waits for the process to end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it does not end").unwrap();
        // The log has come whole then, unless a process that was left behind holds its end.
        for _ in 0..1_000 {
            if self.log_reader.is_finished() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        status
    }

    /// Closes stdin and expects a clean end.
    pub(crate) async fn stop(mut self) {
        self.close_input();
        assert!(self.ended().await.success(), "{}", self.log());
    }
}

async fn read_messages(
    mut output: BufReader<tokio::process::ChildStdout>,
    waiting: Waiting,
    notifications: Arc<Mutex<Vec<Value>>>,
) {
    let mut line = String::new();
    while output.read_line(&mut line).await.unwrap() > 0 {
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("stdout: {line}: {error}"));
        match message["id"].as_u64() {
            // The server's requests have ids of their own.
            Some(id) if message["method"].is_null() => {
                if let Some(sender) = waiting.lock().unwrap().remove(&id) {
                    // A test that does not look at a response drops the receiver.
                    drop(sender.send(message));
                }
            }
            _ => notifications.lock().unwrap().push(message),
        }
        line.clear();
    }
    waiting.lock().unwrap().clear();
}

async fn read_log(mut stderr: tokio::process::ChildStderr, log: Arc<Mutex<String>>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        log.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}
