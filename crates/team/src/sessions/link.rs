//! The connection to the process that serves one session of a user, and the calls that are open on it.
//!
//! Messages that are no answers go out with a call that is open, since a client listens there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rmcp::model::{
    ClientRequest, ClientResult, CustomNotification, GetMeta as _, ProgressToken, ServerNotification,
    ServerRequest, ServerResult,
};
use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, RequestContext, RequestHandle, RunningService,
    serve_directly,
};
use rmcp::{ErrorData, RoleClient, RoleServer, Service};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::io::InspectReader;

use super::caller::{CallerMessage, CallerRequest};

/// The method by which the process names its session.
const SESSION: &str = "notifications/ipybox/session";
/// The method by which it learns how much was read.
const READ: &str = "notifications/ipybox/read";
/// The number of messages that wait for a caller.
const WAITING: usize = 64;

/// Called with the id of the session that a process has.
pub(crate) type SessionNamed = Box<dyn Fn(&str) + Send + Sync>;

/// A connection to the process of a session. Dropping it ends the process; the session goes on.
pub(crate) struct SessionLink {
    calls: Arc<ForwardedCalls>,
    /// The bytes that the session has sent.
    read: Arc<AtomicU64>,
    service: RunningService<RoleClient, LinkService>,
}

impl SessionLink {
    /// Speaks to a process. `client` gets what comes while no call is open.
    pub(crate) fn new(
        output: impl AsyncRead + Send + Unpin + 'static,
        input: impl AsyncWrite + Send + Unpin + 'static,
        client: Option<Peer<RoleServer>>,
        named: SessionNamed,
    ) -> Self {
        let calls = Arc::new(ForwardedCalls::default());
        let service = LinkService { calls: Arc::clone(&calls), client, named };
        let read = Arc::new(AtomicU64::new(0));
        let output = counted(output, Arc::clone(&read));
        Self { calls, read, service: serve_directly(service, (output, input), None) }
    }

    /// Ends the process in order: the client has read all answers.
    pub(crate) async fn close(self: Arc<Self>) {
        let bytes = self.read.load(Ordering::Relaxed);
        if !self.is_busy() && bytes > 0 {
            let read = CustomNotification::new(READ, Some(json!({"bytes": bytes})));
            if let Err(error) = self.peer().send_notification(read.into()).await {
                tracing::debug!(%error, "a session does not learn that its answers were read");
            }
        }
    }

    /// Whether the process has gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_transport_closed()
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Whether a call is open.
    pub(crate) fn is_busy(&self) -> bool {
        !self.calls.0.lock().is_empty()
    }

    /// Passes a request on, as the client has sent it.
    pub(crate) async fn call(
        &self,
        mut request: ClientRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<ForwardedCall, ErrorData> {
        let token = context.meta.get_progress_token();
        *request.get_meta_mut() = context.meta.clone();
        // Announced before it is sent: what belongs to it may come at once.
        let (sender, messages) = mpsc::channel(WAITING);
        let entry = self.calls.begin(sender);
        let sent = self.peer().send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let handle = sent.map_err(super::caller::error_data)?;
        entry.named(handle.progress_token.clone(), token);
        Ok(ForwardedCall { handle: Some(handle), messages, _entry: entry })
    }
}

/// A call that has not been answered. Dropping it cancels it.
pub(crate) struct ForwardedCall {
    handle: Option<RequestHandle<RoleClient>>,
    messages: mpsc::Receiver<CallerMessage>,
    _entry: ForwardedEntry,
}

/// An event for a caller.
pub(crate) enum CallerEvent {
    Message(CallerMessage),
    Answer(Box<Result<ServerResult, ErrorData>>),
}

impl ForwardedCall {
    /// The next event. Cancellation safe.
    pub(crate) async fn next(&mut self) -> CallerEvent {
        let Some(handle) = &mut self.handle else { return std::future::pending().await };
        tokio::select! {
            // Progress goes before the answer that it precedes.
            biased;
            Some(message) = self.messages.recv() => CallerEvent::Message(message),
            answer = &mut handle.rx => {
                self.handle = None;
                let answer = answer.unwrap_or(Err(rmcp::ServiceError::TransportClosed));
                CallerEvent::Answer(Box::new(answer.map_err(super::caller::error_data)))
            }
        }
    }
}

impl Drop for ForwardedCall {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            tokio::spawn(async move {
                if let Err(error) = handle.cancel(None).await {
                    tracing::debug!(%error, "a call could not be cancelled");
                }
            });
        }
    }
}

/// The calls that are open, the oldest first.
#[derive(Default)]
struct ForwardedCalls(Mutex<CallTable>);

#[derive(Default)]
struct CallTable {
    last: u64,
    calls: Vec<TableEntry>,
}

impl CallTable {
    fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

struct TableEntry {
    number: u64,
    messages: mpsc::Sender<CallerMessage>,
    /// The token of the request to the process.
    inner: Option<ProgressToken>,
    /// That of the client; `None` if it wants no progress.
    outer: Option<ProgressToken>,
}

/// An entry in the table, as long as this lives.
struct ForwardedEntry {
    calls: Arc<ForwardedCalls>,
    number: u64,
}

impl ForwardedEntry {
    fn named(&self, inner: ProgressToken, outer: Option<ProgressToken>) {
        let mut table = self.calls.0.lock();
        if let Some(entry) = table.calls.iter_mut().find(|entry| entry.number == self.number) {
            entry.inner = Some(inner);
            entry.outer = outer;
        }
    }
}

impl Drop for ForwardedEntry {
    fn drop(&mut self) {
        self.calls.0.lock().calls.retain(|entry| entry.number != self.number);
    }
}

impl ForwardedCalls {
    fn begin(self: &Arc<Self>, messages: mpsc::Sender<CallerMessage>) -> ForwardedEntry {
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        table.calls.push(TableEntry { number, messages, inner: None, outer: None });
        ForwardedEntry { calls: Arc::clone(self), number }
    }

    /// The caller that has waited for longest.
    fn oldest(&self) -> Option<mpsc::Sender<CallerMessage>> {
        self.0.lock().calls.first().map(|entry| entry.messages.clone())
    }

    /// The caller that wants to know of this progress, and its own token for it.
    fn wanting(&self, token: &ProgressToken) -> Option<(mpsc::Sender<CallerMessage>, ProgressToken)> {
        let table = self.0.lock();
        let entry = table.calls.iter().find(|entry| entry.inner.as_ref() == Some(token))?;
        Some((entry.messages.clone(), entry.outer.clone()?))
    }
}

/// Counts the bytes after the first line, which is the process's own.
fn counted<R: AsyncRead>(output: R, read: Arc<AtomicU64>) -> InspectReader<R, impl FnMut(&[u8])> {
    let mut is_first_line = true;
    InspectReader::new(output, move |bytes: &[u8]| {
        let mut rest = bytes;
        if is_first_line {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            rest = end.map_or(&[], |end| &bytes[end + 1..]);
            is_first_line = end.is_none();
        }
        read.fetch_add(rest.len() as u64, Ordering::Relaxed);
    })
}

/// Hears what comes from the process.
struct LinkService {
    calls: Arc<ForwardedCalls>,
    client: Option<Peer<RoleServer>>,
    named: SessionNamed,
}

impl LinkService {
    fn note_session(&self, notification: &CustomNotification) {
        let id = notification.params.as_ref().and_then(|params| params.get("id")?.as_str());
        if let Some(id) = id {
            (self.named)(id);
        }
    }
}

impl Service<RoleClient> for LinkService {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let cancelled = context.ct.clone();
        let Some(caller) = self.calls.oldest() else {
            let Some(client) = &self.client else {
                return Err(ErrorData::invalid_request("no client listens", None));
            };
            return CallerRequest::ask(client, request, &cancelled).await;
        };
        let (reply, replied) = oneshot::channel();
        let asked = CallerMessage::Request(Box::new(CallerRequest { request, cancelled, reply }));
        let gone = || ErrorData::invalid_request("the client has gone", None);
        caller.send(asked).await.map_err(|_| gone())?;
        replied.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn handle_notification(
        &self,
        mut notification: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        let caller = match &mut notification {
            ServerNotification::CustomNotification(custom) if custom.method == SESSION => {
                self.note_session(custom);
                return Ok(());
            }
            // Of a request, which has a token of its own.
            ServerNotification::CancelledNotification(_) => return Ok(()),
            ServerNotification::ProgressNotification(progress) => {
                let Some((caller, token)) = self.calls.wanting(&progress.params.progress_token) else {
                    return Ok(());
                };
                progress.params.progress_token = token;
                Some(caller)
            }
            _ => self.calls.oldest(),
        };
        match (caller, &self.client) {
            (Some(caller), _) => {
                // It fails if the caller has been answered meanwhile.
                caller.send(CallerMessage::Notification(Box::new(notification))).await.ok();
            }
            (None, Some(client)) => {
                if let Err(error) = client.send_notification(notification).await {
                    tracing::debug!(%error, "a notification could not be passed on");
                }
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn get_info(&self) -> rmcp::model::ClientConfig {
        rmcp::model::ClientConfig::default()
    }
}
