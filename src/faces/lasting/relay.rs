//! The process that an MCP client starts: it passes bytes between its stdin and stdout and the process that holds the session.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rmcp::transport::stdio_pipes;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio_util::io::InspectWriter;
use tokio_util::sync::CancellationToken;

use super::entry::SessionEntry;
use super::front::{FrontWish, introduction};
use super::greeting::{KeeperAnswer, KeeperRequest, LINE_BYTES, line, understand};
use super::likeness::SessionLikeness;
use super::list::{FoundSessions, end_overdue, find};
use super::{Error, GREETING_TIME};
use crate::config::{Settings, create_in, create_workspace, sessions_dir, states_dir};
use crate::faces::mcp_server::{Error as ServeError, end_on_signals, receipt};
use crate::ground::env::Variables;

/// The number of bytes that are passed on at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// The time that a session which is ending gets to write why.
const ENDING: Duration = Duration::from_secs(1);

/// The time that a client that has ended its input may take to read what is left.
const LAST_READING: Duration = Duration::from_secs(2);

/// The time that a client that dies may take to close all that it has open.
const CLOSING: Duration = Duration::from_millis(5);

/// The interval of looks at the log of the session, for messages to show.
const LOG_INTERVAL: Duration = Duration::from_millis(250);

/// The time that the last messages may take: a client that does not read them gets none.
const LAST_MESSAGES: Duration = Duration::from_millis(500);

/// Serves a client with a kept session, or with a new one that is kept. `arguments` are those of the command that holds
/// one, without its entry. A `front` is told which session it has, and sends receipts itself.
///
/// Returns when the client closes stdin, or on SIGTERM, SIGINT or SIGHUP.
///
/// # Errors
/// See [`Error`].
pub async fn relay(
    settings: Settings,
    keep: Duration,
    arguments: Vec<OsString>,
    front: Option<FrontWish>,
) -> Result<(), Error> {
    let ending = CancellationToken::new();
    end_on_signals(&ending).map_err(ServeError::Signals)?;
    let workspace = create_workspace(&settings.workspace)?;
    let variables = Variables::load(&workspace);
    let states = states_dir(settings.state_dir.clone(), &variables)?;
    create_in(&states, &sessions_dir(&states), &variables)?;
    let likeness = SessionLikeness::of(&settings);
    let swept = states.clone();
    // Beside the client's start: processes that do not answer cost seconds.
    std::thread::spawn(move || end_overdue(&swept));
    let wanted = WantedSession {
        states: &states,
        workspace: &workspace,
        likeness: &likeness,
        keep,
        are_variables_saved: settings.kernel.checkpoint,
    };
    let attended = match front.as_ref().and_then(FrontWish::session) {
        Some(id) => wanted.go_on(id).await?,
        None => wanted.take_over(front.as_ref()).await?,
    };
    let attended = match attended {
        Ok(attended) => attended,
        Err(new) => wanted.begin(new, arguments).await?,
    };
    tokio::select! {
        passed = attended.pass(front.is_some()) => passed,
        () = ending.cancelled() => Ok(()),
    }
}

/// A connection to the process that holds the session.
pub(super) struct KeeperConnection {
    entry: SessionEntry,
    input: BufReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
    pub(super) log: SessionLog,
}

/// The session that a client wants.
pub(super) struct WantedSession<'a> {
    /// The directory of all states.
    pub(super) states: &'a Path,
    pub(super) workspace: &'a Path,
    pub(super) likeness: &'a SessionLikeness,
    /// The time that it waits for the next client.
    pub(super) keep: Duration,
    pub(super) are_variables_saved: bool,
}

/// The beginning of a session that there is not yet.
#[derive(Default)]
pub(super) struct NewSession {
    /// The id of an earlier one, whose variables it gets; `None` for a new id.
    pub(super) id: Option<String>,
    /// Notes for its client.
    pub(super) notes: Vec<String>,
}

impl WantedSession<'_> {
    /// The newest session that can be taken over; else what a new one begins with.
    async fn take_over(
        &self,
        front: Option<&FrontWish>,
    ) -> Result<Result<KeeperConnection, NewSession>, Error> {
        let Self { states, workspace, likeness, keep, .. } = *self;
        let FoundSessions { alike, mut notes, ended } = find(states, workspace, likeness, front)?;
        let ended = ended.map(|ended| self.with_loss(ended));
        let mut failed = Vec::new();
        for entry in alike {
            let id = entry.id();
            let entry_again = entry.clone();
            let note = ended.as_ref().map(|ended| format!("[Another session of this workspace, {ended}]"));
            let is_same_client = front.is_some_and(|front| front.had(&id));
            match attend(entry, likeness, keep, note, is_same_client).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(mut attended))) => {
                tracing::info!(session = %id, "taking over a kept session");
                attended.log.skip();
                return Ok(Ok(attended));
            }
            Ok(Err(why)) => notes.push(format!(
                "A session of this workspace is kept, and was not taken over: {why}. The user can end it: \
                 `ipybox sessions end {id}`."
            )),
            // It is ending, or does not answer: a new session does not depend on it.
            Err(error) => {
                tracing::debug!(%error, session = %id, "a kept session could not be taken over");
                failed.push(entry_again);
            }
        }
        }
        notes.extend(ended.map(new_after));
        if !failed.is_empty() {
            // What has ended meanwhile says why.
            let deadline = tokio::time::Instant::now() + ENDING;
            while failed.iter().any(SessionEntry::is_held) && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(ENDING / 50).await;
            }
            let FoundSessions { notes: later, ended, .. } = find(states, workspace, likeness, front)?;
            let ended = ended.map(|ended| new_after(self.with_loss(ended)));
            let later = later.into_iter().chain(ended);
            notes.extend(later.filter(|note| !notes.contains(note)).collect::<Vec<_>>());
            notes.extend(failed.iter().filter(|entry| entry.is_held()).map(|entry| {
            format!(
                "A session of this workspace does not answer, and was not taken over. The user can end it: \
                 `ipybox sessions end {}`.",
                entry.id()
            )
        }));
        }
        for note in &notes {
            tracing::warn!("{note}");
        }
        let id = front.and_then(|front| self.saved_session(front));
        Ok(Err(NewSession { id, notes }))
    }

    /// Words about a session that has ended, and about its variables.
    fn with_loss(&self, ended: String) -> String {
        if self.are_variables_saved { ended } else { ended + " Its variables are gone." }
    }

    /// Starts a process that holds a session, and attends it.
    async fn begin(&self, new: NewSession, arguments: Vec<OsString>) -> Result<KeeperConnection, Error> {
        let Self { states, likeness, keep, .. } = *self;
        let NewSession { id, notes } = new;
        let entry = SessionEntry::create(states, id.as_deref())?;
        let begun = start(&entry, arguments).await;
        if begun.is_err() {
            SessionLog::open(&entry).show();
            entry.remove();
        }
        begun?;
        let note = (!notes.is_empty()).then(|| format!("[{}]", notes.join("\n")));
        let id = entry.id();
        let attended = attend(entry, likeness, keep, note, false).await;
        match attended.map_err(|source| Error::Connection { id: id.clone(), source })? {
            Ok(Some(attended)) => Ok(attended),
            Ok(None) => Err(Error::Connection { id, source: io::Error::other("another client has it") }),
            Err(why) => Err(Error::Connection { id, source: io::Error::other(why) }),
        }
    }
}

/// A new session's words about the one before.
fn new_after(ended: String) -> String {
    format!("This is a new session: the one before, {ended}")
}

async fn start(entry: &SessionEntry, arguments: Vec<OsString>) -> Result<(), Error> {
    let log = File::options().append(true).create(true).open(entry.log()).map_err(Error::Start)?;
    let program = std::env::current_exe().map_err(Error::Start)?;
    let mut child = Command::new(program)
        .arg("session-keeper")
        .args(arguments)
        .arg("--entry")
        .arg(entry.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(Error::Start)?;
    let mut words = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut words).await.map_err(Error::Start)?;
    }
    // Reaped when it ends, if we live that long.
    tokio::spawn(async move { child.wait().await });
    if words.is_empty() { Err(Error::EndedAtOnce) } else { Ok(()) }
}

/// Becomes the client of a session; `None` if there is one. The inner error says why it cannot.
pub(super) async fn attend(
    entry: SessionEntry,
    likeness: &SessionLikeness,
    keep: Duration,
    note: Option<String>,
    is_same_client: bool,
) -> io::Result<Result<Option<KeeperConnection>, String>> {
    let greeting = async {
        let stream = UnixStream::connect(entry.socket()).await?;
        if stream.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
        }
        let (input, mut output) = stream.into_split();
        let keep_seconds = keep.as_secs_f64();
        let wish = KeeperRequest::Attend { likeness: likeness.clone(), note, keep_seconds, is_same_client };
        output.write_all(&line(&wish)?).await?;
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let mut words = Vec::new();
        (&mut input).take(LINE_BYTES as u64).read_until(b'\n', &mut words).await?;
        Ok((understand(&words)?, input, output))
    };
    let (answer, input, output) = tokio::time::timeout(GREETING_TIME, greeting).await??;
    Ok(match answer {
        KeeperAnswer::Attended => {
            let log = SessionLog::open(&entry);
            Ok(Some(KeeperConnection { entry, input, output, log }))
        }
        KeeperAnswer::Taken => Ok(None),
        KeeperAnswer::Refused { why } => Err(why),
        KeeperAnswer::Joined | KeeperAnswer::Status(_) | KeeperAnswer::Ending => {
            Err("it gave an unknown answer".to_owned())
        }
    })
}

impl KeeperConnection {
    /// Passes bytes on in both directions until either side ends, and shows the log meanwhile. A front has read what it has
    /// passed on, which cannot be seen from here.
    async fn pass(self, is_front: bool) -> Result<(), Error> {
        let Self { entry, mut input, mut output, log } = self;
        let log = log.follow();
        let (stdin, mut stdout) = stdio_pipes();
        let read = AtomicU64::new(0);
        if is_front {
            let introduction = introduction(&entry.id());
            let written = stdout.write_all(introduction.as_bytes()).await;
            written.map_err(|source| Error::Connection { id: entry.id(), source })?;
        }
        let mut stdout = InspectWriter::new(stdout, |bytes| {
            read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        });
        let mut stdin = BufReader::with_capacity(BUFFER_BYTES, stdin);
        let mut is_sending = true;
        let mut has_client_ended = false;
        let to_client = async {
            let copied = tokio::io::copy_buf(&mut input, &mut stdout).await;
            stdout.flush().await.ok();
            copied
        };
        let to_session = async {
            let copied = tokio::io::copy_buf(&mut stdin, &mut output).await;
            // A client that dies closes stdin and stdout one after the other.
            tokio::time::sleep(CLOSING).await;
            let bytes = read.load(Ordering::Relaxed);
            if !is_front && copied.is_ok() && bytes > 0 && is_all_read() {
                // Without it, the session repeats the last answer.
                output.write_all(receipt(bytes).as_bytes()).await.ok();
            }
            output.shutdown().await.ok();
            copied
        };
        let mut to_client = std::pin::pin!(to_client);
        let mut to_session = std::pin::pin!(to_session);
        let mut last_reading = std::pin::pin!(tokio::time::sleep(LAST_READING));
        let passed = loop {
            tokio::select! {
                passed = &mut to_client => break passed,
                sent = &mut to_session, if is_sending => {
                    is_sending = false;
                    // Otherwise the session has ended, in the middle of a message.
                    has_client_ended = sent.is_ok();
                    last_reading.as_mut().reset(tokio::time::Instant::now() + LAST_READING);
                }
                () = &mut last_reading, if has_client_ended => break Ok(0),
            }
        };
        log.finish().await;
        match passed {
            _ if has_client_ended => Ok(()),
            Ok(_) => Err(Error::Ended { id: entry.id() }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(Error::Ended { id: entry.id() })
            }
            // The client reads no more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(source) => Err(Error::Connection { id: entry.id(), source }),
        }
    }
}

/// Whether somebody who lives has read all that was written to stdout, as far as that can be known.
fn is_all_read() -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::fs::{FileType, fstat};

        let stdout = rustix::stdio::stdout();
        let is_pipe = fstat(stdout).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        let mut polled = [PollFd::from_borrowed_fd(stdout, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        is_pipe
            && poll(&mut polled, Some(&now)).is_ok()
            && !polled[0].revents().contains(PollFlags::ERR)
            && rustix::io::ioctl_fionread(stdout).is_ok_and(|unread| unread == 0)
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// The log of a session, which is shown on stderr as it grows.
pub(super) struct SessionLog(Option<File>);

impl SessionLog {
    fn open(entry: &SessionEntry) -> Self {
        Self(File::open(entry.log()).ok())
    }

    /// Passes over what was written before.
    pub(super) fn skip(&mut self) {
        if let Some(file) = &mut self.0 {
            file.seek(SeekFrom::End(0)).ok();
        }
    }

    /// Shows what is new. Blocks for as long as nobody reads it.
    fn show(&mut self) {
        let Some(file) = &mut self.0 else { return };
        // Nothing can be done about a log that cannot be read, or for a user whose stderr is closed.
        io::copy(file, &mut io::stderr()).ok();
    }

    /// Shows in a thread what comes: a client that does not read stderr must not stop its session.
    fn follow(mut self) -> FollowedLog {
        let (ending, is_ending) = mpsc::channel::<()>();
        let (shown, is_shown) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            while is_ending.recv_timeout(LOG_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                self.show();
            }
            self.show();
            // Fails only if nobody waits for it any more.
            shown.send(()).ok();
        });
        FollowedLog { ending, is_shown }
    }
}

/// A log that a thread shows, as long as this lives.
struct FollowedLog {
    ending: mpsc::Sender<()>,
    is_shown: oneshot::Receiver<()>,
}

impl FollowedLog {
    /// Waits for the last messages, but not for a client that does not read them.
    async fn finish(self) {
        drop(self.ending);
        tokio::time::timeout(LAST_MESSAGES, self.is_shown).await.ok();
    }
}
