//! Sessions that outlive their clients.
//!
//! ```text
//! MCP client ── stdio ── relay ══ private Unix socket ══ keeper ── mcp_server ── Session
//! ```
//!
//! The keeper is a process of its own, which holds the session. The relay is what the MCP client starts: it finds a session
//! that nobody attends and that was begun in the same way, or starts a keeper, and then passes bytes on. If the client or the
//! relay ends, however that happens, the keeper notices the end of the connection and waits for the next one.

mod approvals;
mod attending;
mod entry;
mod front;
mod greeting;
mod join;
mod keeper;
mod likeness;
mod list;
mod notebooks;
mod prompts;
mod relay;
mod resume;

use std::path::PathBuf;
use std::time::Duration;

pub use self::front::FrontWish;
pub use self::join::{JoinedKernel, JoinedSession, SessionReader, SessionWriter, join};
pub use self::keeper::keep_session;
pub use self::list::{KeptSession, KeptSessions};
pub use self::relay::relay;
pub use crate::faces::mcp_server::{CellAuthor, PersonMessage, PromptAnswer, SessionMessage, named_rows};

/// Removes a directory that code of sessions which have ended could write, with all that is in it. No link is followed. Blocks.
///
/// # Errors
/// It cannot be removed as a whole.
pub fn remove_directory(directory: &std::path::Path) -> std::io::Result<()> {
    crate::ground::files::remove_tree(directory)
}

/// Why a lasting session cannot be served, or reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings are of no use.
    #[error(transparent)]
    Config(#[from] crate::config::Error),
    /// The session cannot be served.
    #[error(transparent)]
    Serve(#[from] crate::faces::mcp_server::Error),
    /// The directory of kept sessions cannot be used.
    #[error("use the directory of kept sessions `{}`", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The path of the socket is longer than the system allows.
    #[error(
        "keep the session: the path of its socket, `{}`, is longer than {limit} bytes\n\
         hint: choose a shorter directory with `--state-dir`", path.display()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The process that holds the session cannot be started.
    #[error("start the process that keeps the session")]
    Start(#[source] std::io::Error),
    /// The process that holds the session has ended before it could serve. Its messages have been shown.
    #[error("start the process that keeps the session: it ended at once")]
    EndedAtOnce,
    /// The connection to the process that holds the session has failed.
    #[error("speak to the kept session `{id}`")]
    Connection {
        /// The session.
        id: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The process that holds the session has ended while it was used.
    #[error("go on: the session `{id}` has ended")]
    Ended {
        /// The session.
        id: String,
    },
    /// No session can be attached to.
    #[error(
        "attach to a session: none is kept\n\
         hint: a client's session can be attached to if its ipybox was started with `--keep-session`, as `--keep-session 30m`"
    )]
    NoneToJoin,
    /// There are several sessions to attach to.
    #[error("attach to a session: there are several{}\nhint: name one: `ipybox attach ID`", lines(sessions))]
    SeveralToJoin {
        /// Their ids and workspaces.
        sessions: Vec<(String, PathBuf)>,
    },
    /// The session cannot be attached to.
    #[error("attach to the session `{id}`: {why}")]
    NotJoined {
        /// The session.
        id: String,
        /// Why.
        why: String,
    },
    /// ipybox has made no notebook for this workspace.
    #[error(
        "find a notebook of `{}`: there is none\nhint: sessions write one there with `--notebook auto`, and it is there after the first cell",
        path.display()
    )]
    NoNotebook {
        /// The workspace.
        path: PathBuf,
    },
    /// There is no notebook of this session.
    #[error(
        "find the notebook of the session `{id}`: there is none\n\
         hint: sessions write one with `--notebook`, and it is there after the first cell"
    )]
    NoNotebookOf {
        /// The id.
        id: String,
    },
    /// There is no such session.
    #[error("find the session `{id}`: {}", there_are(known))]
    Unknown {
        /// Its id.
        id: String,
        /// The ids of those that there are.
        known: Vec<String>,
    },
}

fn lines(sessions: &[(String, PathBuf)]) -> String {
    sessions.iter().map(|(id, workspace)| format!("\n  {id}  {}", workspace.display())).collect()
}

fn there_are(known: &[String]) -> String {
    match known {
        [] => "no session is kept".to_owned(),
        known => format!("there are `{}`", known.join("`, `")),
    }
}

/// The rules for keeping a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeepRules {
    /// The time that it waits for a client.
    pub time: Duration,
    /// Its entry in the directory of sessions.
    pub entry: PathBuf,
    /// The wish of the front that has begun it; `None` for an MCP client itself.
    pub front: Option<FrontWish>,
}

impl KeepRules {
    /// A session that is kept for `time`, with the entry that the relay has made.
    pub fn new(time: Duration, entry: PathBuf, front: Option<FrontWish>) -> Self {
        Self { time, entry, front }
    }
}

/// The time that the processes wait for each other's first words.
const GREETING_TIME: Duration = Duration::from_secs(10);
