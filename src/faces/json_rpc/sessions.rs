//! Sessions: executors, kernels without tools, and the streams of their code.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::options::SessionOptions;
use super::requests::RpcRequests;
use super::table::NumberedTable;
use super::tools::RpcTools;
use super::wire::{RpcFailure, WireSeconds, result};
use crate::faces::library::{
    Code, CodeExecution, CodeExecutionChunk, CodeExecutionError, CodeExecutionEvent, CodeExecutionResult,
    CodeExecutor, KernelClient,
};
use crate::ground::telemetry::Context;
use crate::session;

/// The output that one event holds at most, apart from one chunk.
const EVENT_BYTES: usize = 64 * 1024;
/// The time that the rest of a line may take.
const LINE_WAIT: Duration = Duration::from_millis(5);

pub(super) struct RpcSessions {
    sessions: NumberedTable<RpcSession>,
    streams: NumberedTable<Arc<Mutex<RpcStream>>>,
    requests: Arc<RpcRequests>,
}

#[derive(Clone)]
enum RpcSession {
    Executor(Arc<CodeExecutor>),
    Kernel(Arc<KernelClient>),
}

struct RpcStream {
    execution: CodeExecution,
    /// Chunks that have been gathered.
    text: String,
    /// The event that came after them.
    next: Option<Event>,
}

type Event = Result<CodeExecutionEvent, CodeExecutionError>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartParams {
    session: u64,
    options: SessionOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneSession {
    session: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CopyParams {
    session: u64,
    /// The number of the copy.
    copy: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetParams {
    session: u64,
    /// The number of cells that are undone, if the kernel is not to be replaced.
    cells: Option<usize>,
    /// Or the id of the first of them.
    to: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneStream {
    stream: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunParams {
    session: u64,
    code: String,
    timeout: WireSeconds,
    #[serde(default)]
    chunks: bool,
    max_output_chars: Option<usize>,
    /// The number of its stream, if its events are wanted.
    stream: Option<u64>,
    /// The span in which the code runs, as `_meta` of MCP has it.
    #[serde(default)]
    context: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InstallParams {
    session: u64,
    #[serde(deserialize_with = "session::packages")]
    package: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeGrant {
    session: u64,
    id: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegisterParams {
    session: u64,
    server_name: String,
    server_params: Value,
}

impl RunParams {
    fn into_code(self) -> Code {
        let mut code = Code::new(self.code).timeout(self.timeout.0);
        if self.chunks {
            code = code.with_chunks();
        }
        match self.max_output_chars {
            Some(count) => code.max_output_chars(count),
            None => code,
        }
    }
}

impl RpcSessions {
    pub(super) fn new(requests: Arc<RpcRequests>) -> Self {
        Self { sessions: NumberedTable::new("session"), streams: NumberedTable::new("stream"), requests }
    }

    pub(super) async fn start(&self, start: StartParams, tools: &RpcTools) -> Result<Value, RpcFailure> {
        let StartParams { session: number, mut options } = start;
        let opening = self.sessions.begin(number)?;
        let session = if options.has_tools {
            let builder = options.executor(|registry| tools.registry(registry))?;
            RpcSession::Executor(Arc::new(builder.start().await?))
        } else {
            RpcSession::Kernel(Arc::new(options.kernel().start().await?))
        };
        let started = session.places();
        opening.put(session);
        Ok(started)
    }

    /// Starts a session as a copy of another one.
    pub(super) async fn copy(&self, copy: CopyParams) -> Result<Value, RpcFailure> {
        let opening = self.sessions.begin(copy.copy)?;
        let session = match self.sessions.get(copy.session)? {
            RpcSession::Executor(executor) => RpcSession::Executor(Arc::new(executor.copy().await?)),
            RpcSession::Kernel(kernel) => RpcSession::Kernel(Arc::new(kernel.copy().await?)),
        };
        let started = session.places();
        opening.put(session);
        Ok(started)
    }

    pub(super) async fn execute(&self, run: RunParams) -> Result<Value, RpcFailure> {
        let context = Context::of_meta(&run.context);
        let done = match self.sessions.get(run.session)? {
            RpcSession::Executor(executor) => context.around(executor.execute(run.into_code())).await,
            RpcSession::Kernel(kernel) => context.around(kernel.execute(run.into_code())).await,
        };
        Ok(result(&done?))
    }

    /// Begins to run code. Returns the first event of its stream.
    pub(super) async fn stream(&self, run: RunParams) -> Result<Value, RpcFailure> {
        let Some(number) = run.stream else { return Err(RpcFailure::closed("stream")) };
        let opening = self.streams.begin(number)?;
        let context = Context::of_meta(&run.context);
        let execution = match self.sessions.get(run.session)? {
            RpcSession::Executor(executor) => executor.stream(run.into_code()),
            RpcSession::Kernel(kernel) => kernel.stream(run.into_code()),
        };
        opening.put(Arc::new(Mutex::new(RpcStream { execution, text: String::new(), next: None })));
        // Its first poll queues the code.
        context.around(self.next(OneStream { stream: number })).await
    }

    /// The next event of a stream; nothing follows a result.
    pub(super) async fn next(&self, OneStream { stream: number }: OneStream) -> Result<Value, RpcFailure> {
        let stream = self.streams.get(number)?;
        let event = stream.lock().await.next().await;
        if !goes_on(event.as_ref()) {
            self.streams.take(number);
        }
        self.event(event)
    }

    /// Ends a stream; the code is cancelled if it runs.
    pub(super) fn close_stream(&self, OneStream { stream }: OneStream) -> Result<Value, RpcFailure> {
        self.streams.take(stream);
        Ok(Value::Null)
    }

    fn event(&self, event: Option<Event>) -> Result<Value, RpcFailure> {
        match event {
            Some(Ok(CodeExecutionEvent::ApprovalRequest(request))) => Ok(self.requests.hand_over(request)),
            Some(Ok(CodeExecutionEvent::Chunk(chunk))) => Ok(json!({"type": "chunk", "text": chunk.text})),
            Some(Ok(CodeExecutionEvent::Result(done))) => Ok(last_event(&done)),
            Some(Err(error)) => Err(error.into()),
            None => Err(RpcFailure::closed("stream")),
        }
    }

    /// Replaces the kernel; or undoes cells, and returns what remains of them.
    pub(super) async fn reset(
        &self,
        ResetParams { session, cells, to }: ResetParams,
    ) -> Result<Value, RpcFailure> {
        let session = self.sessions.get(session)?;
        Ok(match (cells, to) {
            (None, None) => json!(session.reset().await?),
            (Some(cells), None) => json!(session.undo(cells).await?),
            (None, Some(cell)) => json!(session.undo_to(&cell).await?),
            (Some(_), Some(_)) => {
                let why = "`cells` and `to` cannot be used together: pass one of them";
                return Err(RpcFailure::new("settings", why.to_owned()));
            }
        })
    }

    pub(super) fn cancel(&self, OneSession { session }: OneSession) -> Result<Value, RpcFailure> {
        match self.sessions.get(session)? {
            RpcSession::Executor(executor) => executor.cancel(),
            RpcSession::Kernel(kernel) => kernel.cancel(),
        }
        Ok(Value::Null)
    }

    pub(super) async fn install_package(&self, install: InstallParams) -> Result<Value, RpcFailure> {
        Ok(json!(self.executor(install.session)?.install_packages(&install.package).await?))
    }

    pub(super) async fn register_mcp_server(&self, register: RegisterParams) -> Result<Value, RpcFailure> {
        let RegisterParams { session, server_name, server_params } = register;
        Ok(json!(self.executor(session)?.register_mcp_server(&server_name, &server_params).await?))
    }

    /// The grants of a session, each with its text.
    pub(super) fn grants(&self, OneSession { session }: OneSession) -> Result<Value, RpcFailure> {
        let given = self.executor(session)?.grants();
        let written = given.iter().map(|given| {
            json!({"id": given.id, "left": given.left, "grant": &*given.grant, "text": given.grant.to_string()})
        });
        Ok(written.collect())
    }

    pub(super) fn revoke_grant(&self, RevokeGrant { session, id }: RevokeGrant) -> Result<Value, RpcFailure> {
        Ok(json!(self.executor(session)?.revoke_grant(id)))
    }

    fn executor(&self, session: u64) -> Result<Arc<CodeExecutor>, RpcFailure> {
        match self.sessions.get(session)? {
            RpcSession::Executor(executor) => Ok(executor),
            RpcSession::Kernel(_) => Err(RpcFailure::new("settings", "the kernel has no tools".to_owned())),
        }
    }

    pub(super) async fn stop(&self, OneSession { session }: OneSession) -> Result<Value, RpcFailure> {
        // One that has been stopped is stopped.
        if let Some(session) = self.sessions.take(session) {
            session.stop().await;
        }
        Ok(Value::Null)
    }

    pub(super) async fn stop_all(&self) {
        drop(self.streams.take_all());
        futures::future::join_all(self.sessions.take_all().iter().map(RpcSession::stop)).await;
    }
}

impl RpcSession {
    fn places(&self) -> Value {
        let (workspace, notebook) = match self {
            Self::Executor(executor) => (executor.working_dir(), executor.notebook()),
            Self::Kernel(kernel) => (kernel.working_dir(), None),
        };
        json!({"working_dir": workspace, "notebook": notebook})
    }

    async fn reset(&self) -> Result<(), CodeExecutionError> {
        match self {
            Self::Executor(executor) => executor.reset().await,
            Self::Kernel(kernel) => kernel.reset().await,
        }
    }

    async fn undo(&self, cells: usize) -> Result<Vec<String>, CodeExecutionError> {
        match self {
            Self::Executor(executor) => executor.undo(cells).await,
            Self::Kernel(kernel) => kernel.undo(cells).await,
        }
    }

    async fn undo_to(&self, cell: &str) -> Result<Vec<String>, CodeExecutionError> {
        match self {
            Self::Executor(executor) => executor.undo_to(cell).await,
            Self::Kernel(kernel) => kernel.undo_to(cell).await,
        }
    }

    async fn stop(&self) {
        match self {
            Self::Executor(executor) => executor.stop().await,
            Self::Kernel(kernel) => kernel.stop().await,
        }
    }
}

impl RpcStream {
    /// The next event. Chunks that come together are one, so that much output takes few messages, and a line is whole
    /// although Python writes its end apart. Cancellation safe.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.text.is_empty() {
                let event = match self.next.take() {
                    None => self.execution.next().await,
                    event => event,
                };
                match event {
                    Some(Ok(CodeExecutionEvent::Chunk(chunk))) => self.text = chunk.text,
                    event => return event,
                }
            }
            match self.more().await {
                Some(Ok(CodeExecutionEvent::Chunk(more))) => self.text.push_str(&more.text),
                event => {
                    self.next = event;
                    let text = std::mem::take(&mut self.text);
                    return Some(Ok(CodeExecutionEvent::Chunk(CodeExecutionChunk { text })));
                }
            }
        }
    }

    /// The event that follows `text`, if it comes soon and there is room for it.
    async fn more(&mut self) -> Option<Event> {
        if self.text.len() >= EVENT_BYTES {
            return None;
        }
        let wait = if self.text.ends_with('\n') { Duration::ZERO } else { LINE_WAIT };
        // The end needs not be kept: the execution returns it again.
        tokio::time::timeout(wait, self.execution.next()).await.ok().flatten()
    }
}

/// Whether something follows an event.
fn goes_on(event: Option<&Event>) -> bool {
    matches!(event, Some(Ok(CodeExecutionEvent::ApprovalRequest(_) | CodeExecutionEvent::Chunk(_))))
}

fn last_event(done: &CodeExecutionResult) -> Value {
    let mut event = Map::from_iter([("type".to_owned(), json!("result"))]);
    if let Value::Object(members) = result(done) {
        event.extend(members);
    }
    Value::Object(event)
}
