//! The sessions of clients: kept in files, so that clients go on after the front was started anew.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::InitializeRequestParams;
use rmcp::transport::streamable_http_server::session::store::{
    SessionState, SessionStore, SessionStoreError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::storage::{now, read_bounded, replace};

/// The time for which a session's record is kept that nobody uses.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// The interval at which the use of a session is written.
const NOTED: Duration = Duration::from_secs(3600);
/// The largest record, in bytes.
const RECORD_BYTES: u64 = 1024 * 1024;

/// A client's session, as it is known.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SessionRecord {
    /// The id that the client has for it.
    id: String,
    /// The key of its user; empty until it is known.
    owner: String,
    /// The session of ours that it is.
    keeper: Option<String>,
    /// The client's words at the beginning.
    params: Option<InitializeRequestParams>,
    /// When it was last used, in seconds since 1970.
    used: u64,
}

/// The sessions of all clients.
pub(crate) struct SessionRecords {
    directory: PathBuf,
    records: Mutex<HashMap<String, SessionRecord>>,
    /// The number of sessions that a user can have.
    most: usize,
}

impl SessionRecords {
    /// Reads the records in a directory, and removes those that are old.
    pub(crate) fn open(directory: PathBuf, most: usize) -> io::Result<Self> {
        let mut records = HashMap::new();
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            match read(&path) {
                Some(record) if now().saturating_sub(record.used) < KEPT.as_secs() => {
                    records.insert(record.id.clone(), record);
                }
                _ => std::fs::remove_file(&path)?,
            }
        }
        Ok(Self { directory, records: Mutex::new(records), most })
    }

    /// Whether the user with this key has a session with this id. Notes that it is used.
    pub(crate) fn is_owned(&self, id: &str, owner: &str) -> bool {
        let mut records = self.records.lock();
        let Some(record) = records.get_mut(id).filter(|record| record.owner == owner) else { return false };
        if now().saturating_sub(record.used) > NOTED.as_secs() {
            record.used = now();
            self.write(record);
        }
        true
    }

    /// The place for a session of a user: the one with this id, or a new one.
    pub(crate) fn slot(self: &Arc<Self>, owner: &str, id: Option<&str>) -> Arc<SessionSlot> {
        let keeper = id.and_then(|id| self.records.lock().get(id)?.keeper.clone());
        let known = OnceLock::new();
        if let Some(id) = id {
            // It is new.
            known.set(id.to_owned()).ok();
        }
        let records = Arc::clone(self);
        Arc::new(SessionSlot { owner: owner.to_owned(), id: known, keeper: Mutex::new(keeper), records })
    }

    /// The place for the requests of a user that begin no session.
    pub(crate) fn shared_slot(self: &Arc<Self>, owner: &str) -> Arc<SessionSlot> {
        let id = format!("shared {owner}");
        self.change(&id, |record| record.owner = owner.to_owned());
        self.slot(owner, Some(&id))
    }

    /// Notes whose session this is; the ids of those that are one too many.
    pub(crate) fn bind(&self, id: &str, slot: &SessionSlot) -> Vec<String> {
        // Once: a response has one id.
        slot.id.set(id.to_owned()).ok();
        let keeper = slot.keeper.lock().clone();
        self.change(id, |record| {
            record.owner.clone_from(&slot.owner);
            record.keeper = keeper;
        });
        let mut own: Vec<(u64, String)> = {
            let records = self.records.lock();
            let own = records.values().filter(|record| record.owner == slot.owner && record.params.is_some());
            own.filter(|record| record.id != id).map(|record| (record.used, record.id.clone())).collect()
        };
        own.sort();
        let surplus = (own.len() + 1).saturating_sub(self.most);
        let surplus: Vec<String> = own.into_iter().take(surplus).map(|(_, id)| id).collect();
        surplus.iter().for_each(|id| self.remove(id));
        surplus
    }

    /// The sessions of ours that other clients of the user have.
    fn of_others(&self, slot: &SessionSlot) -> Vec<String> {
        let records = self.records.lock();
        let others = records.values().filter(|record| record.owner == slot.owner);
        others
            .filter(|record| Some(&record.id) != slot.id.get())
            .filter_map(|record| record.keeper.clone())
            .collect()
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut SessionRecord)) {
        let mut records = self.records.lock();
        let record = records.entry(id.to_owned()).or_default();
        id.clone_into(&mut record.id);
        record.used = now();
        change(record);
        self.write(record);
    }

    fn remove(&self, id: &str) {
        self.records.lock().remove(id);
        if let Err(error) = std::fs::remove_file(self.path(id))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the record of a session could not be removed");
        }
    }

    fn write(&self, record: &SessionRecord) {
        let written = serde_json::to_vec(record).map_err(io::Error::from);
        if let Err(error) = written.and_then(|record_json| replace(&self.path(&record.id), &record_json)) {
            tracing::error!(%error, "a session could not be noted: its client loses it when the server is restarted");
        }
    }

    /// Ids are secrets: they are not in the names of files.
    fn path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{:x}.json", Sha256::digest(id)))
    }
}

#[async_trait::async_trait]
impl SessionStore for SessionRecords {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let params = self.records.lock().get(id).and_then(|record| record.params.clone());
        Ok(params.map(SessionState::new))
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        self.change(id, |record| record.params = Some(state.initialize_params.clone()));
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.remove(id);
        Ok(())
    }
}

/// The place of one client's session.
pub(crate) struct SessionSlot {
    owner: String,
    /// The client's id for it, once it has one.
    id: OnceLock<String>,
    keeper: Mutex<Option<String>>,
    records: Arc<SessionRecords>,
}

impl SessionSlot {
    /// Notes the session that the client has.
    pub(crate) fn set_keeper(&self, keeper: &str) {
        let keeper = keeper.to_owned();
        *self.keeper.lock() = Some(keeper.clone());
        if let Some(id) = self.id.get() {
            self.records.change(id, |record| record.keeper = Some(keeper));
        }
    }

    /// The session that it wants, in the words of `--front`.
    pub(crate) fn wish(&self) -> Value {
        let session = self.keeper.lock().clone();
        json!({"session": session, "leave": self.records.of_others(self)})
    }
}

fn read(path: &Path) -> Option<SessionRecord> {
    serde_json::from_slice(&read_bounded(path, RECORD_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests;
