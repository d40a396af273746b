//! The connection to a remote kernel, reopened after a break, and shared by cells and calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use futures::{Sink, SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::{self, Message as Frame};

use super::super::Error;
use super::super::frames::{ARRIVAL_TIMEOUT, FREE_BYTES};
use super::super::jupyter::{self, JupyterChannels, JupyterServer, KernelId};
use super::super::message::{KernelMessage, MessageContent, RateLimit, ShownOutput};
use super::calls::{CallHandler, CallMessage, RemoteCalls};
use super::frames;
use super::parts::{KernelChannel, MessageParts, SUBPROTOCOL};
use crate::ground::budget::{OUTPUT, TimedLease};
use crate::ground::text::describe;

/// The number of messages that are queued before no more are read.
pub(super) const HEARD_CAPACITY: usize = 64;

/// The interval of pings to the server.
const PING: Duration = Duration::from_secs(10);
/// The time without any message after which the connection counts as broken: a lost network sends no error.
const SILENCE: Duration = Duration::from_secs(30);
/// The time that the network may take to accept a frame.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause before the first attempt to reopen it, and the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// The time that one attempt may take. Servers wait up to 60 seconds for a kernel before they accept.
const ATTEMPT: Duration = Duration::from_secs(75);
/// The time that reopening is tried before the kernel is reported as unreachable; attempts go on after that.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The interval of signs of life for the kernel. Seldom, so that a server which ends idle kernels can still do
/// so.
const ALIVE: Duration = Duration::from_secs(3 * 3600);

/// An event of a remote kernel.
#[derive(Debug)]
pub(super) enum RemoteEvent {
    Message(KernelMessage),
    /// A malformed message.
    Torn,
    /// It has been unreachable for a while.
    Disconnected(String),
    /// It has ended; the reason as text.
    Ended(String),
}

/// A request to a remote kernel.
#[derive(Debug)]
pub(super) enum RemoteRequest {
    /// To run code.
    Execute(MessageParts),
    /// Not to send that again after a reconnection: nobody waits for it any more.
    Forget,
    Other(MessageParts),
}

/// Whether there is a connection.
#[derive(Debug, Clone)]
pub(super) enum LinkState {
    Connected,
    /// Why not.
    Broken(String),
}

/// The task that owns the connection.
pub(super) struct RemoteLink {
    pub(super) server: Arc<JupyterServer>,
    pub(super) kernel: KernelId,
    /// The connection's name on the server, by which its output is kept while it is broken.
    pub(super) session: String,
    pub(super) requests: mpsc::UnboundedReceiver<RemoteRequest>,
    /// The newest request to run code: it, or its reply, may be lost with a connection. The kernel runs it
    /// once, however often it arrives, and answers each time.
    last_execution: Option<MessageParts>,
    /// The number of times that the connection has been opened again.
    connections: u32,
    pub(super) heard: mpsc::Sender<RemoteEvent>,
    pub(super) state: watch::Sender<LinkState>,
    pub(super) calls: RemoteCalls,
}

/// The end of a connection, or of the attempt to reopen it.
enum LinkEnd {
    /// It may be reopened.
    Broken(String),
    /// The kernel's handle was dropped.
    Dropped,
    /// The kernel has ended.
    Kernel(String),
}

#[derive(Deserialize)]
struct LinkHeader {
    msg_type: String,
    #[serde(default)]
    session: String,
}

#[derive(Deserialize)]
struct CommOpen {
    comm_id: String,
    target_name: String,
    data: CallMessage,
}

#[derive(Deserialize)]
struct PartReceived {
    call: String,
    part: usize,
}

#[derive(Deserialize)]
struct RestartReply {
    #[serde(default)]
    restart: bool,
}

#[derive(Deserialize)]
struct KernelStatus {
    execution_state: String,
}

impl RemoteLink {
    pub(super) fn new(
        server: Arc<JupyterServer>,
        kernel: KernelId,
        session: String,
        handler: Arc<dyn CallHandler>,
    ) -> (Self, mpsc::UnboundedSender<RemoteRequest>, mpsc::Receiver<RemoteEvent>, watch::Receiver<LinkState>)
    {
        let (sender, requests) = mpsc::unbounded_channel();
        let (heard, receiver) = mpsc::channel(HEARD_CAPACITY);
        let (state, states) = watch::channel(LinkState::Connected);
        let calls = RemoteCalls::new(handler);
        (
            Self {
                server,
                kernel,
                session,
                requests,
                last_execution: None,
                connections: 0,
                heard,
                state,
                calls,
            },
            sender,
            receiver,
            states,
        )
    }

    /// Opens a connection.
    pub(super) async fn open(&self) -> Result<JupyterChannels, jupyter::Error> {
        let config = frames::websocket();
        self.server.channels(&self.kernel, &self.session, SUBPROTOCOL, config).await
    }

    /// Forwards messages until the kernel has ended or its handle is dropped.
    pub(super) async fn run(mut self, mut channels: JupyterChannels) {
        let mut pause = FIRST_PAUSE;
        loop {
            let opened = Instant::now();
            let why = match self.converse(channels).await {
                LinkEnd::Dropped => return,
                LinkEnd::Kernel(words) => return self.report(RemoteEvent::Ended(words)).await,
                LinkEnd::Broken(why) => why,
            };
            pause = next_pause(pause, opened.elapsed());
            tracing::info!(why, "the connection to the remote kernel broke");
            self.state.send_replace(LinkState::Broken(why));
            channels = match self.reopen(pause).await {
                Ok(channels) => channels,
                Err(Some(words)) => return self.report(RemoteEvent::Ended(words)).await,
                Err(None) => return,
            };
            tracing::info!("the connection to the remote kernel is back");
            self.connections += 1;
            self.state.send_replace(LinkState::Connected);
        }
    }

    async fn report(&self, heard: RemoteEvent) {
        // Fails only if the kernel's handle was dropped.
        self.heard.send(heard).await.ok();
    }

    /// Reopens the connection. An error is the reason if the kernel ended meanwhile, or `None` if its handle
    /// was dropped.
    async fn reopen(&self, pause: Duration) -> Result<JupyterChannels, Option<String>> {
        let reporting = async {
            tokio::time::sleep(PATIENCE).await;
            let why = match &*self.state.borrow() {
                LinkState::Broken(why) => why.clone(),
                LinkState::Connected => String::new(),
            };
            self.report(RemoteEvent::Disconnected(why)).await;
            std::future::pending().await
        };
        tokio::select! {
            reopened = self.try_to_reopen(pause) => reopened.map_err(Some),
            never = reporting => never,
            () = self.heard.closed() => Err(None),
        }
    }

    /// Tries until the connection is open, or the server reports that the kernel is gone.
    async fn try_to_reopen(&self, mut pause: Duration) -> Result<JupyterChannels, String> {
        loop {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LAST_PAUSE);
            let attempt = async {
                self.server.check_kernel(&self.kernel).await?;
                self.open().await
            };
            let why = match tokio::time::timeout(ATTEMPT, attempt).await {
                Ok(Ok(channels)) => return Ok(channels),
                Ok(Err(error)) if error.is_end() => return Err(error.to_string()),
                Ok(Err(error)) => describe(&error),
                Err(_) => format!("no answer within {} seconds", ATTEMPT.as_secs()),
            };
            tracing::debug!(why, "no connection to the remote kernel yet");
            self.state.send_replace(LinkState::Broken(why));
        }
    }

    /// The messages that are to be sent after a reconnection: the newest request to run code once more, and what was
    /// requested meanwhile.
    fn queued(&mut self) -> Vec<MessageParts> {
        let mut queued = Vec::new();
        while let Ok(request) = self.requests.try_recv() {
            match request {
                RemoteRequest::Execute(parts) => self.last_execution = Some(parts),
                RemoteRequest::Forget => self.last_execution = None,
                RemoteRequest::Other(parts) => queued.push(parts),
            }
        }
        if let Some(execution) = &self.last_execution {
            queued.insert(0, execution.again(self.connections));
        }
        queued
    }

    /// Forwards messages while the connection lasts.
    async fn converse(&mut self, channels: JupyterChannels) -> LinkEnd {
        let JupyterChannels { socket, is_binary } = channels;
        let (sink, mut stream) = socket.split();
        let outgoing = Outgoing::new();
        let writing = outgoing.write(sink);
        tokio::pin!(writing);
        let say = |parts: &MessageParts| match frames::encode(parts, is_binary) {
            Ok(frame) => outgoing.push(frame),
            Err(error) => tracing::warn!(%error, "could not send a message to the remote kernel"),
        };
        let alive = MessageParts::request(KernelChannel::Control, "ipybox_alive", &json!({})).1;
        if self.connections > 0 {
            self.queued().iter().for_each(say);
            say(&alive);
        }
        let mut pings = tokio::time::interval(PING);
        // After a suspension, messages that have arrived are not read yet.
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut notices = tokio::time::interval_at(Instant::now() + ALIVE, ALIVE);
        let mut last_heard = Instant::now();
        let mut arrived = None;
        loop {
            let next = async {
                // Reserves room before reading: without it the kernel's output waits in the network.
                let permit = self.heard.reserve().await;
                if arrived.is_none() {
                    arrived = Some(Arrived::new(received(stream.next().await)));
                }
                let held =
                    OptionFuture::from(arrived.as_mut().and_then(|arrived| arrived.turn.as_mut())).await;
                (permit, arrived.take(), held.and_then(Result::ok))
            };
            tokio::select! {
                why = &mut writing => return LinkEnd::Broken(why),
                (permit, arrived, held) = next => {
                    let Ok(permit) = permit else { return LinkEnd::Dropped };
                    last_heard = Instant::now();
                    let frame = match arrived.map(|arrived| arrived.frame) {
                        Some(Ok(frame)) => frame,
                        Some(Err(why)) => return LinkEnd::Broken(why),
                        None => continue,
                    };
                    match sort(frame, is_binary, &self.session) {
                        // Until the queue is written, its answer may be on its way.
                        Sorted::Call(_, CallMessage::Waiting { .. }) if !outgoing.is_empty() => {}
                        Sorted::Call(id, message) => self.calls.take(id, message).iter().for_each(say),
                        Sorted::Received(PartReceived { call, part }) => self.calls.acknowledge(&call, part),
                        Sorted::Heard(RemoteEvent::Ended(words)) => return LinkEnd::Kernel(words),
                        Sorted::Heard(RemoteEvent::Message(message)) => {
                            permit.send(RemoteEvent::Message(KernelMessage { _held: held, ..message }));
                        }
                        Sorted::Heard(heard) => permit.send(heard),
                        Sorted::Nothing => {}
                    }
                }
                request = self.requests.recv() => match request {
                    Some(RemoteRequest::Execute(parts)) => {
                        say(&parts);
                        self.last_execution = Some(parts);
                    }
                    Some(RemoteRequest::Forget) => self.last_execution = None,
                    Some(RemoteRequest::Other(parts)) => say(&parts),
                    None => return LinkEnd::Dropped,
                },
                answers = self.calls.answered() => answers.iter().for_each(say),
                tick = pings.tick() => {
                    let is_late = tick.elapsed() > PING / 2;
                    if is_late || self.heard.capacity() == 0 {
                        // Reading was paused, so silence proves nothing.
                        last_heard = Instant::now();
                    }
                    let last_written = outgoing.last_progress().unwrap_or(last_heard);
                    if last_heard.max(last_written).elapsed() > SILENCE {
                        return LinkEnd::Broken(format!("nothing was heard for {} seconds", SILENCE.as_secs()));
                    }
                    outgoing.push(Frame::Ping(bytes::Bytes::new()));
                }
                _ = notices.tick() => say(&alive),
            }
        }
    }
}

/// The pause before a connection is opened again that has lasted so long. A proxy may close each at once.
fn next_pause(last: Duration, lasted: Duration) -> Duration {
    if lasted > last { FIRST_PAUSE } else { (2 * last).min(LAST_PAUSE) }
}

/// The queue of messages to write to a connection. Writing does not block reading: an answer of megabytes may
/// take minutes.
struct Outgoing {
    queue: Mutex<FrameQueue>,
    has_more: Notify,
}

struct FrameQueue {
    frames: VecDeque<Frame>,
    last_written: Instant,
}

impl Outgoing {
    fn new() -> Self {
        let queue = FrameQueue { frames: VecDeque::new(), last_written: Instant::now() };
        Self { queue: Mutex::new(queue), has_more: Notify::new() }
    }

    fn push(&self, frame: Frame) {
        self.queue.lock().frames.push_back(frame);
        self.has_more.notify_one();
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().frames.is_empty()
    }

    /// When the network last accepted a message while others waited. A message accepted with an empty queue
    /// may be in a buffer of ours.
    fn last_progress(&self) -> Option<Instant> {
        let queue = self.queue.lock();
        (!queue.frames.is_empty()).then_some(queue.last_written)
    }

    /// Writes queued messages until that fails.
    async fn write(&self, mut sink: impl Sink<Frame, Error = tungstenite::Error> + Unpin) -> String {
        loop {
            let frame = self.queue.lock().frames.front().cloned();
            let Some(frame) = frame else {
                self.has_more.notified().await;
                continue;
            };
            match tokio::time::timeout(SEND_TIMEOUT, sink.send(frame)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "the network takes nothing any more".to_owned(),
            }
            let mut queue = self.queue.lock();
            queue.frames.pop_front();
            queue.last_written = Instant::now();
        }
    }
}

/// The recipient of a message.
enum Sorted {
    Heard(RemoteEvent),
    Call(String, CallMessage),
    Received(PartReceived),
    Nothing,
}

/// The event that has been read from the connection; an error is why there will be no more.
fn received(frame: Option<Result<Frame, tungstenite::Error>>) -> Result<Frame, String> {
    match frame {
        Some(Ok(Frame::Close(Some(close)))) => Err(format!("the server closed it: {close}")),
        Some(Ok(Frame::Close(None))) => Err("the server closed it".to_owned()),
        Some(Ok(frame)) => Ok(frame),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("it ended".to_owned()),
    }
}

/// A frame that has arrived, and its turn for memory if it is long.
struct Arrived {
    frame: Result<Frame, String>,
    turn: Option<oneshot::Receiver<TimedLease>>,
}

impl Arrived {
    fn new(frame: Result<Frame, String>) -> Self {
        let length = frame.as_ref().map_or(0, Frame::len);
        let turn = (length > FREE_BYTES).then(|| OUTPUT.turn(2 * length, ARRIVAL_TIMEOUT));
        Self { frame, turn }
    }
}

fn sort(frame: Frame, is_binary: bool, session: &str) -> Sorted {
    let Some(parts) = frames::decode(frame, is_binary) else { return Sorted::Nothing };
    parts.and_then(|parts| sort_parts(&parts, session)).unwrap_or_else(|error| {
        tracing::debug!(%error, "ignored a message of the remote kernel");
        Sorted::Heard(RemoteEvent::Torn)
    })
}

fn sort_parts(parts: &MessageParts, session: &str) -> Result<Sorted, Error> {
    let header: LinkHeader = serde_json::from_slice(parts.header()).map_err(Error::Message)?;
    let ended = |words: &str| Ok(Sorted::Heard(RemoteEvent::Ended(words.to_owned())));
    match header.msg_type.as_str() {
        "comm_open" if parts.channel == KernelChannel::Iopub => {
            return Ok(match serde_json::from_slice::<CommOpen>(parts.content()) {
                Ok(open) if open.target_name == super::COMM_TARGET => Sorted::Call(open.comm_id, open.data),
                _ => Sorted::Nothing,
            });
        }
        "ipybox_answer_reply" => {
            return Ok(serde_json::from_slice(parts.content()).map_or(Sorted::Nothing, Sorted::Received));
        }
        // The only sign that another client has had the server end the kernel: the connection stays.
        "shutdown_reply" => {
            return match serde_json::from_slice(parts.content()) {
                Ok(RestartReply { restart: true }) => ended("somebody had its Jupyter server restart it"),
                _ => ended("somebody had its Jupyter server shut it down"),
            };
        }
        "status" => {
            let status = serde_json::from_slice(parts.content());
            match status.as_ref().map_or("", |KernelStatus { execution_state }| execution_state) {
                "dead" => return ended("its Jupyter server says that it is dead"),
                "restarting" | "autorestarting" => {
                    return ended("its Jupyter server says that its process ended, and restarted it");
                }
                _ => {}
            }
        }
        _ => {}
    }
    let KernelMessage { parent, mut content, .. } = parts.message()?;
    // The server's own messages carry our session's id.
    if header.session == session
        && let MessageContent::Shown(ShownOutput::Stream(text)) = &content
        && let Some(limit) = RateLimit::read(text)
    {
        content = MessageContent::Limited(limit);
    }
    Ok(Sorted::Heard(RemoteEvent::Message(KernelMessage::new(parent, content))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_last_no_longer_than_the_pause_before_them_are_opened_less_often() {
        let mut pause = FIRST_PAUSE;
        for _ in 0..10 {
            pause = next_pause(pause, Duration::from_millis(50));
        }
        assert_eq!(pause, LAST_PAUSE);
        assert_eq!(next_pause(pause, Duration::from_secs(60)), FIRST_PAUSE);
    }
}
