//! The prompt's side of `ipybox attach`: finds a session, connects to it, and makes what it says safe for a terminal.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::Error;
use super::greeting::{KeeperAnswer, KeeperRequest, connect, greet, line, understand};
use super::likeness::program;
use super::list::{KeptSession, KeptSessions};
use crate::config::workspace_state_dir;
use crate::faces::mcp_server::{PersonMessage, SessionMessage};
use crate::ground::text::{ColouredText, readable};

/// The longest line of the session, in bytes: tracebacks may be long.
const HEARD_BYTES: u64 = 64 * 1024 * 1024;

/// The file with what people have typed, in the state directory of the workspace.
const HISTORY: &str = "attach_history";

/// The kernel that a prompt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinedKernel {
    /// That of the session.
    Shared,
    /// A copy of it, which ends with the prompt.
    Copy,
}

/// A session that a person is attached to.
#[derive(Debug)]
#[non_exhaustive]
pub struct JoinedSession {
    /// Its id.
    pub id: String,
    /// Its kernel, or a copy.
    pub kernel: JoinedKernel,
    /// Its workspace.
    pub workspace: PathBuf,
    /// The file for what people type.
    pub history: PathBuf,
    /// The end for what is said to it.
    pub says: SessionWriter,
    /// The end for what it says.
    pub hears: SessionReader,
}

/// The way to a session.
#[derive(Debug, Clone)]
pub struct SessionWriter(Arc<Mutex<UnixStream>>);

/// The way from a session. All text is safe for a terminal.
#[derive(Debug)]
pub struct SessionReader {
    lines: BufReader<UnixStream>,
    has_colours: bool,
    /// The output of the cells that have not ended.
    cells: HashMap<u64, ColouredText>,
}

/// Attaches to the session with this id, or to the one there is: that of the current directory first. `can_answer` if
/// somebody is there who answers questions, `has_colours` if output may have colours.
///
/// # Errors
/// There is none or more than one, or it is another program's.
pub fn join(
    id: Option<&str>,
    state_dir: Option<PathBuf>,
    kernel: JoinedKernel,
    can_answer: bool,
    has_colours: bool,
) -> Result<JoinedSession, Error> {
    let sessions = KeptSessions::open(state_dir)?;
    let session = match id {
        Some(id) => sessions.find(id)?,
        None => the_one(sessions.list()?)?,
    };
    let id = session.id;
    let failed = |source| Error::Connection { id: id.clone(), source };
    let entry = sessions.entry(&id)?;
    let stream = connect(&entry).map_err(failed)?;
    let mut says = stream.try_clone().map_err(failed)?;
    let mut lines = BufReader::new(stream);
    let is_copy = kernel == JoinedKernel::Copy;
    if is_copy {
        // It is made when the cells that run or wait have ended.
        says.set_read_timeout(None).map_err(failed)?;
    }
    let wish = KeeperRequest::Join { program: program(), can_answer, is_copy };
    let answer = greet(&mut says, &mut lines, &wish).map_err(failed)?;
    let refused = |why: String| Err(Error::NotJoined { id: id.clone(), why });
    match answer {
        Some(KeeperAnswer::Joined) => {}
        Some(KeeperAnswer::Refused { why }) => return refused(why),
        Some(_) => return refused("it gave an unknown answer".to_owned()),
        // One that does not know the wish hangs up.
        None => return refused("another version of ipybox has begun it".to_owned()),
    }
    says.set_read_timeout(None).map_err(failed)?;
    let states = entry.states().unwrap_or(Path::new("."));
    let history = workspace_state_dir(states, &session.workspace).join(HISTORY);
    let hears = SessionReader { lines, has_colours, cells: HashMap::new() };
    let says = SessionWriter(Arc::new(Mutex::new(says)));
    Ok(JoinedSession { workspace: session.workspace, kernel, history, says, hears, id })
}

impl JoinedSession {
    /// The connection, for a face that makes what it shows safe itself.
    ///
    /// # Errors
    /// It has failed.
    pub fn into_stream(self) -> io::Result<impl AsyncRead + AsyncWrite + Send + 'static + use<>> {
        // What came with the greeting.
        let first = self.hears.lines.buffer().to_vec();
        let stream = self.hears.lines.into_inner();
        stream.set_nonblocking(true)?;
        let (input, output) = tokio::net::UnixStream::from_std(stream)?.into_split();
        Ok(tokio::io::join(AsyncReadExt::chain(io::Cursor::new(first), input), output))
    }
}

/// The session of the current directory's workspace, or the only one.
fn the_one(sessions: Vec<KeptSession>) -> Result<KeptSession, Error> {
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).unwrap_or_default();
    let here = readable(&here);
    let (of_here, others): (Vec<_>, Vec<_>) =
        sessions.into_iter().filter(|session| session.answers).partition(|session| session.workspace == here);
    let mut candidates = if of_here.is_empty() { others } else { of_here };
    match (candidates.pop(), candidates.is_empty()) {
        (None, _) => Err(Error::NoneToJoin),
        (Some(session), true) => Ok(session),
        (Some(last), false) => {
            candidates.push(last);
            let sessions = candidates.into_iter().map(|session| (session.id, session.workspace)).collect();
            Err(Error::SeveralToJoin { sessions })
        }
    }
}

impl SessionWriter {
    /// Says something.
    ///
    /// # Errors
    /// The session has ended, or does not listen.
    pub fn say(&self, said: &PersonMessage) -> io::Result<()> {
        let line = line(said)?;
        self.0.lock().write_all(&line)
    }
}

impl SessionReader {
    /// The next thing; `None` if the session has ended. Blocks.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn hear(&mut self) -> io::Result<Option<SessionMessage>> {
        loop {
            let mut words = Vec::new();
            (&mut self.lines).take(HEARD_BYTES).read_until(b'\n', &mut words)?;
            if words.is_empty() {
                return Ok(None);
            }
            if let Some(heard) = self.safe(understand(&words)?) {
                return Ok(Some(heard));
            }
        }
    }

    /// The same, safe for a terminal; `None` if nothing is left of it.
    fn safe(&mut self, heard: SessionMessage) -> Option<SessionMessage> {
        Some(match heard {
            SessionMessage::Text { cell, text } => {
                let text = self.cells.entry(cell).or_default().take(&text, self.has_colours);
                (!text.is_empty()).then_some(SessionMessage::Text { cell, text })?
            }
            SessionMessage::Ended { cell, error, words, images, files, file } => {
                self.cells.remove(&cell);
                let path = |path: PathBuf| PathBuf::from(plain(&path.to_string_lossy()));
                let [images, files] =
                    [images, files].map(|paths| paths.into_iter().map(path).collect::<Vec<_>>());
                let error = error.map(|error| plain(&error));
                let file = file.map(path);
                SessionMessage::Ended { cell, error, words: plain(&words), images, files, file }
            }
            SessionMessage::Began { cell, number, by, code } => {
                self.cells.insert(cell, ColouredText::default());
                SessionMessage::Began { cell, number, by, code: plain(&code) }
            }
            SessionMessage::Done { is_ok, notes, number } => {
                SessionMessage::Done { is_ok, notes: notes.iter().map(|note| plain(note)).collect(), number }
            }
            SessionMessage::Question { question, text, mut grant, outside, call, scope, left_ms } => {
                if let Some(grant) = &mut grant {
                    grant.choice = plain(&grant.choice);
                }
                SessionMessage::Question {
                    question,
                    text: plain(&text),
                    grant,
                    outside,
                    call,
                    scope,
                    left_ms,
                }
            }
            SessionMessage::Together { questions, text } => {
                SessionMessage::Together { questions, text: plain(&text) }
            }
            SessionMessage::Asked { question, text, call } => {
                SessionMessage::Asked { question, text: plain(&text), call }
            }
            SessionMessage::Decided { question, how } => {
                SessionMessage::Decided { question, how: plain(&how) }
            }
            SessionMessage::Completions { id, matches, before } => SessionMessage::Completions {
                id,
                matches: matches.iter().map(|each| plain(each)).collect(),
                before,
            },
            // No prompt shows the parts of a call, the history or the grants.
            other @ (SessionMessage::Ready { .. }
            | SessionMessage::LeftOut { .. }
            | SessionMessage::Checked { .. }
            | SessionMessage::Changes { .. }
            | SessionMessage::Grants { .. }
            | SessionMessage::Ruled { .. }
            | SessionMessage::About { .. }
            | SessionMessage::History { .. }) => other,
        })
    }
}

/// Text that is not streamed, without colours.
fn plain(text: &str) -> String {
    ColouredText::default().take(text, false).replace('\r', "")
}
