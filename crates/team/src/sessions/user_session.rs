//! A session of a user: its process is started when it is needed, and ends when it has not been needed for a time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    ClientNotification, ClientRequest, InitializeRequest, InitializeRequestParams, InitializeResult,
    InitializedNotification, RootsListChangedNotification, ServerResult,
};
use rmcp::service::Peer;
use rmcp::{ErrorData, RoleServer};
use tokio::time::Instant;

use super::caller::error_data;
use super::link::SessionLink;
use super::records::SessionSlot;
use crate::users::{SessionStarter, UserPlace};

/// The time that a process may take until it has answered for the first time.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The reason if a process ends without one.
const NO_WORDS: &str = "it did not say why";

/// A client that has begun a session, as requests of the older generation do.
pub(crate) struct SessionClient {
    pub(crate) params: InitializeRequestParams,
    pub(crate) peer: Peer<RoleServer>,
}

/// A session of a user.
pub(crate) struct UserSession {
    place: Arc<UserPlace>,
    starter: Arc<SessionStarter>,
    slot: Arc<SessionSlot>,
    client: Option<SessionClient>,
    link: tokio::sync::Mutex<Option<Arc<SessionLink>>>,
    last_used: Mutex<Instant>,
}

impl UserSession {
    pub(crate) fn new(
        place: Arc<UserPlace>,
        starter: Arc<SessionStarter>,
        slot: Arc<SessionSlot>,
        client: Option<SessionClient>,
    ) -> Self {
        let last_used = Mutex::new(Instant::now());
        Self { place, starter, slot, client, link: tokio::sync::Mutex::default(), last_used }
    }

    /// Notes that the session is in use.
    pub(crate) fn used(&self) {
        *self.last_used.lock() = Instant::now();
    }

    /// The connection to the process, which is started if there is none.
    pub(crate) async fn link(self: &Arc<Self>) -> Result<Arc<SessionLink>, ErrorData> {
        self.used();
        let mut link = self.link.lock().await;
        match &*link {
            Some(open) if !open.is_closed() => Ok(Arc::clone(open)),
            _ => {
                let (opened, _) = self.open().await?;
                Ok(Arc::clone(link.insert(opened)))
            }
        }
    }

    /// Starts the process for a client that begins its session; the process's answer.
    pub(crate) async fn begin(self: &Arc<Self>) -> Result<InitializeResult, ErrorData> {
        let mut link = self.link.lock().await;
        let (opened, result) = self.open().await?;
        *link = Some(opened);
        result.ok_or_else(|| ErrorData::internal_error("the session has no client", None))
    }

    async fn open(self: &Arc<Self>) -> Result<(Arc<SessionLink>, Option<InitializeResult>), ErrorData> {
        let process = self.starter.start(&self.place, self.slot.wish()).await.map_err(|error| {
            tracing::warn!(user = %self.place.key, error = %crate::describe(&error), "a session could not be started");
            ErrorData::internal_error(format!("your session could not be started: {error}"), None)
        })?;
        let slot = Arc::clone(&self.slot);
        let named = Box::new(move |id: &str| slot.set_keeper(id));
        let client = self.client.as_ref().map(|client| client.peer.clone());
        let link = Arc::new(SessionLink::new(process.output, process.input, client, named));
        let begun = tokio::time::timeout(START_TIMEOUT, self.introduce(&link)).await;
        let result = begun.unwrap_or_else(|_| {
            Err(ErrorData::internal_error("your session did not answer within two minutes", None))
        });
        let result = match result {
            Ok(result) => result,
            Err(error) if link.is_closed() => {
                let why = process.words.last().await;
                tracing::warn!(user = %self.place.key, %why, "a session has ended at its start");
                // What the broken connection says is of sessions that had begun.
                drop(error);
                let why = if why.is_empty() { NO_WORDS } else { &why };
                return Err(ErrorData::internal_error(
                    format!("your session has ended at its start: {why}"),
                    None,
                ));
            }
            Err(error) => return Err(error),
        };
        tokio::spawn(close_when_idle(Arc::downgrade(self), self.starter.idle()));
        Ok((link, result))
    }

    /// Says to the process what the client has said at the beginning.
    async fn introduce(&self, link: &SessionLink) -> Result<Option<InitializeResult>, ErrorData> {
        let Some(client) = &self.client else { return Ok(None) };
        let request = ClientRequest::from(InitializeRequest::new(client.params.clone()));
        let result = link.peer().send_request(request).await.map_err(error_data)?;
        let ServerResult::InitializeResult(result) = result else {
            return Err(ErrorData::internal_error("the session did not introduce itself", None));
        };
        let initialized = ClientNotification::from(InitializedNotification::default());
        link.peer().send_notification(initialized).await.map_err(error_data)?;
        Ok(Some(result))
    }

    /// Tells the process, if there is one: a later one asks anew.
    pub(crate) async fn roots_have_changed(&self) {
        let Some(link) = self.link.lock().await.clone() else { return };
        let changed = ClientNotification::from(RootsListChangedNotification::default());
        if let Err(error) = link.peer().send_notification(changed).await {
            tracing::debug!(%error, "a notification could not be passed on");
        }
    }

    /// Ends the process if the session is idle; the time until the next look, or `None` if there is nothing to look at.
    async fn close_if_idle(&self, idle: Duration) -> Option<Duration> {
        let mut link = self.link.lock().await;
        let open = link.as_ref().filter(|open| !open.is_closed())?;
        let since = self.last_used.lock().elapsed();
        if open.is_busy() || since < idle {
            return Some(idle.saturating_sub(since).max(Duration::from_secs(1)));
        }
        if let Some(open) = link.take() {
            open.close().await;
        }
        None
    }

    /// Ends the process if no call is open.
    pub(crate) async fn close(&self) {
        let mut link = self.link.lock().await;
        if let Some(open) = link.take_if(|open| !open.is_busy()) {
            open.close().await;
        }
    }
}

impl Drop for UserSession {
    fn drop(&mut self) {
        // Without a runtime there is nobody left to speak to the process.
        if let Some(open) = self.link.get_mut().take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(open.close());
        }
    }
}

async fn close_when_idle(session: Weak<UserSession>, idle: Duration) {
    let mut wait = idle;
    loop {
        tokio::time::sleep(wait).await;
        let Some(session) = session.upgrade() else { return };
        match session.close_if_idle(idle).await {
            Some(next) => wait = next,
            None => return,
        }
    }
}
