//! Approval over a WebSocket: approval requests of this tool server go to one client in another process.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use super::wire::{self, WireFault};
use crate::approval::{ApprovalQueue, ApprovalRequest, Approver, Gate};

/// The longest message of a client: answers are short.
const MESSAGE_LIMIT_BYTES: usize = 64 * 1024;
/// The number of approval requests that a client has at the same time; more wait, and their timeouts have not begun.
const OPEN_QUESTIONS: usize = 256;
/// The time that a client may wait for the earlier one to disconnect.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a client may leave a message unread, or a close frame unanswered, before it counts as gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// A client that lets two pings in a row go unanswered is gone.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The refusal if approval is needed and no client is connected.
const NO_CLIENT: &str = "no approval client is connected to the tool server";

/// The channel to which approval clients connect.
pub(super) struct ApprovalChannel {
    gate: Arc<Gate>,
    /// One permit, because two clients could contradict one another.
    slot: Arc<Semaphore>,
    stop: CancellationToken,
    ping_interval: Duration,
}

/// The one connected client: as long as this lives, approval requests go to its queue.
struct ApproverSlot {
    gate: Arc<Gate>,
    /// Keeps the queue open; the gate's own handle is replaced when the client leaves.
    _queue: Arc<ApprovalQueue>,
    questions: mpsc::Receiver<ApprovalRequest>,
    _place: OwnedSemaphorePermit,
}

/// A connected client, and its approval requests. Dropping it rejects them.
struct ChannelClient {
    socket: WebSocket,
    slot: ApproverSlot,
    open: HashMap<String, ApprovalRequest>,
    /// Whether anything was received since the last ping.
    is_heard: bool,
}

/// Why a client is gone, or has to go.
#[derive(Debug, thiserror::Error)]
enum Gone {
    #[error("it left")]
    Left,
    #[error("its connection broke")]
    Broken(#[source] axum::Error),
    #[error("it does not read")]
    Deaf,
    #[error("it answers no pings")]
    Silent,
    #[error("the tool server stops")]
    Stopped,
}

impl ApprovalChannel {
    /// A channel without a client: calls that need approval fail until one connects.
    pub(super) fn new(gate: Arc<Gate>, stop: CancellationToken) -> Self {
        gate.set_approver(Approver::Nobody(NO_CLIENT));
        Self { gate, slot: Arc::new(Semaphore::new(1)), stop, ping_interval: PING_INTERVAL }
    }

    /// Accepts a client. It is the approver before it gets the response; if another client is connected, it
    /// is refused with the close code 1008.
    pub(super) async fn enter(&self, upgrade: WebSocketUpgrade) -> Response {
        let upgrade = upgrade.max_message_size(MESSAGE_LIMIT_BYTES).max_frame_size(MESSAGE_LIMIT_BYTES);
        let place = timeout(SLOT_TIMEOUT, Arc::clone(&self.slot).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            tracing::warn!("a second approval client was refused");
            return upgrade.on_upgrade(|socket| {
                farewell(socket, close_code::POLICY, "another approval client is connected")
            });
        };
        let slot = ApproverSlot::take(Arc::clone(&self.gate), place);
        let stop = self.stop.clone();
        let ping_interval = self.ping_interval;
        // The task that this starts owns the slot and ends with `stop`; `stopped` waits for it.
        upgrade.on_upgrade(move |socket| ChannelClient::new(socket, slot).attend(stop, ping_interval))
    }

    /// Waits until the client has gone, after `stop` was cancelled.
    pub(super) async fn stopped(&self) {
        if timeout(FAREWELL_TIMEOUT * 2, self.slot.acquire()).await.is_err() {
            tracing::debug!("the approval client did not take its leave");
        }
    }

    /// The number of approval requests that wait for the client; `None` without a client.
    pub(super) fn waiting(&self) -> Option<usize> {
        match self.gate.approver() {
            Approver::User(queue) => Some(*queue.waiting().borrow()),
            Approver::Nobody(_) | Approver::Attached(..) | Approver::Consent => None,
        }
    }
}

impl ApproverSlot {
    fn take(gate: Arc<Gate>, place: OwnedSemaphorePermit) -> Self {
        let (queue, questions) = ApprovalQueue::new();
        gate.set_approver(Approver::User(Arc::clone(&queue)));
        Self { gate, _queue: queue, questions, _place: place }
    }
}

impl Drop for ApproverSlot {
    fn drop(&mut self) {
        self.gate.set_approver(Approver::Nobody(NO_CLIENT));
    }
}

impl ChannelClient {
    fn new(socket: WebSocket, slot: ApproverSlot) -> Self {
        Self { socket, slot, open: HashMap::new(), is_heard: true }
    }

    async fn attend(mut self, stop: CancellationToken, ping_interval: Duration) {
        tracing::info!("an approval client is connected");
        let Err(gone) = self.converse(&stop, ping_interval).await;
        tracing::info!(
            why = crate::ground::text::describe(&gone),
            open = self.open.len(),
            "the approval client is gone"
        );
        self.open.clear();
        let Self { socket, slot, .. } = self;
        if let Gone::Stopped = gone {
            farewell(socket, close_code::AWAY, "the tool server has been stopped").await;
        }
        drop(slot);
    }

    async fn converse(
        &mut self,
        stop: &CancellationToken,
        ping_interval: Duration,
    ) -> Result<std::convert::Infallible, Gone> {
        let mut pings = interval_at(Instant::now() + ping_interval, ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let has_room = self.open.len() < OPEN_QUESTIONS;
            tokio::select! {
                frame = self.socket.recv() => match frame {
                    Some(Ok(message)) => self.hear(message).await?,
                    Some(Err(error)) => return Err(Gone::Broken(error)),
                    None => return Err(Gone::Left),
                },
                Some(request) = self.slot.questions.recv(), if has_room => self.ask(request).await?,
                id = withdrawn(&mut self.open) => {
                    self.open.remove(&id);
                    self.send(Message::text(wire::withdrawn(&id))).await?;
                }
                _ = pings.tick() => {
                    if !std::mem::take(&mut self.is_heard) {
                        return Err(Gone::Silent);
                    }
                    self.send(Message::Ping(bytes::Bytes::new())).await?;
                }
                () = stop.cancelled() => return Err(Gone::Stopped),
            }
        }
    }

    async fn ask(&mut self, request: ApprovalRequest) -> Result<(), Gone> {
        let id = uuid::Uuid::new_v4().to_string();
        let question = match wire::question(&id, request.action()) {
            Ok(question) => question,
            Err(error) => {
                // Dropping the request rejects it.
                tracing::error!(%error, "a question could not be written");
                return Ok(());
            }
        };
        request.hand_out();
        self.open.insert(id, request);
        self.send(Message::text(question)).await
    }

    async fn hear(&mut self, message: Message) -> Result<(), Gone> {
        self.is_heard = true;
        let fault = match message {
            Message::Text(text) => self.judge(&text).err(),
            Message::Binary(_) => Some(WireFault::not_text()),
            // The library answers pings; the stream ends after a close frame.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => None,
        };
        match fault {
            Some(fault) => {
                tracing::debug!(?fault, "a message of the approval client is of no use");
                self.send(Message::text(fault.to_message())).await
            }
            None => Ok(()),
        }
    }

    fn judge(&mut self, text: &Utf8Bytes) -> Result<(), WireFault> {
        let (id, reply) = wire::read_answer(text)?;
        match self.open.remove(&id) {
            Some(request) => request.reply(reply).then_some(()).ok_or_else(|| WireFault::not_open(id)),
            None => Err(WireFault::not_open(id)),
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        let sent = timeout(SEND_TIMEOUT, self.socket.send(message)).await;
        sent.map_err(|_| Gone::Deaf)?.map_err(Gone::Broken)
    }
}

/// The id of an approval request that has been withdrawn.
async fn withdrawn(open: &mut HashMap<String, ApprovalRequest>) -> String {
    std::future::poll_fn(|context: &mut Context<'_>| {
        let closed = open.iter_mut().find_map(|(id, request)| {
            let is_closed = request.poll_closed(context).is_ready();
            is_closed.then(|| id.clone())
        });
        closed.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Sends why the connection ends, and waits a moment for the client's close frame.
async fn farewell(mut socket: WebSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
    let saying = async {
        if socket.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    };
    if timeout(FAREWELL_TIMEOUT, saying).await.is_err() {
        tracing::debug!("an approval client did not answer the farewell");
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use axum::Router;
    use axum::extract::State;
    use axum::routing::get;
    use futures::StreamExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_tungstenite::client_async;
    use tokio_tungstenite::tungstenite;

    use super::*;
    use crate::approval::{Action, ApprovalEffect, ApprovalPolicy, Audit, StandingAnswers, Target};

    const PATIENCE: Duration = Duration::from_secs(300);

    /// A channel that pings every two seconds, and its address.
    async fn channel() -> io::Result<(Arc<ApprovalChannel>, std::net::SocketAddr)> {
        let gate = Gate::new(
            ApprovalPolicy::always(ApprovalEffect::Ask),
            StandingAnswers::default(),
            PATIENCE,
            Audit::off(),
        );
        let mut channel = ApprovalChannel::new(Arc::new(gate), CancellationToken::new());
        channel.ping_interval = Duration::from_secs(2);
        let channel = Arc::new(channel);
        let route = get(async |State(channel): State<Arc<ApprovalChannel>>, upgrade: WebSocketUpgrade| {
            channel.enter(upgrade).await
        });
        let router = Router::new().route("/", route).with_state(Arc::clone(&channel));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(axum::serve(listener, router).into_future());
        Ok((channel, address))
    }

    async fn denial(gate: &Gate) -> String {
        let action = Action::new("a".to_owned(), "b".to_owned(), serde_json::Map::new(), Target::Kernel);
        let decided = timeout(PATIENCE, gate.decide_for_code(action)).await.unwrap();
        decided.err().expect("it is denied").to_string()
    }

    #[tokio::test]
    async fn a_client_that_does_not_answer_pings_is_gone_and_its_questions_are_rejected() {
        let (channel, address) = channel().await.unwrap();
        assert!(denial(&channel.gate).await.contains("no approval client is connected"));
        let stream = TcpStream::connect(address).await.unwrap();
        let (silent, _) = client_async(format!("ws://{address}/"), stream).await.unwrap();
        assert_eq!(channel.waiting(), Some(0));
        assert!(denial(&channel.gate).await.contains("was rejected"));
        assert_eq!(channel.waiting(), None);
        drop(silent);
    }

    #[tokio::test]
    async fn a_client_that_answers_pings_stays() {
        let (channel, address) = channel().await.unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut client, _) = client_async(format!("ws://{address}/"), stream).await.unwrap();
        for _ in 0..2 {
            let message = timeout(PATIENCE, client.next()).await.unwrap().unwrap().unwrap();
            assert!(matches!(message, tungstenite::Message::Ping(_)), "{message}");
        }
        assert_eq!(channel.waiting(), Some(0));
        channel.stop.cancel();
        let message = timeout(PATIENCE, client.next()).await.unwrap().unwrap().unwrap();
        let tungstenite::Message::Close(Some(frame)) = message else { panic!("{message}") };
        assert_eq!(u16::from(frame.code), 1001);
        channel.stopped().await;
        assert_eq!(channel.waiting(), None);
    }
}
