//! The owner of a checkpoint: the workspace, or a session that is found again by its id.

use std::path::{Path, PathBuf};

use super::directory::{SavedContent, remove_all, saved_content};
use super::manifest::{KEPT_FOR, TOTAL_BYTES};

/// The number of sessions of a workspace whose variables are kept, and of bytes that those together may take which have
/// ended.
const MOST_SESSIONS: usize = 16;
const MOST_BYTES: u64 = 4 * TOTAL_BYTES;

/// The kernels that are to have saved variables back.
#[derive(Debug, Clone, Default)]
pub(crate) enum CheckpointOwner {
    /// Those of the workspace's next session.
    #[default]
    Workspace,
    /// Those of the session with this id, after it has ended and is begun anew.
    Session {
        /// Its id, which is a file name.
        id: String,
        /// Whether its client had it before, and gets its variables back unasked.
        is_resumed: bool,
    },
    /// Those of one session beside a client's own, until it ends. Its variables are saved only before its kernel rests.
    Beside {
        /// A file name that no other session has.
        id: String,
    },
}

impl CheckpointOwner {
    pub(super) fn is_resumed(&self) -> bool {
        matches!(self, Self::Session { is_resumed: true, .. })
    }

    pub(super) fn is_beside(&self) -> bool {
        matches!(self, Self::Beside { .. })
    }

    /// The directory of all conditions below the state directory of a workspace. What sessions have saved that have ended is
    /// removed if it is nothing, old, or too much; the newest stays.
    pub(super) fn directory(&self, state_dir: &Path) -> PathBuf {
        let beside = state_dir.join("checkpoints-beside");
        // Of sessions that were killed.
        for left in std::fs::read_dir(&beside).into_iter().flatten().flatten() {
            remove_all(&left.path());
        }
        match self {
            Self::Workspace => state_dir.join("checkpoints"),
            Self::Beside { id } => beside.join(id),
            Self::Session { id, .. } => {
                let sessions = of_sessions(state_dir);
                let others = newest_first(&sessions).into_iter().filter(|(other, _)| other != id);
                let mut bytes = 0;
                for (place, (other, content)) in others.enumerate() {
                    bytes += content.as_ref().map_or(0, |content| content.bytes);
                    let is_kept = content.is_some_and(|content| !content.is_old())
                        && place + 1 < MOST_SESSIONS
                        && bytes <= MOST_BYTES;
                    if !is_kept {
                        remove_all(&sessions.join(other));
                    }
                }
                sessions.join(id)
            }
        }
    }
}

fn of_sessions(state_dir: &Path) -> PathBuf {
    state_dir.join("session-checkpoints")
}

/// The ids of the sessions that have saved variables in the state directory of a workspace, the newest first.
pub(crate) fn saved_sessions(state_dir: &Path) -> Vec<String> {
    let sessions = newest_first(&of_sessions(state_dir)).into_iter();
    sessions.filter_map(|(id, content)| content.map(|_| id)).collect()
}

/// The sessions with what they have saved. Those without variables are the last.
fn newest_first(sessions: &Path) -> Vec<(String, Option<SavedContent>)> {
    let entries = std::fs::read_dir(sessions).into_iter().flatten().flatten();
    let mut found: Vec<(String, Option<SavedContent>)> = entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, saved_content(&entry.path()))))
        .collect();
    found.sort_by_key(|(_, content)| std::cmp::Reverse(content.as_ref().map(|content| content.saved)));
    found
}

impl SavedContent {
    fn is_old(&self) -> bool {
        self.saved.elapsed().is_ok_and(|age| age > KEPT_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::super::directory::CheckpointDirectory;
    use super::super::manifest::{CheckpointConditions, CheckpointContent, Manifest, SavedVariable};
    use super::*;

    #[test]
    fn a_session_without_variables_is_none_that_one_could_go_on_with() {
        let state_dir = tempfile::tempdir().unwrap();
        let owner = CheckpointOwner::Session { id: "0123abcd".to_owned(), is_resumed: false };
        assert!(saved_sessions(state_dir.path()).is_empty());
        std::fs::create_dir_all(owner.directory(state_dir.path())).unwrap();
        assert!(saved_sessions(state_dir.path()).is_empty());
    }

    /// Saves a variable of this size for a session, and returns its open directory.
    fn save(state_dir: &Path, id: &str, bytes: u64, age: u64) -> CheckpointDirectory {
        let conditions = CheckpointConditions::default();
        let base = of_sessions(state_dir).join(id);
        let (directory, _) = CheckpointDirectory::open(&base, &conditions, "3.12").ok().unwrap();
        let (name, digest) = ("x".to_owned(), "0".to_owned());
        let variables = vec![SavedVariable { name, digest, bytes, saved_at: 0 }];
        let content = CheckpointContent { variables, missing: Vec::new() };
        directory.write(&Manifest { content, ..Manifest::default() }).unwrap();
        let file = directory.value("manifest.json");
        let saved = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        std::fs::File::options().write(true).open(file).unwrap().set_modified(saved).unwrap();
        directory
    }

    #[test]
    fn the_newest_sessions_are_kept_and_those_that_live() {
        let state_dir = tempfile::tempdir().unwrap();
        let living = save(state_dir.path(), "living", 1, 1000);
        for number in 0..20 {
            drop(save(state_dir.path(), &format!("session{number:02}"), 1, number));
        }
        let owner = CheckpointOwner::Session { id: "session19".to_owned(), is_resumed: true };
        owner.directory(state_dir.path());
        let kept = saved_sessions(state_dir.path());
        let expected: Vec<String> = (0..15).map(|number| format!("session{number:02}")).collect();
        assert_eq!(kept[..15], expected);
        assert_eq!(kept[15..], ["session19", "living"]);
        drop(living);
        drop(save(state_dir.path(), "session00", MOST_BYTES, 0));
        owner.directory(state_dir.path());
        assert_eq!(saved_sessions(state_dir.path()), ["session00", "session19"]);
    }
}
