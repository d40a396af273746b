//! A live connection to one MCP server: calls and other requests, and its end. `lists` has what the server lists.

mod changes;
mod input;
mod keeper;
pub(super) mod lifecycle;
mod lists;
mod revisions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, ClientRequest, ErrorCode, GetPromptRequest,
    GetPromptRequestParams, GetPromptResponse, ListToolsRequest, ListToolsResult, ReadResourceRequest,
    ReadResourceRequestParams, ReadResourceResponse,
};
use rmcp::service::{Peer, RunningService};
use serde_json::{Map, Value};
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::changes::hear_of_changes;
use self::input::InputRounds;
use self::keeper::keep;
pub(crate) use self::lists::ListKind;
use crate::connections::mcp_client::client::ClientSide;
use crate::connections::mcp_client::failure::http_failure::{AccessRefusal, shown};
use crate::connections::mcp_client::failure::{LastWords, lost_session};
use crate::connections::mcp_client::requests::{AnsweredRequest, ExpectedAnswer, McpFailure, request};
use crate::connections::mcp_client::results::{self, ServerIdentity, ToolOutput};
use crate::connections::mcp_client::transport::ServerProcess;
use crate::ground::budget::{Lease, apart};
use crate::ground::text::Secrets;

/// The time that a server whose connection is lost may take to exit by itself, so that its exit status is its own.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// The code of MCP for headers that do not fit the request (2026-07-28).
const HEADER_MISMATCH: i32 = ErrorCode::HEADER_MISMATCH.0;
/// Timeout for the request that shows whether the server knows the session.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// The error for an unknown answer.
const UNKNOWN_FORM: &str = "the server's answer has an unknown form";

/// Whether the tools could be listed.
type ToolsListed = OnceCell<bool>;

/// A connection to one MCP server. Dropping it ends the server in the background; [`close`](Self::close) waits.
pub(crate) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) client: ClientSide,
    identity: ServerIdentity,
    secrets: Secrets,
    /// Whether the protocol's revision is one with `initialize`.
    has_handshake: bool,
    /// Whether the server is a child of ours.
    has_process: bool,
    /// Set when a request shows that the server is gone before the transport notices (HTTP).
    is_lost: AtomicBool,
    ignores_changes: AtomicBool,
    /// The next listing of tools for the headers of calls, which all calls share that are refused until then.
    listing: Mutex<Arc<ToolsListed>>,
    stop: CancellationToken,
    ended: watch::Receiver<Option<Arc<LastWords>>>,
    _stop_on_drop: DropGuard,
}

/// The result of a tool, the contents of a resource, a list or a prompt, with its memory lease.
#[derive(Debug)]
pub(crate) struct ReceivedResult {
    /// The output of the call.
    pub(crate) output: ToolOutput,
    /// Its weight in bytes.
    pub(crate) weight: usize,
    /// To be held as long as anything made of the output.
    pub(crate) lease: Lease,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The tool ran and failed. The text is the server's.
    #[error("{0}")]
    Tool(String),
    /// The server refused the call: no such tool, invalid arguments, an internal error.
    #[error("{message} (code {code})")]
    Protocol {
        /// The code of the JSON-RPC error.
        code: i32,
        /// The server's message.
        message: String,
    },
    /// The server is gone.
    #[error("{}{last_words}", reason.as_deref().unwrap_or("the server ended while the tool was called"))]
    Disconnected {
        /// Further details, if known.
        reason: Option<String>,
        /// Whether the server may have seen the call: if not, it is safe to call again.
        may_have_run: bool,
        /// The end of the server.
        last_words: LastWords,
    },
    /// The server refuses the credentials, and has not acted. The connection lives on.
    #[error("{0}")]
    Refused(AccessRefusal),
    /// The server answered with something that is not a tool's result.
    #[error("{reason}")]
    Unusable {
        /// The fault of its answer.
        reason: String,
    },
}

impl Connection {
    pub(super) fn new(
        client: ClientSide,
        service: RunningService<RoleClient, ClientSide>,
        process: Option<ServerProcess>,
        secrets: Secrets,
        stop: CancellationToken,
    ) -> Self {
        let peer = service.peer().clone();
        let identity = ServerIdentity::from_rmcp(peer.peer_info().as_deref(), &client.name);
        let (sender, ended) = watch::channel(None);
        let has_handshake = lifecycle::has_handshake(&peer);
        let has_process = process.is_some();
        // The keeper is stopped by `stop` and awaited through `ended`.
        tokio::spawn(keep(service, process, stop.clone(), sender, client.traced.session()));
        if !has_handshake {
            tokio::spawn(hear_of_changes(peer.clone(), Arc::clone(&client.state), stop.clone()));
        }
        let _stop_on_drop = stop.clone().drop_guard();
        Self {
            peer,
            client,
            identity,
            secrets,
            has_handshake,
            has_process,
            is_lost: AtomicBool::new(false),
            ignores_changes: AtomicBool::new(false),
            listing: Mutex::default(),
            stop,
            ended,
            _stop_on_drop,
        }
    }

    /// The server's identity.
    pub(crate) fn identity(&self) -> &ServerIdentity {
        &self.identity
    }

    /// Whether calls can be made. The end of a server over HTTP may show only at the next call.
    pub(crate) fn is_alive(&self) -> bool {
        // rmcp's `is_closed` stays false after the server's death.
        !self.peer.is_transport_closed()
            && !self.stop.is_cancelled()
            && !self.is_lost.load(Ordering::Relaxed)
            && self.ended.borrow().is_none()
    }

    /// Whether the server has said since the last look that its tools have changed.
    pub(crate) fn has_changed(&self) -> bool {
        self.client.state.has_changed.swap(false, Ordering::Relaxed)
            && !self.ignores_changes.load(Ordering::Relaxed)
    }

    /// From here on the tools count as unchanged.
    pub(crate) fn ignore_changes(&self) {
        self.ignores_changes.store(true, Ordering::Relaxed);
    }

    /// Calls `tool`. There is no deadline; dropping the future cancels the call at the server.
    ///
    /// # Errors
    /// [`CallError`] when the tool fails, the server refuses the call, or the server is gone.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ReceivedResult, CallError> {
        self.check_alive().await?;
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let call = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let AnsweredRequest { answer, weight, lease, mut operation } = self.request(call).await?;
        match answer {
            CallToolResponse::Complete(result) => {
                let read = apart(weight, move || results::read(result)).await.map_err(bug)?;
                let output = read.map_err(|text| {
                    operation.tool_fails();
                    CallError::Tool(self.secrets.clean(&text))
                })?;
                self.client.traced.result(&operation, &output);
                Ok(ReceivedResult { output, weight, lease })
            }
            CallToolResponse::Task(_) => {
                Err(unusable("the tool runs as a background task, which calls from code cannot follow"))
            }
            _ => Err(unusable(UNKNOWN_FORM)),
        }
    }

    /// Reads the resource at `uri`. There is no deadline; dropping the future cancels the request at the server.
    ///
    /// # Errors
    /// [`CallError`] when the server has no such resource, refuses the request, or is gone.
    pub(crate) async fn read_resource(&self, uri: &str) -> Result<ReceivedResult, CallError> {
        let reading = ReadResourceRequest::new(ReadResourceRequestParams::new(uri));
        let uri = uri.to_owned();
        let read = move |answer| match answer {
            ReadResourceResponse::Complete(result) => Ok(results::read_resource(result, &uri)),
            _ => Err(UNKNOWN_FORM),
        };
        self.output_of(ClientRequest::ReadResourceRequest(reading), read).await
    }

    /// Gets the messages of a prompt. There is no deadline; dropping the future cancels the request at the server.
    ///
    /// # Errors
    /// [`CallError`] when the server has no such prompt, refuses the request, or is gone.
    pub(crate) async fn get_prompt(
        &self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ReceivedResult, CallError> {
        let params = GetPromptRequestParams::new(name).with_arguments(arguments);
        let read = |answer| match answer {
            GetPromptResponse::Complete(result) => Ok(results::read_prompt(result)),
            _ => Err(UNKNOWN_FORM),
        };
        self.output_of(ClientRequest::GetPromptRequest(GetPromptRequest::new(params)), read).await
    }

    /// Makes a request; `read` makes the output of its answer, or says why there is none.
    async fn output_of<T: ExpectedAnswer>(
        &self,
        asked: ClientRequest,
        read: impl FnOnce(T) -> Result<ToolOutput, &'static str> + Send + 'static,
    ) -> Result<ReceivedResult, CallError> {
        self.check_alive().await?;
        let AnsweredRequest { answer, weight, lease, .. } = self.request(asked).await?;
        let output = apart(weight, move || read(answer)).await.map_err(bug)?.map_err(unusable)?;
        Ok(ReceivedResult { output, weight, lease })
    }

    /// Makes a request, with what the server needs for its answer.
    async fn request<T: ExpectedAnswer>(
        &self,
        mut asked: ClientRequest,
    ) -> Result<AnsweredRequest<T>, CallError> {
        let _working = self.client.state.begin();
        let mut rounds = InputRounds::default();
        let mut may_list = true;
        loop {
            // Earlier revisions of the protocol make no request again, and arguments may be large.
            let again = (!self.has_handshake).then(|| asked.clone());
            let listing = Arc::clone(&self.listing.lock());
            let answered = match request::<T>(&self.peer, &self.client.traced, asked).await {
                Ok(answered) => answered,
                Err(failure) => match again {
                    Some(same)
                        if matches!(failure, McpFailure::Answered { code: HEADER_MISMATCH, .. })
                            && std::mem::take(&mut may_list)
                            && self.has_listed(&listing).await =>
                    {
                        asked = same;
                        continue;
                    }
                    _ => return Err(self.judge(failure).await),
                },
            };
            let Some(needed) = answered.answer.input_required() else { return Ok(answered) };
            asked = again.ok_or_else(|| unusable(UNKNOWN_FORM))?;
            let supplied = rounds.supply(&self.client, needed, &mut asked).await;
            supplied.map_err(|reason| CallError::Unusable { reason: self.secrets.clean(&reason) })?;
        }
    }

    /// Has rmcp know the tools, for the headers that repeat arguments of calls (SEP-2243): a connection for calls begins
    /// without a list, and a server without sessions may have other tools later. The server has not looked at a call whose
    /// headers it refuses. `listing` is from before the call.
    async fn has_listed(&self, listing: &ToolsListed) -> bool {
        let list = || async {
            let is_listed = self.list_tools().await.is_ok();
            *self.listing.lock() = Arc::default();
            is_listed
        };
        *listing.get_or_init(list).await
    }

    pub(super) async fn check_alive(&self) -> Result<(), CallError> {
        if self.is_alive() {
            return Ok(());
        }
        let reason = Some("the server is no longer there".to_owned());
        let last_words = self.last_words().await;
        Err(CallError::Disconnected { reason, may_have_run: false, last_words })
    }

    /// Ends the connection and, if we started it, the server. Bounded in time; may be called at once and again.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        // An error means that the keeper is gone, and with it the process.
        self.ended.clone().wait_for(Option::is_some).await.ok();
    }

    /// Gives a dead connection up. A server over HTTP may still answer calls that were made before: it is closed after them.
    pub(crate) async fn give_up(self: Arc<Self>) {
        if self.has_process {
            self.close().await;
        }
    }

    /// Says whether the server has refused a request because it does not know the session: it says so, and the same to a
    /// request that changes nothing. Otherwise the words are a tool's, about a session of its own.
    async fn has_lost_session(&self, failure: &McpFailure) -> bool {
        let is_named = |failure: &McpFailure| failure.answer().is_some_and(lost_session::is_named);
        if self.has_process || !is_named(failure) {
            return false;
        }
        match self.refuses_all().await {
            Some(McpFailure::NotDelivered { .. }) => true,
            refusal => refusal.as_ref().is_some_and(is_named),
        }
    }

    /// Why the server refuses a request that changes nothing, if it does.
    async fn refuses_all(&self) -> Option<McpFailure> {
        let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
        let listed = request::<ListToolsResult>(&self.peer, &self.client.traced, list);
        timeout(SESSION_TIMEOUT, listed).await.ok()?.err()
    }

    /// Says whether a request would arrive, as far as one that changes nothing shows it. The end of a program shows by itself.
    pub(crate) async fn is_reached(&self) -> bool {
        if !self.has_process
            && let Some(failure) = self.refuses_all().await
        {
            self.judge(failure).await;
        }
        self.is_alive()
    }

    /// Turns a failed request into an error, and records that a connection is broken.
    pub(super) async fn judge(&self, mut failure: McpFailure) -> CallError {
        if self.has_lost_session(&failure).await {
            let reason =
                failure.answer().map(|said| format!("the server no longer knows the session: {said}"));
            failure = McpFailure::NotDelivered { reason: reason.unwrap_or_default() };
        }
        let (reason, may_have_run) = match failure {
            McpFailure::Answered { code, message } => {
                return CallError::Protocol { code, message: self.secrets.clean(&message) };
            }
            McpFailure::Refused(refusal) => return CallError::Refused(refusal),
            McpFailure::BadStatus { reason, .. } | McpFailure::Unusable { reason } => {
                return CallError::Unusable { reason: shown(&reason, &self.secrets) };
            }
            // A proxy may have cut the answer's stream. The server knows the session and has taken the call.
            McpFailure::Closed if !self.has_process && self.is_alive() => {
                let reason = Some("the connection broke before the server had answered".to_owned());
                let last_words = LastWords::default();
                return CallError::Disconnected { reason, may_have_run: true, last_words };
            }
            McpFailure::Closed => (None, true),
            McpFailure::NotDelivered { reason } => (Some(reason), false),
            McpFailure::Broken { reason } => (Some(reason), true),
        };
        self.is_lost.store(true, Ordering::Relaxed);
        let reason = reason.map(|reason| shown(&reason, &self.secrets));
        CallError::Disconnected { reason, may_have_run, last_words: self.last_words().await }
    }

    /// The end of the server of this lost connection, by itself or by us now.
    async fn last_words(&self) -> LastWords {
        if !self.has_process {
            return LastWords::default();
        }
        let mut ended = self.ended.clone();
        if timeout(EXIT_TIMEOUT, ended.wait_for(Option::is_some)).await.is_err() {
            self.close().await;
        }
        ended.borrow().as_deref().cloned().unwrap_or_default()
    }
}

/// Work on an answer has panicked.
fn bug(error: std::io::Error) -> CallError {
    CallError::Unusable { reason: error.to_string() }
}

fn unusable(reason: &str) -> CallError {
    CallError::Unusable { reason: reason.to_owned() }
}
