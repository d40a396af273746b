//! The first words on a connection to a keeper: one line of JSON each way.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::GREETING_TIME;
use super::entry::SessionEntry;
use super::likeness::{JSON_BYTES, SessionLikeness};
use crate::ground::process::LimitUse;

/// The longest line.
pub(super) const LINE_BYTES: usize = JSON_BYTES;

/// A process's wish to a keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "want", rename_all = "snake_case")]
pub(super) enum KeeperRequest {
    /// To be its client: bytes of MCP follow.
    Attend {
        /// The conditions under which the process would begin a session itself.
        likeness: SessionLikeness,
        /// A note for the client, with the first answer.
        note: Option<String>,
        /// The time that the session then waits for the next client.
        keep_seconds: f64,
        /// Whether it was the session's client before.
        #[serde(default)]
        is_same_client: bool,
    },
    /// To be a person's prompt beside the client: lines of JSON follow.
    Join {
        /// The program of that prompt, as in a likeness.
        program: String,
        /// Whether somebody is there who can answer questions.
        can_answer: bool,
        /// Whether the prompt is for a copy of the kernel.
        #[serde(default)]
        is_copy: bool,
    },
    /// To know what it is doing.
    Status,
    /// That it ends.
    End {
        /// The reason, for the next client.
        why: String,
        /// Not if a client has it.
        only_alone: bool,
    },
}

/// The wish for a prompt.
pub(super) struct PromptWish {
    /// The program of the prompt.
    pub(super) program: String,
    /// Whether somebody is there who can answer questions.
    pub(super) can_answer: bool,
    /// Whether it is for a copy of the kernel.
    pub(super) is_copy: bool,
}

/// The answer of a keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum KeeperAnswer {
    /// The process is its client now.
    Attended,
    /// Another process is.
    Taken,
    /// The process is a person's prompt now.
    Joined,
    /// It is not: the session was begun in another way.
    Refused {
        /// Why.
        why: String,
    },
    /// Its activity.
    Status(KeeperStatus),
    /// It is ending.
    Ending,
}

/// The activity of a keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeeperStatus {
    pub(super) is_attended: bool,
    /// When it ends without a client, in seconds from now.
    pub(super) seconds_left: Option<u64>,
    pub(super) seconds: u64,
    pub(super) open_cells: usize,
    /// The number of people at prompts.
    #[serde(default)]
    pub(super) people: usize,
    pub(super) left: Vec<String>,
    /// The memory of its processes, in bytes, where that is known.
    pub(super) memory: Option<u64>,
    /// The limits around it, and what is in use.
    #[serde(default)]
    pub(super) limits: Vec<LimitUse>,
}

/// A line, with its end.
pub(super) fn line(words: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(words)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a line.
pub(super) fn understand<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Connects to a keeper, whose answers are waited for as long as a greeting may take. Blocks.
pub(super) fn connect(entry: &SessionEntry) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(entry.socket())?;
    // The directory is this user's alone; the process behind the socket has to be, too.
    if peer(&stream)? != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    stream.set_read_timeout(Some(GREETING_TIME))?;
    stream.set_write_timeout(Some(GREETING_TIME))?;
    Ok(stream)
}

/// The user of the process at the other end.
fn peer(stream: &UnixStream) -> io::Result<u32> {
    #[cfg(target_os = "linux")]
    let user = rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw();
    #[cfg(not(target_os = "linux"))]
    let user = nix::unistd::getpeereid(stream)?.0.as_raw();
    Ok(user)
}

/// Says what is wanted of a keeper; `None` if it hangs up. Blocks.
pub(super) fn greet(
    says: &mut UnixStream,
    lines: &mut BufReader<UnixStream>,
    wish: &KeeperRequest,
) -> io::Result<Option<KeeperAnswer>> {
    says.write_all(&line(wish)?)?;
    let mut words = Vec::new();
    lines.take(LINE_BYTES as u64).read_until(b'\n', &mut words)?;
    if words.is_empty() { Ok(None) } else { understand(&words).map(Some) }
}
