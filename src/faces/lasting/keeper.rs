//! The process that holds a session, and serves one client after the other.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::approvals::FacingSession;
use super::attending::AttendingClient;
use super::entry::{EntryDescription, SessionEntry, now};
use super::front::FrontWish;
use super::greeting::{KeeperAnswer, KeeperRequest, KeeperStatus, LINE_BYTES, PromptWish, line, understand};
use super::likeness::SessionLikeness;
use super::list::end_more_than_may_be_kept;
use super::{Error, GREETING_TIME, KeepRules};
use crate::config::{CheckpointPurpose, Config, Settings};
use crate::faces::mcp_server::{
    ApprovalCodes, ClientStreams, Error as ServeError, ServedSession, end_on_signals,
};
use crate::ground::env::IPYBOX_SESSION_TOKEN;
use crate::ground::process::{descends_from, memory_of_family, memory_of_machine};
use crate::ground::text::readable;

/// The time that the first client may take: the relay that has started us attends at once.
const FIRST_CLIENT: Duration = Duration::from_secs(30);

/// The longest time that a session is kept: ten years.
const LONGEST_SECS: f64 = 10.0 * 365.0 * 24.0 * 3600.0;

/// The number of connections that are heard at the same time.
const CONNECTIONS: usize = 16;

/// The number of people that may be at prompts; there is room for a client beside them.
pub(super) const PEOPLE: usize = 8;

/// The longest time that it takes to notice that a client is gone.
const NOTICE: Duration = Duration::from_millis(50);

/// The interval of looks at the memory of a session without a client.
const MEMORY_INTERVAL: Duration = Duration::from_secs(60);

/// The part of the machine's memory that a session without a client may use: one in so many.
const MEMORY_PART: u64 = 4;

/// The size at which the log is begun anew when a client goes, in bytes.
const LOG_BYTES: u64 = 4 * 1024 * 1024;

/// The time that a client may take to read the last answers once the kernel and the connections are gone.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

pub(super) struct Keeper {
    pub(super) serving: ServedSession,
    entry: SessionEntry,
    pub(super) likeness: SessionLikeness,
    /// The time that the session waits for a client: as the newest one says.
    keep: Mutex<Duration>,
    /// Cancelled by signals.
    asked_to_end: CancellationToken,
    /// Since when nobody attends the session; `None` while somebody does.
    pub(super) alone_since: watch::Sender<Option<Instant>>,
    /// The number of people at prompts.
    pub(super) people: watch::Sender<usize>,
    /// That to the newest client.
    connection: Mutex<AttendingClient>,
    description: Mutex<EntryDescription>,
    state_dir: std::path::PathBuf,
    pub(super) stop: CancellationToken,
    /// Why the session ends, for the next client.
    ended: Mutex<Option<String>>,
}

/// Holds a session until nobody has taken it over for as long as it is kept, or until it is asked to end.
///
/// Writes a line to stdout, and closes it, as soon as a client can attend.
///
/// # Errors
/// The session cannot be opened, or its entry cannot be used.
pub async fn keep_session(settings: Settings, keep: KeepRules) -> Result<(), Error> {
    // The client may kill the group of processes, or its terminal may end.
    rustix::process::setsid().map_err(|error| Error::Start(error.into()))?;
    let entry = SessionEntry::at(keep.entry);
    let unusable = |source| Error::Directory { path: entry.path().to_owned(), source };
    let _held = entry.hold().map_err(unusable)?;
    let likeness = SessionLikeness::of(&settings);
    let mut config = Config::new(settings)?;
    config.session = Some(entry.id());
    let front = keep.front.as_ref();
    if let Some(front) = front {
        config.checkpoint_purpose = CheckpointPurpose::Session { is_resumed: front.had(&entry.id()) };
    }
    let socket = front
        .and_then(|front| front.socket(entry.id(), config.variables().in_process(IPYBOX_SESSION_TOKEN)?));
    socket.iter().for_each(|socket| config.ask_front(socket.clone()));
    let socket = socket.filter(|_| front.is_some_and(FrontWish::approvals));
    for problem in config.variables().problems() {
        tracing::warn!("{problem}");
    }
    let stop = CancellationToken::new();
    let asked_to_end = CancellationToken::new();
    end_on_signals(&asked_to_end).map_err(ServeError::Signals)?;
    let listener = UnixListener::bind(entry.socket()).map_err(unusable)?;
    let mut description = EntryDescription {
        workspace: readable(config.workspace()),
        likeness: likeness.clone(),
        process: std::process::id(),
        began: now(),
        alone_since: None,
        keep_seconds: keep.time.as_secs(),
        notebook: None,
        ended: None,
    };
    let serving = ServedSession::open(&config, ApprovalCodes::ClientAlone).await?;
    description.notebook = serving.notebook().map(readable);
    entry.describe(&description).map_err(unusable)?;
    let keeper = Arc::new(Keeper {
        serving,
        entry: entry.clone(),
        likeness,
        keep: Mutex::new(FIRST_CLIENT),
        asked_to_end,
        alone_since: watch::Sender::new(Some(Instant::now())),
        people: watch::Sender::new(0),
        connection: Mutex::default(),
        description: Mutex::new(description),
        state_dir: config.state_dir.clone(),
        stop,
        ended: Mutex::default(),
    });
    say_ready().map_err(Error::Start)?;
    match socket {
        Some(socket) => {
            let stop = keeper.stop.clone();
            let facing = FacingSession { serving: &keeper.serving, socket, stop };
            tokio::select! {
                () = keeper.serve(listener) => {}
                () = facing.face_server() => {}
            }
        }
        None => keeper.serve(listener).await,
    }
    keeper.end().await;
    Ok(())
}

/// Reports to the relay that it can connect. Whatever writes to stdout later writes nowhere.
fn say_ready() -> io::Result<()> {
    let mut stdout = io::stdout();
    // The relay may be gone: another one will find the session.
    stdout.write_all(b"ready\n").and_then(|()| stdout.flush()).ok();
    let nowhere = File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(&nowhere)?)
}

/// The connection of a client or a person.
pub(super) type SocketStreams = ClientStreams<BufReader<OwnedReadHalf>, OwnedWriteHalf>;

/// A process that wants to be the session's client.
struct ClientArrival {
    likeness: SessionLikeness,
    note: Option<String>,
    keep: Duration,
    is_same_client: bool,
}

impl Keeper {
    async fn serve(self: &Arc<Self>, listener: UnixListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let hearing = async {
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let keeper = Arc::clone(self);
                        tokio::spawn(async move {
                            if let Err(error) = keeper.hear(stream).await {
                                tracing::debug!(%error, "a connection has failed");
                            }
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        };
        tokio::select! {
            () = hearing => {}
            () = self.stop.cancelled() => {}
            () = self.asked_to_end.cancelled() => {
                if self.serving.has_worked() {
                    self.set_reason("its process was asked to end, as when the machine shuts down".to_owned());
                }
            }
            why = self.forgotten() => {
                tracing::info!(%why, "ending");
                self.set_reason(why);
            }
            why = self.too_large() => {
                tracing::warn!(%why, "ending");
                self.set_reason(why);
            }
        }
        self.stop.cancel();
    }

    /// Answers a connection, and serves it if it is a client's.
    async fn hear(self: &Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let peer = stream.peer_cred()?;
        if peer.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user's process"));
        }
        let (input, mut output) = stream.into_split();
        let mut input = BufReader::new(input);
        let mut words = Vec::new();
        let mut first = (&mut input).take(LINE_BYTES as u64);
        tokio::time::timeout(GREETING_TIME, first.read_until(b'\n', &mut words)).await??;
        match understand(&words)? {
            KeeperRequest::Attend { likeness, note, keep_seconds, is_same_client } => {
                let keep = Duration::from_secs_f64(keep_seconds.clamp(0.0, LONGEST_SECS));
                let arrival = ClientArrival { likeness, note, keep, is_same_client };
                self.serve_client(arrival, ClientStreams { input, output }).await
            }
            KeeperRequest::Join { program, can_answer, is_copy } => {
                let process = peer.pid().and_then(|process| u32::try_from(process).ok());
                if process.is_some_and(|process| descends_from(process, std::process::id())) {
                    let why = "code of a session cannot answer for its user".to_owned();
                    return answer(&mut output, &KeeperAnswer::Refused { why }).await;
                }
                let prompt = PromptWish { program, can_answer, is_copy };
                self.join(prompt, ClientStreams { input, output }).await
            }
            KeeperRequest::Status => answer(&mut output, &KeeperAnswer::Status(self.status())).await,
            KeeperRequest::End { why, only_alone } => self.end_if_wished(why, only_alone, &mut output).await,
        }
    }

    /// Ends the session; with `only_alone` only if nobody is there.
    async fn end_if_wished(
        self: &Arc<Self>,
        why: String,
        only_alone: bool,
        output: &mut OwnedWriteHalf,
    ) -> io::Result<()> {
        if only_alone {
            if *self.people.borrow() > 0 {
                return answer(output, &KeeperAnswer::Taken).await;
            }
            let Some(attended) = self.attend_after_another().await else {
                return answer(output, &KeeperAnswer::Taken).await;
            };
            // Nobody attends it any more.
            std::mem::forget(attended);
        }
        self.set_reason(why);
        let answered = answer(output, &KeeperAnswer::Ending).await;
        // Also if the asker is gone: a session whose reason is set has no client any more.
        self.stop.cancel();
        answered
    }

    /// Serves a client to its end, if it may have the session.
    async fn serve_client(
        self: &Arc<Self>,
        arrival: ClientArrival,
        mut streams: SocketStreams,
    ) -> io::Result<()> {
        let ClientArrival { likeness, note, keep, is_same_client } = arrival;
        let output = &mut streams.output;
        if let Some(why) = self.likeness.refusal(&likeness, &self.state_dir) {
            return answer(output, &KeeperAnswer::Refused { why }).await;
        }
        let Some(attended) = self.attend_after_another().await else {
            return answer(output, &KeeperAnswer::Taken).await;
        };
        self.keep_for(keep);
        answer(output, &KeeperAnswer::Attended).await?;
        if self.serving.has_served() && !is_same_client {
            self.serving.note_takeover(attended.alone_for);
        }
        if let Some(note) = note {
            self.serving.add_note(note);
        }
        let closed = self.stop.child_token();
        let socket = streams.output.as_ref().as_fd().try_clone_to_owned()?;
        *self.connection.lock() = AttendingClient::new(closed.clone(), socket);
        let served = self.serving.client(streams, closed, Some(self.stop.clone())).await;
        // Its end shows at the other side only now.
        self.connection.lock().end();
        if let Err(error) = served {
            tracing::warn!(%error, "a client has ended");
        }
        if !self.serving.has_worked() && *self.people.borrow() == 0 {
            // It has only looked which tools there are.
            self.stop.cancel();
            return Ok(());
        }
        drop(attended);
        self.now_alone().await;
        Ok(())
    }

    /// As [`attend`](Self::attend), after a client that is gone has been put aside.
    async fn attend_after_another(self: &Arc<Self>) -> Option<ClientSeat> {
        if let Some(attended) = self.attend() {
            return Some(attended);
        }
        // The end of its connection came before this one's beginning. Where the socket does not show it, it is noticed by then.
        if !self.is_client_gone() {
            tokio::time::sleep(NOTICE).await;
        }
        if self.is_client_gone() {
            let mut alone_since = self.alone_since.subscribe();
            tokio::select! {
                _ = alone_since.wait_for(Option::is_some) => {}
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(GREETING_TIME / 2) => {}
            }
        }
        self.attend()
    }

    /// Whether the newest client has ended, although it may still be served.
    fn is_client_gone(&self) -> bool {
        self.connection.lock().has_ended()
    }

    /// Makes the caller the client; `None` if there is one, or the session is ending.
    fn attend(self: &Arc<Self>) -> Option<ClientSeat> {
        let mut alone_for = None;
        self.alone_since.send_if_modified(|since| {
            // Its end may be what the client before has left.
            let taken = if self.stop.is_cancelled() { None } else { since.take() };
            alone_for = taken.map(|since| since.elapsed());
            alone_for.is_some()
        });
        let attended = ClientSeat { keeper: Arc::clone(self), alone_for: alone_for? };
        self.describe(|description| description.alone_since = None);
        Some(attended)
    }

    /// Resolves when nobody has attended the session for too long.
    async fn forgotten(&self) -> String {
        let mut alone_since = self.alone_since.subscribe();
        let mut people = self.people.subscribe();
        loop {
            let since = *alone_since.borrow_and_update();
            let since = since.filter(|_| *people.borrow_and_update() == 0);
            let limit = self.keep();
            let too_long = async {
                match since {
                    Some(since) => tokio::time::sleep_until(since + limit).await,
                    None => std::future::pending().await,
                }
            };
            // `self` owns the senders, so that changes cannot fail.
            tokio::select! {
                Ok(()) = people.changed() => {}
                Ok(()) = alone_since.changed() => {}
                () = too_long => return format!("no client took it over within {} s", limit.as_secs()),
            }
        }
    }

    /// Resolves when the processes of the session use too much memory while nobody attends it, or nobody could.
    async fn too_large(&self) -> String {
        let mut ticks = tokio::time::interval(MEMORY_INTERVAL);
        loop {
            ticks.tick().await;
            if !self.entry.path().exists() {
                return "its entry was removed, so that no client could find it".to_owned();
            }
            if self.alone_since.borrow().is_none() || *self.people.borrow() > 0 {
                continue;
            }
            let look = || Some((memory_of_family(std::process::id())?, memory_of_machine()? / MEMORY_PART));
            let Ok(Some((memory, limit))) = tokio::task::spawn_blocking(look).await else { continue };
            if memory > limit && self.alone_since.borrow().is_some() {
                let mib = |bytes: u64| bytes / 1024 / 1024;
                return format!(
                    "its processes used {} MiB of memory, more than the {} MiB that a session without a client may use",
                    mib(memory),
                    mib(limit)
                );
            }
        }
    }

    /// The duties when a client is gone.
    async fn now_alone(&self) {
        let entry = self.entry.clone();
        let states = self.entry.states().map(ToOwned::to_owned);
        let housekeeping = tokio::task::spawn_blocking(move || {
            if std::fs::metadata(entry.log()).is_ok_and(|log| log.len() > LOG_BYTES)
                && let Ok(log) = File::options().write(true).open(entry.log())
                && let Err(error) = log.set_len(0)
            {
                tracing::debug!(%error, "the log of the session grows");
            }
            if let Some(states) = states {
                end_more_than_may_be_kept(&states);
            }
        });
        if let Err(error) = housekeeping.await {
            tracing::error!(%error, "could not look after the kept sessions");
        }
    }

    fn status(&self) -> KeeperStatus {
        let activity = self.serving.activity();
        let alone_since = *self.alone_since.borrow();
        let people = *self.people.borrow();
        KeeperStatus {
            is_attended: alone_since.is_none(),
            seconds_left: alone_since
                .filter(|_| people == 0)
                .map(|since| self.keep().saturating_sub(since.elapsed()).as_secs()),
            seconds: activity.seconds,
            open_cells: activity.open_cells,
            people,
            left: activity.left,
            memory: memory_of_family(std::process::id()),
            limits: activity.limits,
        }
    }

    fn keep(&self) -> Duration {
        *self.keep.lock()
    }

    fn keep_for(&self, time: Duration) {
        *self.keep.lock() = time;
        self.describe(|description| description.keep_seconds = time.as_secs());
    }

    fn set_reason(&self, why: String) {
        *self.ended.lock() = Some(why);
    }

    fn describe(&self, change: impl FnOnce(&mut EntryDescription)) {
        let mut description = self.description.lock();
        change(&mut description);
        if let Err(error) = self.entry.describe(&description) {
            tracing::warn!(%error, "could not write the entry of the session");
        }
    }

    /// Ends the session, with all its processes. Its entry stays if it has a reason for the next client.
    async fn end(&self) {
        self.serving.stop().await;
        tokio::time::sleep(DRAIN_GRACE).await;
        self.serving.close().await;
        let ended = self.ended.lock().take();
        match ended {
            Some(why) => {
                self.describe(|description| description.ended = Some(why));
                for file in [self.entry.socket(), self.entry.log()] {
                    if let Err(error) = std::fs::remove_file(&file) {
                        tracing::debug!(%error, "could not remove `{}`", file.display());
                    }
                }
            }
            None => self.entry.remove(),
        }
    }
}

pub(super) async fn answer(output: &mut OwnedWriteHalf, answer: &KeeperAnswer) -> io::Result<()> {
    output.write_all(&line(answer)?).await
}

/// The right of the one client.
struct ClientSeat {
    keeper: Arc<Keeper>,
    /// For how long nobody had it.
    alone_for: Duration,
}

impl Drop for ClientSeat {
    fn drop(&mut self) {
        self.keeper.describe(|description| description.alone_since = Some(now()));
        self.keeper.alone_since.send_replace(Some(Instant::now()));
    }
}
