//! The library for other languages: JSON-RPC 2.0 on stdin and stdout, a message a line. The Python library speaks it.
//!
//! ```text
//! request  → Host::answer → sessions, tools  → the Rust library → response
//! log line → notification `log`
//! ```
//!
//! The program at the other end has started this process and is trusted as the caller of a library is. What it has
//! opened (sessions, streams, tool servers, approval clients) has numbers; when it closes stdin, all of that ends.

mod options;
mod requests;
mod sessions;
mod table;
mod tools;
mod wire;
mod words;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::sync::CancellationToken;

use self::requests::Requests;
use self::sessions::Sessions;
use self::tools::Tools;
use self::wire::{Failure, Incoming, read};

/// How many log lines wait for a reader that is slow. More are dropped.
const QUEUED_LINES: usize = 10_000;

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

/// What one program has opened.
struct Host {
    sessions: Sessions,
    tools: Tools,
    requests: Arc<Requests>,
    /// What drops the future of a request, by the request's id.
    running: Mutex<HashMap<u64, CancellationToken>>,
    set_level: SetLevel,
}

impl Host {
    fn new(set_level: SetLevel) -> Self {
        let requests = Arc::new(Requests::default());
        Self {
            sessions: Sessions::new(Arc::clone(&requests)),
            tools: Tools::new(Arc::clone(&requests)),
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
            let mut lines = FramedRead::new(input, LinesCodec::new());
            while let Some(line) = lines.next().await {
                let line = line.map_err(io::Error::other)?;
                self.hear(&line, &sender).await?;
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
    async fn hear(self: &Arc<Self>, line: &str, responses: &mpsc::UnboundedSender<String>) -> io::Result<()> {
        let request = match wire::understand(line)? {
            Incoming::Request(request) => request,
            Incoming::Cancel(id) => {
                if let Some(cancel) = self.running().remove(&id) {
                    cancel.cancel();
                }
                return Ok(());
            }
        };
        let (id, cancel) = (request.id, CancellationToken::new());
        self.running().insert(id, cancel.clone());
        let (host, responses) = (Arc::clone(self), responses.clone());
        let answering = async move {
            let answer = cancel.run_until_cancelled(host.answer(&request.method, request.params)).await;
            host.running().remove(&id);
            if let Some(answer) = answer {
                // A program that has gone needs no answer.
                responses.send(wire::response(id, answer)).ok();
            }
        };
        let mut answering = Box::pin(answering);
        if futures::poll!(&mut answering).is_pending() {
            tokio::spawn(answering.map(drop));
        }
        Ok(())
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<u64, CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, method: &str, params: Value) -> Result<Value, Failure> {
        let Self { sessions, tools, requests, set_level, .. } = self;
        match method {
            "initialize" => Ok(json!({"version": env!("CARGO_PKG_VERSION")})),
            "log/set_level" => {
                let wire::Level { level } = read(params)?;
                set_level(&level);
                Ok(Value::Null)
            }
            "registry/open" => tools.open_registry(read(params)?),
            "registry/close" => tools.close_registry(read(params)?),
            "generate_mcp_sources" => tools.generate_mcp_sources(read(params)?).await,
            "apigen" => tools.apigen(read(params)?).await,
            "doctor" => tools.doctor(read(params)?).await,
            "session/start" => sessions.start(read(params)?, tools).await,
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
            _ => Err(Failure::no_method(method)),
        }
    }

    async fn stop(&self) {
        for (_, cancel) in self.running().drain() {
            cancel.cancel();
        }
        tokio::join!(self.sessions.stop_all(), self.tools.stop_all());
    }
}
