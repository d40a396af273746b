//! The sessions of all users, as far as this process has to do with them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rmcp::model::{InitializeRequestParams, InitializeResult};
use rmcp::service::Peer;
use rmcp::{ErrorData, RoleServer};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::records::SessionRecords;
use super::user_session::{SessionClient, UserSession};
use crate::front::RequestUser;
use crate::users::SessionStarter;

/// The sessions of all users.
pub(crate) struct SessionDirectory {
    starter: Arc<SessionStarter>,
    records: Arc<SessionRecords>,
    /// The sessions of requests that begin none, by their users.
    shared: Mutex<HashMap<String, Arc<UserSession>>>,
    /// All sessions, also those that have ended.
    open: Mutex<Vec<Weak<UserSession>>>,
    calls: TaskTracker,
}

impl SessionDirectory {
    pub(crate) fn records(&self) -> &Arc<SessionRecords> {
        &self.records
    }

    pub(crate) fn new(starter: Arc<SessionStarter>, records: Arc<SessionRecords>) -> Self {
        let (shared, open, calls) = Default::default();
        Self { starter, records, shared, open, calls }
    }

    /// The session of a user's requests that begin none.
    pub(crate) fn shared(&self, user: &RequestUser) -> Arc<UserSession> {
        let mut shared = self.shared.lock();
        let session = shared.entry(user.place.key.clone()).or_insert_with(|| {
            let slot = self.records.shared_slot(&user.place.key);
            let place = Arc::clone(&user.place);
            self.noted(UserSession::new(place, Arc::clone(&self.starter), slot, None))
        });
        Arc::clone(session)
    }

    /// Begins a session for a client.
    pub(crate) async fn begin(
        &self,
        user: &RequestUser,
        params: InitializeRequestParams,
        peer: Peer<RoleServer>,
    ) -> Result<(Arc<UserSession>, InitializeResult), ErrorData> {
        let client = Some(SessionClient { params, peer });
        let place = Arc::clone(&user.place);
        let session = UserSession::new(place, Arc::clone(&self.starter), Arc::clone(&user.slot), client);
        let session = self.noted(session);
        let result = session.begin().await?;
        Ok((session, result))
    }

    /// Ends the processes of all sessions without an open call.
    pub(crate) async fn close(&self) {
        let open: Vec<Arc<UserSession>> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        for session in open {
            session.close().await;
        }
    }

    fn noted(&self, session: UserSession) -> Arc<UserSession> {
        let session = Arc::new(session);
        let mut open = self.open.lock();
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&session));
        session
    }

    /// Notes that a call is open, as long as the result lives.
    pub(crate) fn call_begins(&self) -> TaskTrackerToken {
        self.calls.token()
    }

    /// Waits until no call is open. Calls that begin meanwhile are waited for too.
    pub(crate) async fn calls_have_ended(&self) {
        self.calls.close();
        self.calls.wait().await;
    }
}
