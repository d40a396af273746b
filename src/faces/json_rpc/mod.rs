//! The library for other languages: JSON-RPC 2.0 on stdin and stdout, a message a line. The Python library speaks it.
//!
//! ```text
//! request  → Host::answer → sessions, tools  → the Rust library → response
//! log line → notification `log`
//! ```
//!
//! The program at the other end has started this process and is trusted as the caller of a library is. What it has
//! opened (sessions, streams, tool servers, approval clients) has numbers; when it closes stdin, all of that ends. A
//! line that is no message is answered by an error, and nothing that was opened suffers.

mod options;
mod requests;
mod sessions;
mod table;
mod tools;
mod wire;
mod words;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::requests::RpcRequests;
use self::sessions::RpcSessions;
use self::tools::RpcTools;
use self::wire::{CancelParams, RpcFailure, RpcLine, read};

/// The number of log lines that wait for a reader that is slow. More are dropped.
const QUEUED_LINES: usize = 10_000;

/// The longest line of the other program, in bytes: as long as a message of an MCP client.
const LINE_BYTES: u64 = 256 * 1024 * 1024;

/// The log of this process, sent as notifications.
#[derive(Debug, Clone)]
pub struct LogSender(mpsc::Sender<String>);

/// The other end of a [`LogSender`].
#[derive(Debug)]
pub struct LogReceiver(mpsc::Receiver<String>);

/// Makes the two ends of a log.
pub fn log() -> (LogSender, LogReceiver) {
    let (sender, receiver) = mpsc::channel(QUEUED_LINES);
    (LogSender(sender), LogReceiver(receiver))
}

impl LogSender {
    /// Sends a line; `level` is that of `tracing`, in capitals.
    pub fn send(&self, level: &str, text: &str) {
        let text = words::with_options(text.trim_end());
        let notification =
            json!({"jsonrpc": "2.0", "method": "log", "params": {"level": level, "text": text}});
        // A program that does not read must not stop us.
        self.0.try_send(notification.to_string()).ok();
    }
}

/// Sets the level of the log: `DEBUG`, `INFO`, `WARNING`, `ERROR`.
pub type SetLevel = Box<dyn Fn(&str) + Send + Sync>;

/// Serves until stdin ends or SIGTERM arrives. Then everything that was opened has ended.
///
/// # Errors
/// stdin or stdout is no pipe, or cannot be used any more.
pub async fn serve(log: LogReceiver, set_level: SetLevel) -> io::Result<()> {
    // Who ignores that children end cannot wait for them, and would be so by inheritance.
    let _children = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child())?;
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    // As pipes, and not by the threads that tokio reads other files with: that takes half of the time of a message.
    let input = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let output = pipe::Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?;
    let host = Arc::new(Host::new(set_level));
    let served = tokio::select! {
        served = host.serve(input, output, log.0) => served,
        _ = terminated.recv() => Ok(()),
    };
    host.stop().await;
    served
}

/// The sessions, registries and tool servers that one program has opened.
struct Host {
    sessions: RpcSessions,
    tools: RpcTools,
    requests: Arc<RpcRequests>,
    /// The tokens that drop the future of a request, by the request's id.
    running: Mutex<HashMap<u64, CancellationToken>>,
    set_level: SetLevel,
}

impl Host {
    fn new(set_level: SetLevel) -> Self {
        let requests = Arc::new(RpcRequests::default());
        Self {
            sessions: RpcSessions::new(Arc::clone(&requests)),
            tools: RpcTools::new(Arc::clone(&requests)),
            requests,
            running: Mutex::default(),
            set_level,
        }
    }

    async fn serve(
        self: &Arc<Self>,
        input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
        mut log: mpsc::Receiver<String>,
    ) -> io::Result<()> {
        let (sender, mut responses) = mpsc::unbounded_channel::<String>();
        let reading = async {
            let mut lines = BufReader::new(input);
            while let Some(line) = next_line(&mut lines).await? {
                match line {
                    ProgramLine::Whole(line) => self.hear(&line, &sender).await,
                    // A program that has gone needs no answer.
                    ProgramLine::TooLong => {
                        drop(sender.send(wire::response(&Value::Null, Err(RpcFailure::too_long()))))
                    }
                }
            }
            Ok(())
        };
        let writing = async {
            loop {
                let mut line = tokio::select! {
                    biased;
                    Some(response) = responses.recv() => response,
                    Some(record) = log.recv() => record,
                    else => return Ok(()),
                };
                line.push('\n');
                output.write_all(line.as_bytes()).await?;
                output.flush().await?;
            }
        };
        tokio::select! {
            read = reading => read,
            written = writing => written,
        }
    }

    /// Begins with a request. What it starts is in order: the request before has been polled once.
    async fn hear(self: &Arc<Self>, line: &[u8], responses: &mpsc::UnboundedSender<String>) {
        // A program that has gone needs no answer.
        let respond = |response| responses.send(response).is_ok();
        let RpcLine { id, method, params } = match wire::understand(line) {
            Ok(incoming) => incoming,
            Err(response) => {
                respond(response);
                return;
            }
        };
        let Some(id) = id else { return self.notice(&method, params) };
        let cancel = CancellationToken::new();
        if !self.begin(id, &cancel) {
            respond(wire::response(&id.into(), Err(RpcFailure::reused(id))));
            return;
        }
        let host = Arc::clone(self);
        let responses = responses.clone();
        let answering = async move {
            let answer = cancel.run_until_cancelled(host.answer(&method, params)).await;
            host.running.lock().remove(&id);
            if let Some(answer) = answer {
                responses.send(wire::response(&id.into(), answer)).ok();
            }
        };
        let mut answering = Box::pin(answering);
        if futures::poll!(&mut answering).is_pending() {
            tokio::spawn(answering.map(drop));
        }
    }

    /// Enters a request; not if another one with its id runs.
    fn begin(&self, id: u64, cancel: &CancellationToken) -> bool {
        match self.running.lock().entry(id) {
            Entry::Vacant(place) => {
                place.insert(cancel.clone());
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Handles a notification. One that makes no sense has no answer either.
    fn notice(&self, method: &str, params: Value) {
        match read(params) {
            Ok(CancelParams { id }) if method == "cancel" => {
                if let Some(cancel) = self.running.lock().remove(&id) {
                    cancel.cancel();
                }
            }
            _ => tracing::warn!(
                "a notification is ignored: only `cancel`, with the `id` of a request, is known"
            ),
        }
    }

    async fn answer(&self, method: &str, params: Value) -> Result<Value, RpcFailure> {
        let Self { sessions, tools, requests, set_level, .. } = self;
        match method {
            "initialize" => Ok(json!({"version": env!("CARGO_PKG_VERSION")})),
            "log/set_level" => {
                let wire::LevelParams { level } = read(params)?;
                set_level(&level);
                Ok(Value::Null)
            }
            "registry/open" => tools.open_registry(read(params)?),
            "registry/close" => tools.close_registry(read(params)?),
            "generate_mcp_sources" => tools.generate_mcp_sources(read(params)?).await,
            "apigen" => tools.apigen(read(params)?).await,
            "doctor" => tools.doctor(read(params)?).await,
            "session/start" => sessions.start(read(params)?, tools).await,
            "session/copy" => sessions.copy(read(params)?).await,
            "session/execute" => sessions.execute(read(params)?).await,
            "session/stream" => sessions.stream(read(params)?).await,
            "session/reset" => sessions.reset(read(params)?).await,
            "session/cancel" => sessions.cancel(read(params)?),
            "session/install_package" => sessions.install_package(read(params)?).await,
            "session/register_mcp_server" => sessions.register_mcp_server(read(params)?).await,
            "session/grants" => sessions.grants(read(params)?),
            "session/revoke_grant" => sessions.revoke_grant(read(params)?),
            "session/stop" => sessions.stop(read(params)?).await,
            "stream/next" => sessions.next(read(params)?).await,
            "stream/close" => sessions.close_stream(read(params)?),
            "approval_request/answer" => requests.answer(read(params)?),
            "tool_server/start" => tools.start_server(read(params)?).await,
            "tool_server/join" => tools.join_server(read(params)?).await,
            "tool_server/stop" => tools.stop_server(read(params)?).await,
            "tool_runner/run" => tools.run(read(params)?).await,
            "tool_runner/register" => tools.register(read(params)?).await,
            "tool_runner/reset" => tools.reset(read(params)?).await,
            "approval_client/connect" => tools.connect(read(params)?).await,
            "approval_client/next" => tools.next(read(params)?).await,
            "approval_client/disconnect" => tools.disconnect(read(params)?).await,
            _ => Err(RpcFailure::no_method(method)),
        }
    }

    async fn stop(&self) {
        for (_, cancel) in self.running.lock().drain() {
            cancel.cancel();
        }
        tokio::join!(self.sessions.stop_all(), self.tools.stop_all());
    }
}

/// A line of the other program.
enum ProgramLine {
    Whole(Vec<u8>),
    /// It was longer than [`LINE_BYTES`], and was not kept.
    TooLong,
}

/// The next line; `None` at the end.
async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<ProgramLine>> {
    let mut line = Vec::new();
    if (&mut *lines).take(LINE_BYTES).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if (line.len() as u64) < LINE_BYTES || line.ends_with(b"\n") {
        return Ok(Some(ProgramLine::Whole(line)));
    }
    drop(line);
    loop {
        let read = lines.fill_buf().await?;
        let end = read.iter().position(|byte| *byte == b'\n');
        let is_over = end.is_some() || read.is_empty();
        let length = end.map_or(read.len(), |end| end + 1);
        lines.consume(length);
        if is_over {
            return Ok(Some(ProgramLine::TooLong));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_not_kept_and_the_next_one_is_read() {
        for ending in [&b"\n{\"id\": 1}\n"[..], b""] {
            let long = tokio::io::repeat(b'x').take(LINE_BYTES + 7).chain(ending);
            let mut lines = BufReader::with_capacity(1 << 20, long);
            assert!(matches!(next_line(&mut lines).await.unwrap(), Some(ProgramLine::TooLong)));
            if !ending.is_empty() {
                let next = next_line(&mut lines).await.unwrap();
                assert!(matches!(next, Some(ProgramLine::Whole(line)) if line == b"{\"id\": 1}\n"));
            }
            assert!(next_line(&mut lines).await.unwrap().is_none());
        }
    }

    /// The responses to these lines.
    async fn responses(lines: &[u8]) -> Vec<Value> {
        let host = Arc::new(Host::new(Box::new(|_| {})));
        let (_sender, log) = log();
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        // Served until its responses are read: it stops where its input ends.
        let (input, mut says) = tokio::io::duplex(1 << 16);
        says.write_all(lines).await.unwrap();
        let mut written = Vec::new();
        let count = lines.split(|byte| *byte == b'\n').count() - 1;
        let mut reader = BufReader::new(theirs);
        let reading = async {
            for _ in 0..count {
                let mut line = String::new();
                reader.read_line(&mut line).await.unwrap();
                written.push(serde_json::from_str(&line).unwrap());
            }
        };
        tokio::select! {
            served = host.serve(input, ours, log.0) => panic!("it has ended: {served:?}"),
            () = reading => {}
        }
        written
    }

    #[tokio::test]
    async fn a_line_that_cannot_be_read_is_answered_and_ends_nothing() {
        let big = format!(
            r#"{{"jsonrpc": "2.0", "id": 7, "method": "m", "params": {{"n": {}}}}}"#,
            "9".repeat(400)
        );
        let cases: &[(&[u8], Value, i32, &str)] = &[
            (big.as_bytes(), json!(7), -32700, "number out of range"),
            (br#"{"id": 8, "method": 1}"#, json!(8), -32600, "expected a string"),
            (br#"{"id": 8}"#, json!(8), -32600, "missing field `method`"),
            (br#"{"id": "a", "method": "m"}"#, json!("a"), -32600, "expected u64"),
            (br#"{"method": "m", "params": {"x": "\ud800"}, "id": 9}"#, json!(9), -32700, ""),
            (b"{\"id\": 9, \"method\": \"\xff\"}", json!(9), -32700, ""),
            (br#"{"id": 9, "method": "#, Value::Null, -32700, "EOF"),
            (b"", Value::Null, -32700, ""),
            (b"hello", Value::Null, -32700, ""),
        ];
        let mut lines = Vec::new();
        for (line, ..) in cases {
            lines.extend_from_slice(line);
            lines.push(b'\n');
        }
        lines.extend_from_slice(b"{\"id\": 10, \"method\": \"initialize\"}\n");
        let mut answers = responses(&lines).await.into_iter();
        for ((line, id, code, words), answer) in cases.iter().zip(&mut answers) {
            let line = String::from_utf8_lossy(line);
            assert_eq!(answer["id"], *id, "{line}: {answer}");
            assert_eq!(answer["error"]["code"], *code, "{line}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{line}: {answer}");
        }
        assert_eq!(answers.next().unwrap()["id"], 10);
    }

    #[tokio::test]
    async fn notifications_have_no_answer() {
        let lines = b"{\"method\": \"cancel\"}\n{\"method\": \"x\"}\n{\"id\": 1, \"method\": \"x\"}\n";
        let host = Arc::new(Host::new(Box::new(|_| {})));
        let (sender, mut responses) = mpsc::unbounded_channel();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            host.hear(line, &sender).await;
        }
        assert!(responses.recv().await.unwrap().contains("there is no method `x`"));
        assert!(responses.try_recv().is_err());
    }

    #[tokio::test]
    async fn an_id_is_used_again_only_after_its_answer() {
        let host = Arc::new(Host::new(Box::new(|_| {})));
        let (sender, mut responses) = mpsc::unbounded_channel();
        let running = CancellationToken::new();
        assert!(host.begin(1, &running));
        host.hear(br#"{"id": 1, "method": "initialize"}"#, &sender).await;
        assert!(responses.recv().await.unwrap().contains("without an answer yet"));
        host.hear(br#"{"method": "cancel", "params": {"id": 1}}"#, &sender).await;
        assert!(running.is_cancelled());
        host.hear(br#"{"id": 1, "method": "initialize"}"#, &sender).await;
        assert!(responses.recv().await.unwrap().contains("version"));
    }
}
