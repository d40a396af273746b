//! A kernel of our own, beside us or in a sandbox: its socket, its pipe, its process.
//!
//! `ipybox_host.py` is the kernel side. Code in the kernel may have written everything read from it: all of
//! it is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedWriteHalf, pipe};
use tokio::time::Instant;

use super::death::DeathManner;
use super::endpoints::{KernelEndpoints, READ_BYTES, passed_on, read_rest};
use super::frames::{FrameLease, FrameReader, KernelFrame, framed};
use super::holder::{HolderNews, KernelHolder};
use super::launch::KernelProcess;
use super::message::{KernelMessage, MessageContent, ShownOutput};
use super::output::{OutputParser, OutputPiece, new_mark};
use super::{Error, ExecuteRequest, KernelDeath, KernelEvent, KernelGround, KernelLaunch, KernelLimits};
use crate::ground::budget::JsonScan;
use crate::ground::process::HeldLimits;
use crate::kernels::pod::PodControl;

/// The bytes of messages that are kept whose positions have not been read yet, before the last of them. The kernel sends a
/// message and its position at once, so there are few.
const PARKED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The time to wait for a message whose position has been read. It was sent before, so it has arrived unless
/// code has forged the position.
const MESSAGE_WAIT: Duration = Duration::from_secs(1);
/// The time that a sleeping kernel may take to answer: its memory may be on a disk.
const AWAKEN_TIMEOUT: Duration = Duration::from_secs(20);
/// The number of characters of the kernel's output before its first cell that are reported if it does not start.
const LAST_WORDS_CHARS: usize = 4000;

/// A kernel of our own. Dropping it kills it and all that it started.
pub(crate) struct OwnKernel {
    holder: KernelHolder,
    limits: KernelLimits,
    held: Arc<HeldLimits>,
    /// The number of times that the session had run out of disk before, until it does so again.
    overruns: Option<u64>,
    /// Sentences about what the session had run out of at the end.
    exhausted: Vec<String>,
    socket: OwnedWriteHalf,
    /// Bytes that the socket has not accepted yet.
    unsent: BytesMut,
    messages: FrameReader,
    pipe: pipe::Receiver,
    output: OutputParser,
    /// Messages whose positions in the output have not been read yet.
    parked: BTreeMap<u64, UnplacedMessage>,
    parked_bytes: usize,
    /// A position that has been read before its message, and the deadline for that message.
    awaited: Option<(u64, Instant)>,
    /// Messages to return next.
    next: VecDeque<KernelMessage>,
    /// The cell whose output is read.
    cell: Option<String>,
    /// The output of the process before its first cell.
    first_words: String,
    /// Whether code was sent whose reply has not come.
    is_running: bool,
    end: Option<DeathManner>,
    /// Whether no process can write output any more.
    is_pipe_closed: bool,
}

/// A message as it comes from the kernel.
#[derive(Deserialize)]
struct KernelEnvelope<'a> {
    #[serde(rename = "type")]
    kind: String,
    cell: String,
    number: u64,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// A message whose position has not been read yet, its size, and the moment until which a long one waits for its position.
struct UnplacedMessage {
    message: KernelMessage,
    size: usize,
    until: Option<Instant>,
}

impl OwnKernel {
    /// Starts a kernel on its `ground`, and waits until it runs code.
    pub(super) async fn start(launch: &KernelLaunch, ground: KernelGround<'_>) -> Result<Self, Error> {
        let starting = async {
            let mut kernel = Self::open(launch, ground)?;
            kernel.welcomed().await?;
            Ok(kernel)
        };
        tokio::time::timeout(launch.timeout, starting)
            .await
            .unwrap_or(Err(Error::StartTimeout(launch.timeout)))
    }

    /// Waits until it runs code.
    pub(super) async fn welcomed(&mut self) -> Result<(), Error> {
        loop {
            match self.next().await? {
                KernelEvent::Message(KernelMessage { content: MessageContent::Welcome, .. }) => return Ok(()),
                KernelEvent::Died(death) => return Err(Error::DiedStarting(death)),
                KernelEvent::Message(_) | KernelEvent::Torn | KernelEvent::Disconnected(_) => {}
            }
        }
    }

    fn open(launch: &KernelLaunch, ground: KernelGround<'_>) -> Result<Self, Error> {
        let KernelEndpoints { socket, pipe, their_socket, their_pipe } =
            KernelEndpoints::open().map_err(Error::Files)?;
        let configuration = launch.configuration(new_mark(), matches!(ground, KernelGround::Sandbox(_)));
        let holder = match ground {
            KernelGround::Beside => KernelHolder::Us(
                KernelProcess::start(&launch.program, &launch.held.entrance(), their_socket, their_pipe)
                    .map_err(|source| Error::Spawn { python: launch.program.python.clone(), source })?,
            ),
            KernelGround::Sandbox(sandbox) => {
                let started = sandbox.start_kernel(launch.program.clone(), their_socket, their_pipe);
                KernelHolder::Sandbox(started.map_err(|error| Error::Connection(Box::new(error)))?)
            }
            KernelGround::Pod(pod) => {
                // The pod sends it on.
                let configuration = serde_json::to_value(&configuration).map_err(Error::Message)?;
                let environment = launch.program.environment.clone();
                let started = pod.start_kernel(environment, configuration, their_socket, their_pipe);
                KernelHolder::Pod(Box::new(started.map_err(|error| Error::Connection(Box::new(error)))?))
            }
        };
        let held = Arc::clone(&launch.held);
        let mut kernel = Self::new(holder, launch.limits, held, &configuration.mark, socket, pipe);
        if !matches!(ground, KernelGround::Pod(_)) {
            kernel.request("configure", "", &json!(configuration))?;
        }
        Ok(kernel)
    }

    /// The host's side of a kernel that marks its output with `mark`.
    pub(super) fn new(
        holder: KernelHolder,
        limits: KernelLimits,
        held: Arc<HeldLimits>,
        mark: &str,
        socket: UnixStream,
        pipe: pipe::Receiver,
    ) -> Self {
        let (read, write) = socket.into_split();
        Self {
            holder,
            limits,
            overruns: Some(held.overruns()),
            held,
            exhausted: Vec::new(),
            socket: write,
            unsent: BytesMut::new(),
            messages: FrameReader::new(read),
            pipe,
            output: OutputParser::new(mark),
            parked: BTreeMap::new(),
            parked_bytes: 0,
            awaited: None,
            next: VecDeque::new(),
            cell: None,
            first_words: String::new(),
            is_running: false,
            end: None,
            is_pipe_closed: false,
        }
    }

    /// Sends code to be run and returns the id that its messages will carry.
    pub(super) fn execute(&mut self, request: &ExecuteRequest) -> Result<String, Error> {
        if let Some(manner) = self.has_ended()? {
            return Err(Error::Ended(self.death(manner)));
        }
        let id = uuid::Uuid::new_v4().simple().to_string();
        let content = json!({
            "code": request.code(),
            "store_history": request.store_history,
            "has_views": request.has_views,
        });
        self.request("execute_request", &id, &content)?;
        self.is_running = true;
        Ok(id)
    }

    fn has_ended(&mut self) -> Result<Option<DeathManner>, Error> {
        if self.end.is_some() { Ok(self.end.clone()) } else { self.holder.has_ended() }
    }

    /// Whether the kernel has ended for certain, so that all its output has been read. When the process that made its
    /// sandbox ends, the kernel may run on for a moment; once the pipe is closed, it does not.
    pub(super) fn has_said_all(&self) -> bool {
        let is_gone = self.holder.is_gone() || self.is_pipe_closed;
        self.end.is_some() && is_gone
    }

    /// Sends a request as far as the socket takes it; [`next`](Self::next) sends the rest. The kernel reads nothing while
    /// its code runs, and code may keep it from reading for longer. One that runs no code is handled before more code
    /// runs; its answer, if any, carries `id`.
    pub(super) fn request(&mut self, kind: &str, id: &str, content: &Value) -> Result<(), Error> {
        self.unsent.extend_from_slice(&framed(kind, id, content)?);
        self.send_some();
        Ok(())
    }

    /// The limits that it was started with.
    pub(super) fn limits(&self) -> KernelLimits {
        self.limits
    }

    /// The limits around its session, which hold for its branches too.
    #[cfg(target_os = "linux")]
    pub(super) fn held(&self) -> Arc<HeldLimits> {
        Arc::clone(&self.held)
    }

    /// Has a state take the place of its origin.
    pub(super) async fn awaken(&mut self) -> Result<(), Error> {
        self.overruns = Some(self.held.overruns());
        self.request("awaken", "", &json!({}))?;
        tokio::time::timeout(AWAKEN_TIMEOUT, self.welcomed())
            .await
            .unwrap_or(Err(Error::StartTimeout(AWAKEN_TIMEOUT)))
    }

    /// Its process, if it is a branch.
    pub(super) fn process(&self) -> Option<u32> {
        self.holder.branch_process()
    }

    /// Its control, if it is in a pod.
    #[cfg(target_os = "linux")]
    pub(super) fn in_pod(&self) -> Option<&PodControl> {
        match &self.holder {
            KernelHolder::Pod(control) => Some(control),
            _ => None,
        }
    }

    /// Sends a request of which the first byte carries descriptors.
    #[cfg(target_os = "linux")]
    pub(super) async fn request_with(
        &mut self,
        kind: &str,
        id: &str,
        content: &Value,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Error> {
        let request = framed(kind, id, content)?;
        // What waits to be sent would come first.
        let is_free = self.unsent.is_empty();
        let sent = if is_free { passed_on(self.socket.as_ref(), &request, descriptors).await } else { Ok(0) };
        match sent {
            Ok(0) => Err(Error::Connection("the kernel does not read its requests".into())),
            Ok(sent) => {
                self.unsent.extend_from_slice(&request[sent..]);
                Ok(())
            }
            Err(error) => Err(Error::Connection(Box::new(error))),
        }
    }

    fn send_some(&mut self) {
        match self.socket.try_write(&self.unsent) {
            Ok(written) => drop(self.unsent.split_to(written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // The kernel has ended, which `next` reports.
                tracing::debug!(%error, "could not send to the kernel");
                self.unsent.clear();
            }
        }
    }

    /// The next message or the kernel's end. Cancellation safe.
    pub(super) async fn next(&mut self) -> Result<KernelEvent, Error> {
        loop {
            if let Some(message) = self.next_message() {
                return Ok(KernelEvent::Message(message));
            }
            if let Some(manner) = self.end.clone() {
                return Ok(KernelEvent::Died(self.death(manner)));
            }
            self.read().await?;
        }
    }

    /// Reads more, or notices the end.
    async fn read(&mut self) -> Result<(), Error> {
        let has_room = self.has_room();
        let overdue = self.parked.values().filter_map(|said| said.until).min();
        self.output.buffer().reserve(READ_BYTES);
        tokio::select! {
            frame = self.messages.next(), if has_room => match frame {
                Ok(Some(frame)) => self.take_frame(frame),
                // It is too long, or no message.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(Error::Connection(Box::new(error)));
                }
                Err(_) | Ok(None) => self.end_without_connection().await?,
            },
            read = self.pipe.read_buf(self.output.buffer()), if self.awaited.is_none() => {
                if read.map_err(Error::Files)? == 0 {
                    self.is_pipe_closed = true;
                    self.end_without_connection().await?;
                }
            }
            () = until(self.awaited.map(|(_, until)| until)) => self.awaited = None,
            () = overrun(&self.held, self.overruns) => {
                self.overruns = None;
                self.holder.signal(Signal::KILL);
            }
            () = until(overdue) => {
                let first = self.take_parked();
                self.next.extend(first);
            }
            written = self.socket.writable(), if !self.unsent.is_empty() => {
                written.map_err(Error::Files)?;
                self.send_some();
            }
            news = self.holder.news() => match news? {
                HolderNews::Signalled => {
                    self.next.push_back(KernelMessage::new(None, MessageContent::InterruptReply));
                }
                HolderNews::Ended(manner) => self.end_with(manner),
            }
        }
        Ok(())
    }

    /// Records the end, and reads the remaining bytes.
    fn end_with(&mut self, manner: DeathManner) {
        self.end = Some(manner);
        self.exhausted = self.held.causes_of_death();
        // Not by way of the runtime, which may not have noticed yet that there is something.
        self.is_pipe_closed |= read_rest(&self.pipe, self.output.buffer());
        let rest = self.messages.rest(|socket, rest| {
            read_rest(socket.as_ref(), rest);
        });
        rest.into_iter().for_each(|frame| self.take_frame(frame));
    }

    /// Keeps a message until its position has been read, or says that it was left out.
    fn take_frame(&mut self, frame: KernelFrame) {
        match frame {
            KernelFrame::Whole(bytes, lease) => self.park(&bytes, lease),
            KernelFrame::LeftOut(length) => {
                let megabytes = length.div_ceil(1_000_000);
                let note =
                    format!("\n[{megabytes} MB of output are left out: they did not arrive in a minute]\n");
                let content = MessageContent::Shown(ShownOutput::Stream(note));
                self.next.push_back(KernelMessage::new(self.cell.clone(), content));
            }
        }
    }

    /// Waits for the end of the process after the connection has failed: usually that end is the cause.
    async fn end_without_connection(&mut self) -> Result<(), Error> {
        let manner = self.holder.end_without_connection().await?;
        self.end_with(manner);
        Ok(())
    }

    /// Keeps a message until its position has been read.
    fn park(&mut self, bytes: &[u8], lease: Option<FrameLease>) {
        let mut scan = JsonScan::default();
        scan.read(bytes);
        if let Some(excess) = scan.excess() {
            return tracing::debug!(%excess, "ignored a message of the kernel");
        }
        let read =
            serde_json::from_slice::<KernelEnvelope<'_>>(bytes).map_err(Error::Message).and_then(|frame| {
                let content = MessageContent::read(&frame.kind, b"{}", frame.content.get().as_bytes())?;
                Ok((frame.number, KernelMessage::new(Some(frame.cell), content)))
            });
        match read {
            Ok((number, message)) => {
                let size = bytes.len();
                let until = lease.as_ref().map(|lease| lease.until);
                let message = KernelMessage { _held: lease.map(|lease| lease.held), ..message };
                let replaced = self.parked.insert(number, UnplacedMessage { message, size, until });
                self.parked_bytes += size;
                self.parked_bytes -= replaced.map_or(0, |replaced| replaced.size);
            }
            // Not a warning: code in the kernel must not fill the log.
            Err(error) => tracing::debug!(%error, "ignored a message of the kernel"),
        }
    }

    /// The next complete message, in the order of the output.
    fn next_message(&mut self) -> Option<KernelMessage> {
        loop {
            if let Some(message) = self.next.pop_front() {
                return Some(message);
            }
            if let Some((place, _)) = self.awaited {
                if !self.parked.contains_key(&place) && self.end.is_none() && self.has_room() {
                    return None;
                }
                // An earlier message whose position was lost is returned, too.
                match self.parked.first_entry() {
                    Some(first) if *first.key() <= place => return self.take_parked(),
                    _ => self.awaited = None,
                }
            }
            match self.output.next(self.end.is_some()) {
                Some(OutputPiece::Place(place)) => {
                    self.awaited = Some((place, Instant::now() + MESSAGE_WAIT))
                }
                Some(OutputPiece::Begin(cell)) => {
                    self.first_words.clear();
                    self.cell = Some(cell.clone());
                    return Some(KernelMessage::new(Some(cell), MessageContent::ExecuteInput));
                }
                Some(OutputPiece::Text { cell, text }) if cell.is_empty() => self.keep_first_words(&text),
                Some(OutputPiece::Text { cell, text }) => {
                    return Some(KernelMessage::new(
                        Some(cell),
                        MessageContent::Shown(ShownOutput::Stream(text)),
                    ));
                }
                None if self.end.is_some() => return self.take_parked(),
                None => return None,
            }
        }
    }

    /// The first of the kept messages.
    fn take_parked(&mut self) -> Option<KernelMessage> {
        let (number, UnplacedMessage { message, size, .. }) = self.parked.pop_first()?;
        self.parked_bytes -= size;
        if self.awaited.is_some_and(|(place, _)| place == number) {
            self.awaited = None;
        }
        if matches!(message.content, MessageContent::ExecuteReply { .. }) {
            self.is_running = false;
            self.next.push_back(KernelMessage::new(message.parent.clone(), MessageContent::Idle));
        }
        Some(message)
    }

    /// Whether more messages may be kept.
    fn has_room(&self) -> bool {
        self.parked_bytes < PARKED_BYTES_MAX
    }

    fn keep_first_words(&mut self, text: &str) {
        self.first_words.push_str(text);
        let excess = self.first_words.chars().count().saturating_sub(LAST_WORDS_CHARS);
        if excess > 0 {
            self.first_words = self.first_words.chars().skip(excess).collect();
        }
    }

    /// The report of the kernel's end.
    fn death(&mut self, manner: DeathManner) -> KernelDeath {
        let stderr = self.holder.last_words().unwrap_or_else(|| self.first_words.clone());
        let stderr = stderr.trim().to_owned();
        let exhausted = self.exhausted.clone();
        KernelDeath { manner, stderr, limits: self.limits, exhausted }
    }

    /// Whether it runs code, as far as has been read.
    pub(super) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Interrupts the kernel and all that it started.
    pub(super) fn interrupt(&mut self) {
        self.holder.signal(Signal::INT);
        if self.holder.signals_at_once() {
            // The signal has been delivered, and is handled before the kernel reads more.
            self.next.push_back(KernelMessage::new(None, MessageContent::InterruptReply));
        }
    }

    /// Kills the kernel and all that it started; its earlier messages can still be read.
    pub(super) fn signal_kill(&self) {
        self.holder.signal(Signal::KILL);
    }

    /// Kills the kernel and all that it started. `false` if it is in a sandbox that does not confirm it.
    pub(super) async fn kill(self) -> bool {
        self.holder.kill().await
    }
}

/// Resolves when the session runs out of disk. Cancellation safe.
async fn overrun(held: &HeldLimits, before: Option<u64>) {
    match before {
        Some(before) => held.overrun(before).await,
        None => std::future::pending().await,
    }
}

/// Waits for a deadline, after which the position of an awaited message counts as forged. Cancellation safe.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
