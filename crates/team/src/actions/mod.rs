//! Actions that users have published: Python functions for everybody.
//!
//! ```text
//! session ═ question ═ board ─→ approver
//!                        └────→ waiting file → record of decisions → actions/<name>/<version>.json
//! ```
//!
//! The server keeps the arguments of the very question that an approver has allowed. It does so in two steps around the decision's
//! record: after a kill in between, the next start finishes it.

mod config;
mod kept;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

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
        let actions = Self { table, check, kept, waiting: accounts.decided_actions() };
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

    /// Publishes what an approver has allowed, once `write` has written the decision. Blocks.
    ///
    /// # Errors
    /// The decision is not written, and must not count.
    pub(crate) fn publish(
        &self,
        file: &PublishedFile,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let waiting = self.waiting.join(format!("{:x}.json", Sha256::digest(&file.question)));
        replace(&waiting, &serde_json::to_vec(file)?)?;
        if let Err(error) = write() {
            // What stays has no decision, and goes at the next start.
            std::fs::remove_file(&waiting).ok();
            return Err(error);
        }
        self.put_or_log(&waiting, &file.action);
        Ok(())
    }

    /// Publishes what was decided before, and removes what was not.
    fn finish(&self, is_allowed: impl Fn(&str, &str) -> bool) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.waiting)? {
            let path = entry?.path();
            let file: Option<PublishedFile> = serde_json::from_slice(&read_bounded(&path, FILE_BYTES)?).ok();
            match file.filter(|file| is_allowed(&file.question, &file.digest)) {
                Some(file) => self.put_or_log(&path, &file.action),
                None => std::fs::remove_file(&path)?,
            }
        }
        Ok(())
    }

    /// Publishes it now, or at the next start.
    fn put_or_log(&self, waiting: &Path, action: &Map<String, Value>) {
        if let Err(error) = self.put(waiting, action) {
            tracing::error!(%error, "what an approver has allowed could not be published: the next start of the server tries it again");
        }
    }

    /// Makes a waiting file the newest version of its action.
    fn put(&self, waiting: &Path, action: &Map<String, Value>) -> io::Result<()> {
        let CheckedAction { name, .. } = (self.check)(action).map_err(io::Error::other)?;
        // All users read it, and none can write it.
        std::fs::set_permissions(waiting, Permissions::from_mode(0o644))?;
        self.kept.add(&name, waiting)
    }
}

#[cfg(test)]
mod tests;
