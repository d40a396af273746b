//! The sessions of a server: the client's own, and others for agents that share the client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::approval::{Effect, Face, Policy, PolicyError};
use crate::config::{ApprovalMode, Config};
use crate::ground::text::{backticked, describe};
use crate::session::{Session, StartError, ToolOptions};

/// The handle of the client's own session.
pub(super) const OWN: &str = "main";
/// The value that a model passes for a session of its own.
pub(super) const NEW: &str = "new";

/// The number of other sessions at the same time: each has a kernel.
const MOST_OTHERS: usize = 8;

/// After this time without a cell a session ends if another one needs its place.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// The sessions.
pub(super) struct ClientSessions {
    own: OpenSession,
    config: Config,
    others: Mutex<Others>,
}

#[derive(Default)]
struct Others {
    sessions: BTreeMap<String, OpenSession>,
    /// The handles of those that have ended.
    ended: BTreeSet<String>,
    /// The number of sessions that are being opened.
    opening: usize,
    is_stopping: bool,
}

/// A session, with what it is doing.
#[derive(Clone)]
pub(super) struct OpenSession {
    pub(super) session: Arc<Session>,
    /// The cells that have not ended.
    pub(super) cells: TaskTracker,
    /// When the newest cell came.
    used: Arc<Mutex<Instant>>,
}

/// The session that a call is for.
pub(super) struct ChosenSession {
    pub(super) open: OpenSession,
    /// The answer's words about it, if the model has named a session.
    pub(super) note: Option<String>,
}

impl OpenSession {
    fn new(session: Arc<Session>) -> Self {
        Self { session, cells: TaskTracker::new(), used: Arc::new(Mutex::new(Instant::now())) }
    }

    fn idle_for(&self) -> Duration {
        self.used.lock().elapsed()
    }
}

/// The handle that a call gives, if it gives one.
pub(super) fn given(handle: Option<&str>) -> Option<&str> {
    handle.map(str::trim).filter(|handle| !handle.is_empty())
}

impl ClientSessions {
    /// The client's own session, which was opened with `config`.
    pub(super) fn new(own: Arc<Session>, config: &Config) -> Self {
        Self { own: OpenSession::new(own), config: config.beside_another(), others: Mutex::default() }
    }

    /// The settings of further sessions.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// The client's own session.
    pub(super) fn own(&self) -> &OpenSession {
        &self.own
    }

    /// The session with this handle, or a new one.
    ///
    /// # Errors
    /// There is none, or no further one can be opened. The text says which there are.
    pub(super) async fn choose(&self, handle: Option<&str>) -> Result<ChosenSession, String> {
        let (open, note) = match given(handle) {
            None => (self.own.clone(), None),
            Some(OWN) => (self.own.clone(), Some(format!("[Session `{OWN}`]"))),
            Some(NEW) => {
                let (handle, open) = self.open().await?;
                let note =
                    format!("[New session `{handle}`: pass it as `session` to go on with its variables.]");
                (open, Some(note))
            }
            Some(handle) => (self.find(handle)?, Some(format!("[Session `{handle}`]"))),
        };
        *open.used.lock() = Instant::now();
        Ok(ChosenSession { open, note })
    }

    fn find(&self, handle: &str) -> Result<OpenSession, String> {
        let others = self.others.lock();
        others.sessions.get(handle).cloned().ok_or_else(|| {
            let why = if others.ended.contains(handle) {
                format!(
                    "the session `{handle}` has ended, to make room for another one; its variables are gone"
                )
            } else {
                format!("there is no session `{handle}`")
            };
            format!("{why}. There are {}; `{NEW}` makes another one.", others.handles())
        })
    }

    async fn open(&self) -> Result<(String, OpenSession), String> {
        if let Some(idle) = self.reserve()? {
            idle.session.close().await;
        }
        let opened = open_session(&self.config, Some(Arc::clone(&self.own.session))).await;
        self.others.lock().opening -= 1;
        let session = opened.map_err(|error| format!("Failed to open a session: {}", describe(&error)))?;
        let open = OpenSession::new(session);
        let handle = uuid::Uuid::new_v4().simple().to_string()[..6].to_owned();
        let is_stopping = {
            let mut others = self.others.lock();
            others.sessions.insert(handle.clone(), open.clone());
            others.is_stopping
        };
        if is_stopping {
            open.session.stop().await;
        }
        Ok((handle, open))
    }

    /// Reserves a place for another session. Returns one that has to be stopped for it.
    fn reserve(&self) -> Result<Option<OpenSession>, String> {
        let mut others = self.others.lock();
        if others.sessions.len() + others.opening < MOST_OTHERS {
            others.opening += 1;
            return Ok(None);
        }
        let idle = |open: &&OpenSession| open.cells.is_empty() && open.idle_for() >= IDLE;
        let longest =
            others.sessions.iter().filter(|(_, open)| idle(open)).max_by_key(|(_, open)| open.idle_for());
        let Some(handle) = longest.map(|(handle, _)| handle.clone()) else {
            let minutes = IDLE.as_secs() / 60;
            return Err(format!(
                "no session can be opened: there are {MOST_OTHERS} beside `{OWN}`, and none was idle for {minutes} minutes. There are {}.",
                others.handles()
            ));
        };
        let open = others.sessions.remove(&handle);
        others.ended.insert(handle);
        others.opening += 1;
        Ok(open)
    }

    /// The handles of the sessions beside the client's own.
    pub(super) fn others(&self) -> Vec<String> {
        self.others.lock().sessions.keys().cloned().collect()
    }

    /// The number of cells that have not ended.
    pub(super) fn open_cells(&self) -> usize {
        self.own.cells.len()
            + self.others.lock().sessions.values().map(|open| open.cells.len()).sum::<usize>()
    }

    /// Lets the other sessions find packages that were installed or generated for the client's own.
    pub(super) async fn refresh_others(&self, server: Option<&str>) {
        let sessions: Vec<OpenSession> = self.others.lock().sessions.values().cloned().collect();
        for open in sessions {
            open.session.refresh_imports(server).await;
        }
    }

    /// Stops all of them.
    pub(super) async fn stop(&self) {
        futures::future::join_all(self.all().iter().map(|session| session.stop())).await;
    }

    /// Stops all of them, and completes their records.
    pub(super) async fn close(&self) {
        futures::future::join_all(self.all().iter().map(|session| session.close())).await;
    }

    fn all(&self) -> Vec<Arc<Session>> {
        let mut others = self.others.lock();
        others.is_stopping = true;
        let sessions = others.sessions.values().map(|open| Arc::clone(&open.session));
        sessions.chain([Arc::clone(&self.own.session)]).collect()
    }
}

impl Others {
    /// The handles of those that live.
    fn handles(&self) -> String {
        let handles = [OWN].into_iter().chain(self.sessions.keys().map(String::as_str));
        backticked(handles)
    }
}

/// Opens a session as the settings of the server say, alone or beside another one of the same client.
pub(super) async fn open_session(
    config: &Config,
    beside: Option<Arc<Session>>,
) -> Result<Arc<Session>, StartError> {
    let policy = policy(config).map_err(StartError::Policy)?;
    let tools = ToolOptions { registry: None, policy, face: Face::Mcp, beside };
    // Opening is a large future.
    Box::pin(Session::open(config, Some(tools))).await.map(Arc::new)
}

/// The approval policy that the settings ask for.
fn policy(config: &Config) -> Result<Policy, PolicyError> {
    Ok(match &config.approval.mode {
        ApprovalMode::Auto => Policy::always(Effect::Allow),
        ApprovalMode::Ask => Policy::always(Effect::Ask),
        ApprovalMode::Deny => Policy::always(Effect::Deny),
        ApprovalMode::Policy(path) => Policy::read_in(&config.workspace, path)?,
    })
}
