//! Sessions that a front's clients have had: they go on, or are begun anew with the variables that they have saved.
//!
//! ```text
//! lives, same settings ─→ attended, also by a newer program
//! lives, other settings ─→ idle: ended, and begun anew under its id; at work: left, and a new one begins
//! has ended ─→ begun anew under its id
//! ```

use std::time::{Duration, Instant};

use super::Error;
use super::entry::{EntryDescription, SessionEntry, is_session_id};
use super::front::FrontWish;
use super::greeting::{KeeperAnswer, KeeperRequest};
use super::list::{STARTING, ask, has_ended, status_of};
use super::relay::{KeeperConnection, NewSession, WantedSession, attend};
use crate::config::workspace_state_dir;
use crate::faces::mcp_server::saved_sessions;

/// The interval of looks at a session that starts.
const LOOK: Duration = Duration::from_millis(20);

/// The time after which the entry of a process that starts is locked, or nobody will lock it.
const LOCKING: Duration = Duration::from_secs(20);

/// The reason of an end for the next client.
const OUTDATED: &str = "the settings of its server have changed";

impl WantedSession<'_> {
    /// The session with this id, which the client has had; else what one begins with that takes its place.
    pub(super) async fn go_on(&self, id: &str) -> Result<Result<KeeperConnection, NewSession>, Error> {
        let entry = SessionEntry::of(self.states, id);
        if let Some(description) = blocking(&entry, described).await? {
            // What holds a session can be older than the program that looks for it.
            let likeness = self.likeness.of_program(description.likeness.program);
            if let Ok(Ok(Some(mut attended))) = attend(entry.clone(), &likeness, self.keep, None, true).await
            {
                attended.log.skip();
                return Ok(Ok(attended));
            }
            if !blocking(&entry, end_if_idle).await? {
                let note = format!(
                    "This is a new session, with the settings that are in force. The one before works on, and was not taken \
                     over: `ipybox sessions end {id}` ends it."
                );
                return Ok(Err(NewSession { id: None, notes: vec![note] }));
            }
        }
        let ended = entry.read().map(EntryDescription::reason);
        entry.remove();
        let notes = ended.map(|why| format!("This session was begun anew: it had ended, because {why}."));
        Ok(Err(NewSession { id: Some(id.to_owned()), notes: notes.into_iter().collect() }))
    }

    /// The session that has saved variables last, of those that have ended and that no other client will go on with.
    pub(super) fn saved_session(&self, front: &FrontWish) -> Option<String> {
        let saved = saved_sessions(&workspace_state_dir(self.states, self.workspace));
        saved.into_iter().find(|id| {
            is_session_id(id) && front.allows(id) && !SessionEntry::of(self.states, id).path().exists()
        })
    }
}

/// Runs something that blocks about a session.
async fn blocking<T: Send + 'static>(
    entry: &SessionEntry,
    look: impl FnOnce(&SessionEntry) -> T + Send + 'static,
) -> Result<T, Error> {
    let asked = entry.clone();
    tokio::task::spawn_blocking(move || look(&asked))
        .await
        .map_err(|error| Error::Connection { id: entry.id(), source: error.into() })
}

/// The description of a session that lives, as soon as it has one.
fn described(entry: &SessionEntry) -> Option<EntryDescription> {
    let deadline = Instant::now() + STARTING;
    loop {
        let is_held = entry.is_held();
        let description = entry.read();
        match description {
            Some(description) => return is_held.then_some(description),
            // Its process is starting; or it was killed before.
            None if entry.path().exists()
                && Instant::now() < deadline
                && (is_held || entry.age() < LOCKING) =>
            {
                std::thread::sleep(LOOK);
            }
            None => return None,
        }
    }
}

/// Ends a session that says that it runs no cell and has no other client. Returns whether it has ended: one that does not answer
/// may be about to.
fn end_if_idle(entry: &SessionEntry) -> bool {
    match status_of(entry) {
        Some(status) if status.open_cells > 0 => return false,
        Some(_) => {
            let asked = ask(entry, &KeeperRequest::End { why: OUTDATED.to_owned(), only_alone: true });
            match asked {
                Ok(KeeperAnswer::Taken) => return false,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, session = %entry.id(), "a session could not be asked to end");
                }
            }
        }
        None => {}
    }
    has_ended(entry)
}
