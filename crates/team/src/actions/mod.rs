//! Actions that users have published: Python functions for everybody.
//!
//! ```text
//! session ═ question ═ board ─→ approver
//!                        └────→ waiting file → record of decisions → actions/<name>/<version>.json
//! ```
//!
//! The server keeps the arguments of the very question that an approver has allowed. It does so in two steps around the decision's
//! record: after a kill in between, the next start finishes it. Versions are published one at a time, in the order of their decisions.

mod config;
mod kept;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

pub use self::config::ActionTable;
pub(crate) use self::kept::KeptActions;
pub use self::kept::TeamAction;
use crate::storage::{read_bounded, replace};
use crate::users::UserAccounts;

/// The largest file of an action, in bytes.
const FILE_BYTES: u64 = 1024 * 1024;
/// The reason if an approver's answer is about another question by now.
const OUTDATED: &str =
    "the published version has changed while the question waited: publish the action again";
/// The reason if a version that is allowed is not published.
const UNDONE: &str = "the server could not put it into its place: its log says why, and it tries again before the next one and at its start";

/// Checks the arguments of a question about an action, of which nothing is trusted: the names of what would be published, or why it
/// cannot be.
pub type ActionCheck = fn(&Map<String, Value>) -> Result<CheckedAction, String>;

/// The names of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedAction {
    /// Its subject.
    pub category: String,
    /// The name, which no other published action has, and which names a directory.
    pub name: String,
}

/// Publishes actions that approvers allow.
pub(crate) struct TeamActions {
    table: ActionTable,
    check: ActionCheck,
    kept: KeptActions,
    /// The directory for actions whose decisions are being written.
    waiting: PathBuf,
    /// The action that is allowed and could not be put into its place. Locked while one is published.
    undone: Mutex<Option<PublishedFile>>,
}

/// Why an approver's answer does not count.
#[derive(Debug)]
pub(crate) enum PublishFault {
    /// It was about another question, for this reason.
    Outdated(String),
    /// The decision is not written.
    Unwritten(io::Error),
}

impl From<io::Error> for PublishFault {
    fn from(error: io::Error) -> Self {
        Self::Unwritten(error)
    }
}

/// The file of a published version. Those who run it read `time` and `action`.
#[derive(Serialize, Deserialize)]
pub(crate) struct PublishedFile {
    /// The id of the question, and the digest of the call that was decided about.
    pub(crate) question: String,
    pub(crate) digest: String,
    /// When it was decided, in seconds since 1970.
    pub(crate) time: u64,
    /// The user who has published it.
    pub(crate) publisher: String,
    /// The approver.
    pub(crate) by: String,
    /// The arguments of the question.
    pub(crate) action: Map<String, Value>,
}

impl TeamActions {
    /// Those in the directory of a server. What was decided and not published before the server ended is published now:
    /// `is_allowed` says whether a decision of this question, about a call with this digest, is written.
    pub(crate) fn open(
        accounts: &UserAccounts,
        table: ActionTable,
        check: ActionCheck,
        is_allowed: impl Fn(&str, &str) -> bool,
    ) -> io::Result<Self> {
        let kept = KeptActions::in_directory(accounts.actions());
        let waiting = accounts.decided_actions();
        let actions = Self { table, check, kept, waiting, undone: Mutex::default() };
        actions.finish(is_allowed)?;
        Ok(actions)
    }

    /// Those who decide.
    pub(crate) fn table(&self) -> &ActionTable {
        &self.table
    }

    /// Checks what would be published. Returns what an approver is to know about it, beside what it is.
    ///
    /// # Errors
    /// It cannot be published, for this reason.
    pub(crate) fn look_at(&self, action: &Map<String, Value>) -> Result<Option<String>, String> {
        let checked = (self.check)(action)?;
        let newest = self.kept.newest(&checked.name).map_err(|error| {
            tracing::error!(%error, "a published action cannot be read");
            "the server cannot read what is published: its operator can read why"
        })?;
        let Some(TeamAction { category, name, version, publisher, by, .. }) = newest else { return Ok(None) };
        if category != checked.category {
            return Err(format!("`{category}.{name}` is published already: choose another name"));
        }
        Ok(Some(format!("it replaces version {version}, which {publisher} has published and {by} allowed")))
    }

    /// Publishes an action that an approver has allowed with this note in view, once `write` has written the decision. Blocks.
    ///
    /// # Errors
    /// The decision is not written, and must not count.
    pub(crate) fn publish(
        &self,
        file: PublishedFile,
        note: Option<&str>,
        write: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), PublishFault> {
        let mut undone = self.undone.lock();
        if let Some(earlier) = &*undone {
            self.put(earlier)?;
            *undone = None;
        }
        // Another version may have been published since it was asked, which the approver does not know of.
        if self.look_at(&file.action).map_err(PublishFault::Outdated)?.as_deref() != note {
            return Err(PublishFault::Outdated(OUTDATED.to_owned()));
        }
        let waiting = self.waiting_file(&file.question);
        replace(&waiting, &serde_json::to_vec(&file).map_err(io::Error::from)?)?;
        if let Err(error) = write() {
            // What stays has no decision, and goes at the next start.
            std::fs::remove_file(&waiting).ok();
            return Err(error.into());
        }
        *undone = self.put_or_log(file);
        Ok(())
    }

    /// Why the action that this question has asked about is not published although it is allowed.
    pub(crate) fn undone(&self, question: &str) -> Option<&'static str> {
        let undone = self.undone.lock();
        undone.as_ref().filter(|file| file.question == question).map(|_| UNDONE)
    }

    /// Publishes what was decided before, and removes what was not.
    fn finish(&self, is_allowed: impl Fn(&str, &str) -> bool) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.waiting)? {
            let path = entry?.path();
            let file: Option<PublishedFile> = serde_json::from_slice(&read_bounded(&path, FILE_BYTES)?).ok();
            let is_decided = |file: &PublishedFile| {
                path == self.waiting_file(&file.question) && is_allowed(&file.question, &file.digest)
            };
            match file.filter(is_decided) {
                Some(file) => *self.undone.lock() = self.put_or_log(file),
                None => std::fs::remove_file(&path)?,
            }
        }
        Ok(())
    }

    /// Publishes it, or returns it.
    fn put_or_log(&self, file: PublishedFile) -> Option<PublishedFile> {
        let error = self.put(&file).err()?;
        tracing::error!(%error, "what an approver has allowed could not be published: it is tried again");
        Some(file)
    }

    /// Makes its waiting file the newest version of an action.
    fn put(&self, file: &PublishedFile) -> io::Result<()> {
        let CheckedAction { name, .. } = (self.check)(&file.action).map_err(io::Error::other)?;
        let waiting = self.waiting_file(&file.question);
        // All users read it, and none can write it.
        std::fs::set_permissions(&waiting, Permissions::from_mode(0o644))?;
        self.kept.add(&name, &waiting)
    }

    fn waiting_file(&self, question: &str) -> PathBuf {
        self.waiting.join(format!("{:x}.json", Sha256::digest(question)))
    }
}

#[cfg(test)]
mod tests;
