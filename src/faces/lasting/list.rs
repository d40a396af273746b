//! The kept sessions of a user.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Error;
use super::entry::{SessionEntry, now};
use super::front::FrontWish;
use super::greeting::{KeeperAnswer, KeeperRequest, KeeperStatus, connect, greet};
use super::likeness::SessionLikeness;
use crate::config::states_dir;
use crate::ground::env::Variables;
use crate::ground::process::{LimitUse, memory_of_family};
use crate::ground::text::readable;

/// The number of sessions without a client that are kept.
const MOST_KEPT: usize = 8;

/// The time that the entry of a session that has ended is kept, so that the next client learns why it ended.
const KEPT_AFTER_END: Duration = Duration::from_secs(7 * 24 * 3600);

/// The time after which a session that should have ended, and does not answer, is killed.
const OVERDUE: Duration = Duration::from_secs(300);

/// The time that an entry may have no description: its session is starting.
pub(super) const STARTING: Duration = Duration::from_secs(120);

/// The time that a session may take to end: the processes of MCP servers get time.
const ENDING: Duration = Duration::from_secs(60);

/// The kept sessions of a user, in one directory of states.
#[derive(Debug)]
pub struct KeptSessions {
    pub(super) states: PathBuf,
}

/// A session that is kept.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct KeptSession {
    /// Its id.
    pub id: String,
    /// Its workspace.
    pub workspace: PathBuf,
    /// The process that holds it.
    pub process: u32,
    /// Its age, in seconds.
    pub seconds: u64,
    /// Whether its process answers.
    pub answers: bool,
    /// Whether a client attends it.
    pub is_attended: bool,
    /// When it ends without a client, in seconds from now.
    pub seconds_left: Option<u64>,
    /// The number of cells that run or wait.
    pub open_cells: usize,
    /// The number of people that are attached to it, at the prompt of `ipybox attach`.
    pub people: usize,
    /// The calls for which no client waits, in words.
    pub calls: Vec<String>,
    /// The memory of its processes, in bytes, where that is known.
    pub memory_bytes: Option<u64>,
    /// The limits around it, and what is in use.
    pub limits: Vec<LimitUse>,
    /// The file with its log.
    pub log: PathBuf,
    /// The file of its notebook, if it has one. It is made by the first cell.
    pub notebook: Option<PathBuf>,
}

impl KeptSessions {
    /// Those in this directory of states; `None` is the default one.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn open(state_dir: Option<PathBuf>) -> Result<Self, Error> {
        let here = PathBuf::from(".");
        Ok(Self { states: states_dir(state_dir, &Variables::load(&here))? })
    }

    /// All that live, the oldest first.
    ///
    /// # Errors
    /// Their directory cannot be read.
    pub fn list(&self) -> Result<Vec<KeptSession>, Error> {
        let mut sessions: Vec<KeptSession> = entries(&self.states)?.iter().filter_map(session_of).collect();
        sessions.sort_by(|left, right| right.seconds.cmp(&left.seconds).then(left.id.cmp(&right.id)));
        Ok(sessions)
    }

    /// The session with this id.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, id: &str) -> Result<KeptSession, Error> {
        let mut sessions = self.list()?;
        match sessions.iter().position(|session| session.id == id) {
            Some(place) => Ok(sessions.swap_remove(place)),
            None => {
                let known = sessions.into_iter().map(|session| session.id).collect();
                Err(Error::Unknown { id: id.to_owned(), known })
            }
        }
    }

    /// The entry of the session with this id.
    pub(super) fn entry(&self, id: &str) -> Result<SessionEntry, Error> {
        let entry = entries(&self.states)?.into_iter().find(|entry| entry.id() == id);
        entry.ok_or_else(|| Error::Unknown { id: id.to_owned(), known: Vec::new() })
    }

    /// Ends a session, with all its processes, and waits until it has ended. Returns whether it has: one that has a client is
    /// left if it is to be ended `only_alone`. A process that does not answer is killed.
    ///
    /// # Errors
    /// There is none with this id, or it does not end.
    pub fn end(&self, id: &str, only_alone: bool) -> Result<bool, Error> {
        self.find(id)?;
        let entry = entries(&self.states)?.into_iter().find(|entry| entry.id() == id);
        let Some(entry) = entry else { return Ok(true) };
        let failed = |source| Error::Connection { id: id.to_owned(), source };
        let why = "the user ended it".to_owned();
        match ask(&entry, &KeeperRequest::End { why: why.clone(), only_alone }) {
            Ok(KeeperAnswer::Taken) => return Ok(false),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, session = %id, "the session does not answer; killing its process");
                kill(&entry, why).map_err(failed)?;
            }
        }
        if has_ended(&entry) {
            return Ok(true);
        }
        let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "it has not ended yet");
        Err(failed(source))
    }
}

/// Waits for the end of a session that is ending. Returns whether it has come in time.
pub(super) fn has_ended(entry: &SessionEntry) -> bool {
    let deadline = Instant::now() + ENDING;
    while entry.is_held() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    !entry.is_held()
}

/// Kills the process of a session. Its guardian kills what it has started.
fn kill(entry: &SessionEntry, why: String) -> std::io::Result<()> {
    let Some(mut description) = entry.read().filter(|_| entry.is_held()) else { return Ok(()) };
    let process = i32::try_from(description.process).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(process) = process {
        rustix::process::kill_process(process, rustix::process::Signal::KILL)?;
    }
    description.ended = Some(why);
    entry.describe(&description)
}

/// The entries of sessions; those of sessions that nobody asks about any more are removed.
fn entries(states: &Path) -> Result<Vec<SessionEntry>, Error> {
    let all = SessionEntry::all(states);
    let all = all.map_err(|source| Error::Directory { path: states.to_owned(), source })?;
    Ok(all.into_iter().filter(|entry| !remove_if_forgotten(entry)).collect())
}

fn remove_if_forgotten(entry: &SessionEntry) -> bool {
    if entry.is_held() {
        return false;
    }
    let limit = match entry.read() {
        Some(_) => KEPT_AFTER_END,
        None => STARTING,
    };
    let is_forgotten = entry.age() > limit;
    if is_forgotten {
        entry.remove();
    }
    is_forgotten
}

/// The session of an entry; `None` if it has ended or is starting or ending.
fn session_of(entry: &SessionEntry) -> Option<KeptSession> {
    let description = entry.read().filter(|_| entry.is_held())?;
    let answers = status_of(entry);
    let status = answers.as_ref();
    let seconds = now().saturating_sub(description.began) / 1000;
    Some(KeptSession {
        answers: status.is_some(),
        id: entry.id(),
        workspace: description.workspace,
        process: description.process,
        seconds: status.map_or(seconds, |status| status.seconds),
        is_attended: status.map_or(description.alone_since.is_none(), |status| status.is_attended),
        seconds_left: status.and_then(|status| status.seconds_left),
        open_cells: status.map_or(0, |status| status.open_cells),
        people: status.map_or(0, |status| status.people),
        memory_bytes: status.map_or_else(|| memory_of_family(description.process), |status| status.memory),
        limits: status.map(|status| status.limits.clone()).unwrap_or_default(),
        calls: answers.map(|status| status.left).unwrap_or_default(),
        log: entry.log(),
        notebook: description.notebook,
    })
}

pub(super) fn status_of(entry: &SessionEntry) -> Option<KeeperStatus> {
    match ask(entry, &KeeperRequest::Status) {
        Ok(KeeperAnswer::Status(status)) => Some(status),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, session = %entry.id(), "a session does not answer");
            None
        }
    }
}

/// Asks a keeper something that it answers by one line.
pub(super) fn ask(entry: &SessionEntry, wish: &KeeperRequest) -> std::io::Result<KeeperAnswer> {
    let mut stream = connect(entry)?;
    let mut lines = BufReader::new(stream.try_clone()?);
    greet(&mut stream, &mut lines, wish)?.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// Kills sessions whose time is over, and whose processes do not answer: nothing else would ever end them.
pub(super) fn end_overdue(states: &Path) {
    let Ok(entries) = entries(states) else { return };
    for entry in entries.into_iter().filter(|entry| is_overdue(entry) && status_of(entry).is_none()) {
        tracing::warn!(session = %entry.id(), "killing a kept session that did not end by itself");
        let why = "no client took it over, and it did not end by itself".to_owned();
        if let Err(error) = kill(&entry, why) {
            tracing::warn!(%error, session = %entry.id(), "a kept session could not be killed");
        }
    }
}

/// Says whether nobody has attended the session for longer than it is kept. One that answers knows better: a machine may have
/// slept.
fn is_overdue(entry: &SessionEntry) -> bool {
    let Some(description) = entry.read().filter(|_| entry.is_held()) else { return false };
    let kept = Duration::from_secs(description.keep_seconds).saturating_add(OVERDUE);
    description.alone_since.is_some_and(|since| u128::from(now().saturating_sub(since)) > kept.as_millis())
}

/// Ends the sessions that have been without a client for longest, if there are too many.
pub(super) fn end_more_than_may_be_kept(states: &Path) {
    let Ok(entries) = entries(states) else { return };
    let alone = |entry: SessionEntry| Some((entry.read()?.alone_since?, entry));
    let mut kept: Vec<(u64, SessionEntry)> =
        entries.into_iter().filter(SessionEntry::is_held).filter_map(alone).collect();
    kept.sort_by_key(|(since, _)| *since);
    let surplus = kept.len().saturating_sub(MOST_KEPT);
    for (_, entry) in kept.into_iter().take(surplus) {
        let why = format!("more than {MOST_KEPT} sessions were kept without a client, and it was the oldest");
        tracing::warn!(session = %entry.id(), %why, "ending a kept session");
        if let Err(error) = ask(&entry, &KeeperRequest::End { why, only_alone: true }) {
            tracing::warn!(%error, session = %entry.id(), "a kept session could not be ended");
        }
    }
}

/// The sessions of a workspace as a new client finds them.
pub(super) struct FoundSessions {
    /// Those that it may take over, the last one left first.
    pub(super) alike: Vec<SessionEntry>,
    /// The notes about other sessions.
    pub(super) notes: Vec<String>,
    /// The end of the last one that could have been taken over.
    pub(super) ended: Option<String>,
}

/// Looks for sessions that a client which would begin one in this way can take over.
pub(super) fn find(
    states: &Path,
    workspace: &Path,
    likeness: &SessionLikeness,
    front: Option<&FrontWish>,
) -> Result<FoundSessions, Error> {
    let mut alike = Vec::new();
    let mut others = BTreeMap::<_, Vec<String>>::new();
    let mut ended = None;
    let workspace = readable(workspace);
    let is_allowed = |entry: &SessionEntry| front.is_none_or(|front| front.allows(&entry.id()));
    for entry in entries(states)?.into_iter().filter(is_allowed) {
        // Before its description is read: until it has ended, a session may still write why.
        let is_held = entry.is_held();
        let Some(description) = entry.read().filter(|description| description.workspace == workspace) else {
            continue;
        };
        if description.likeness.conversation != likeness.conversation {
            // It waits for that conversation, and if it has ended, so do the words about it.
            if is_held && description.alone_since.is_some() {
                others.entry("in another conversation").or_default().push(entry.id());
            }
            continue;
        }
        let has_same_settings = description.likeness.settings == likeness.settings;
        match (is_held, description.alone_since) {
            // Also if a client has it: that may be about to go.
            (true, since) if description.likeness.program == likeness.program && has_same_settings => {
                alike.push((since.unwrap_or_default(), entry));
            }
            (true, Some(_)) => {
                let difference = if has_same_settings {
                    "with another version of ipybox"
                } else {
                    "with other flags, files or variables"
                };
                others.entry(difference).or_default().push(entry.id());
            }
            // Another client has it.
            (true, None) => {}
            (false, _) if has_same_settings => {
                let last_used = description.alone_since.unwrap_or(description.began);
                let why = description.reason();
                ended = ended.max(Some((last_used, why)));
                entry.remove();
            }
            (false, _) => {}
        }
    }
    let notes = others.into_iter().map(|(difference, ids)| not_taken(difference, &ids)).collect();
    let ended = ended.map(|(last_used, why)| {
        let ago = match now().saturating_sub(last_used) / 1000 {
            seconds @ ..120 => format!("{seconds} s"),
            seconds => format!("{} min", seconds / 60),
        };
        format!("which was left {ago} ago, has ended, because {why}.")
    });
    alike.sort_by_key(|(since, _)| std::cmp::Reverse(*since));
    Ok(FoundSessions { alike: alike.into_iter().map(|(_, entry)| entry).collect(), notes, ended })
}

/// A note about sessions that were begun in another way.
fn not_taken(difference: &str, ids: &[String]) -> String {
    let (which, them) = match ids.len() {
        1 => ("A session of this workspace that was begun".to_owned(), "it"),
        count => (format!("{count} sessions of this workspace that were begun"), "them"),
    };
    let verb = if ids.len() == 1 { "is" } else { "are" };
    format!(
        "{which} {difference} {verb} kept, and not taken over. The user can end {them}: `ipybox sessions end {}`.",
        ids.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::super::entry::EntryDescription;
    use super::*;

    fn description(workspace: &Path, likeness: &SessionLikeness) -> EntryDescription {
        EntryDescription {
            workspace: workspace.to_owned(),
            likeness: likeness.clone(),
            process: 0,
            began: 0,
            alone_since: Some(0),
            keep_seconds: 0,
            notebook: None,
            ended: None,
        }
    }

    /// A client's findings about a session that ends at this moment.
    fn end_while_found(root: &Path, likeness: &SessionLikeness) -> String {
        let entry = SessionEntry::create(root, None).unwrap();
        let held = entry.hold().unwrap();
        let mut description = description(root, likeness);
        entry.describe(&description).unwrap();
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                description.ended = Some("the user ended it".to_owned());
                entry.describe(&description).unwrap();
                drop(held);
            });
            begin.wait();
            loop {
                if let Some(ended) = find(root, root, likeness, None).unwrap().ended {
                    return ended;
                }
            }
        })
    }

    #[test]
    fn a_session_that_ends_at_this_moment_says_why() {
        let root = tempfile::tempdir().unwrap();
        let likeness = serde_json::from_str(r#"{"program": "", "settings": "", "variables": {}}"#).unwrap();
        let ended = (0..500).map(|_| end_while_found(root.path(), &likeness));
        let wrong: Vec<String> = ended.filter(|ended| !ended.contains("the user ended it")).collect();
        assert!(wrong.is_empty(), "{} of 500: {}", wrong.len(), wrong[0]);
    }
}
