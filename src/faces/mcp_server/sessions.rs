//! The sessions of a server: the client's own, and others for agents that share the client.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::open_session::OpenSession;
use super::session_names::{NEW, NamedSession, OWN, given, no_kernels};
use crate::approval::{ApprovalEffect, ApprovalPolicy, PolicyError, SessionFace};
use crate::config::{ApprovalMode, Config};
use crate::ground::text::{backticked, describe};
use crate::session::{LimitUse, Session, StartError, ToolOptions};

/// The number of other sessions at the same time: each has a kernel.
const MOST_OTHERS: usize = 8;

/// The number of ended sessions that are remembered.
const MOST_ENDED: usize = 256;

/// After this time without a cell a session ends if another one needs its place.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// After this time without a cell a session ends, whether or not its place is needed: its agent has forgotten it.
const FORGOTTEN: Duration = Duration::from_secs(2 * 3600);

/// The sessions.
pub(super) struct ClientSessions {
    own: OpenSession,
    config: Config,
    others: Arc<Mutex<Others>>,
    /// The tasks that end sessions which nobody uses any more.
    watching: TaskTracker,
    /// Cancelled when all of them are stopped.
    stopping: CancellationToken,
}

#[derive(Default)]
struct Others {
    sessions: BTreeMap<String, OpenSession>,
    /// The handles of those that have ended, the last one last, and why.
    ended: VecDeque<(String, SessionEnd)>,
    /// The number of sessions that are being opened.
    opening: usize,
    is_stopping: bool,
}

/// The end of a session beside the client's own.
#[derive(Clone, Copy)]
enum SessionEnd {
    PlaceNeeded,
    Forgotten,
    Asked,
}

/// The finding about a session that may be forgotten.
enum ForgottenSession {
    /// It is: it was taken out.
    Yes(OpenSession),
    /// Not before this time has passed.
    NotYet(Duration),
    /// It has ended for another reason.
    Ended,
}

/// A place that is reserved for a session until that is open, or cannot be opened.
struct ReservedPlace<'a>(&'a Mutex<Others>);

impl Drop for ReservedPlace<'_> {
    fn drop(&mut self) {
        self.0.lock().opening -= 1;
    }
}

/// The session that a call is for.
pub(super) struct ChosenSession {
    pub(super) open: OpenSession,
    /// The answer's words about it, if the model has named a session.
    pub(super) note: Option<String>,
}

impl ClientSessions {
    /// The client's own session, which was opened with `config`.
    pub(super) fn new(own: Arc<Session>, config: &Config) -> Self {
        Self {
            own: OpenSession::new(own, CancellationToken::new()),
            config: config.beside_another(),
            others: Arc::default(),
            watching: TaskTracker::new(),
            stopping: CancellationToken::new(),
        }
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
        let Some(given) = given(handle) else {
            return Ok(ChosenSession { open: self.own.clone(), note: None });
        };
        let made = |handle: &str, from: String| {
            format!("[New session `{handle}`{from}: pass it as `session` to go on with its variables.]")
        };
        let (open, note) = match NamedSession::read(given) {
            NamedSession::Own => (self.own.clone(), format!("[Session `{OWN}`]")),
            NamedSession::New { kernels } => {
                let config = self.config_with(kernels)?;
                let (handle, open) = self.open(&config).await?;
                let of_name = config.site.chosen_kernels().map(|name| format!(" with a kernel of `{name}`"));
                (open, made(&handle, of_name.unwrap_or_default()))
            }
            NamedSession::Copy { origin } => {
                let (handle, open, notes) = self.copy(origin).await?;
                let note = made(&handle, format!(", a copy of `{origin}`"));
                (open, [vec![note], notes].concat().join("\n"))
            }
            NamedSession::Beside(handle) => (self.find(handle)?, format!("[Session `{handle}`]")),
        };
        Ok(ChosenSession { open, note: Some(note) })
    }

    /// The settings of a further session, whose kernels may be chosen.
    fn config_with(&self, kernels: Option<&str>) -> Result<Cow<'_, Config>, String> {
        let Some(name) = kernels else { return Ok(Cow::Borrowed(&self.config)) };
        let config = self.config.with_kernels(name);
        config.map(Cow::Owned).ok_or_else(|| no_kernels(name, &self.config.site.kernel_names()))
    }

    fn find(&self, handle: &str) -> Result<OpenSession, String> {
        if handle == OWN {
            return Ok(self.own.clone());
        }
        let others = self.others.lock();
        if let Some(open) = others.sessions.get(handle) {
            // As long as nobody can take it for a forgotten one.
            open.note_use();
            return Ok(open.clone());
        }
        let ended = |why: String| format!("the session `{handle}` has ended, {why}; its variables are gone");
        let why = match others.end_of(handle) {
            Some(SessionEnd::PlaceNeeded) => ended("to make room for another one".to_owned()),
            Some(SessionEnd::Forgotten) => {
                ended(format!("since it had no cell for {} hours", FORGOTTEN.as_secs() / 3600))
            }
            Some(SessionEnd::Asked) => ended("as a call of `reset` asked".to_owned()),
            None => format!("there is no session `{handle}`"),
        };
        Err(format!("{why}. There are {}; `{NEW}` makes another one.", others.handles()))
    }

    /// Ends a session beside the client's own, with its cells. Returns the answer.
    ///
    /// # Errors
    /// There is none with this handle, or it is the client's own.
    pub(super) async fn end(&self, handle: Option<&str>) -> Result<String, String> {
        let Some(handle) = given(handle).filter(|handle| *handle != OWN) else {
            return Err(format!(
                "the argument `end` cannot be used for `{OWN}`, which ends with the client: pass the handle of another session \
                 as `session`, or reset `{OWN}` without `end`"
            ));
        };
        let open = self.find(handle)?;
        self.others.lock().take_out(handle, SessionEnd::Asked);
        open.session.close().await;
        Ok(format!("Session `{handle}` has ended, and its variables are gone."))
    }

    async fn open(&self, config: &Config) -> Result<(String, OpenSession), String> {
        let place = self.make_room().await?;
        let opened = open_session(config, Some(Arc::clone(&self.own.session))).await;
        let session = opened.map_err(|error| format!("Failed to open a session: {}", describe(&error)))?;
        Ok(self.enter(session, place).await)
    }

    /// Copies the session with this handle. Returns the differences that are worth a word, too.
    async fn copy(&self, origin: &str) -> Result<(String, OpenSession, Vec<String>), String> {
        let origin = self.find(origin)?;
        let place = self.make_room().await?;
        // Opening is a large future.
        let branched = Box::pin(origin.session.branch()).await;
        let (branch, notes) = branched.map_err(|error| format!("Failed to {}", describe(&error)))?;
        let (handle, open) = self.enter(Arc::new(branch), place).await;
        let notes = notes.iter().map(|note| format!("[In the copy: {note}]")).collect();
        Ok((handle, open, notes))
    }

    /// Reserves a place for another session, and ends one that is idle if there is none.
    async fn make_room(&self) -> Result<ReservedPlace<'_>, String> {
        let (place, idle) = self.reserve()?;
        if let Some(idle) = idle {
            idle.session.close().await;
        }
        Ok(place)
    }

    /// Puts a session into the reserved place, and gives it a handle.
    async fn enter(&self, session: Arc<Session>, place: ReservedPlace<'_>) -> (String, OpenSession) {
        let open = OpenSession::new(session, self.stopping.child_token());
        let handle = uuid::Uuid::new_v4().simple().to_string()[..6].to_owned();
        let is_stopping = {
            let mut others = self.others.lock();
            others.sessions.insert(handle.clone(), open.clone());
            others.is_stopping
        };
        drop(place);
        self.watching.spawn(end_if_forgotten(
            Arc::clone(&self.others),
            handle.clone(),
            open.taken_out.clone(),
        ));
        if is_stopping {
            open.session.stop().await;
        }
        (handle, open)
    }

    /// Reserves a place for another session. Returns one that has to be stopped for it, too.
    fn reserve(&self) -> Result<(ReservedPlace<'_>, Option<OpenSession>), String> {
        let mut others = self.others.lock();
        if others.sessions.len() + others.opening < MOST_OTHERS {
            others.opening += 1;
            return Ok((ReservedPlace(&self.others), None));
        }
        let idle = others.sessions.iter().filter(|(_, open)| open.idle_for() >= IDLE);
        let longest = idle.max_by_key(|(_, open)| open.idle_for());
        let Some(handle) = longest.map(|(handle, _)| handle.clone()) else {
            let minutes = IDLE.as_secs() / 60;
            return Err(format!(
                "no session can be opened: there are {MOST_OTHERS} beside `{OWN}`, and none was idle for {minutes} minutes. There are {}.",
                others.handles()
            ));
        };
        let open = others.take_out(&handle, SessionEnd::PlaceNeeded);
        others.opening += 1;
        Ok((ReservedPlace(&self.others), open))
    }

    /// The handles of the sessions beside the client's own.
    pub(super) fn others(&self) -> Vec<String> {
        self.others.lock().sessions.keys().cloned().collect()
    }

    /// The number of cells that have not ended.
    pub(super) fn open_cells(&self) -> usize {
        let others = self.others.lock();
        self.own.open_cells() + others.sessions.values().map(OpenSession::open_cells).sum::<usize>()
    }

    /// The limits around the client's own session, and what is in use.
    pub(super) fn limits(&self) -> Vec<LimitUse> {
        self.own.session.limits()
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
        self.watching.close();
        self.watching.wait().await;
    }

    /// Stops all of them, and completes their records.
    pub(super) async fn close(&self) {
        futures::future::join_all(self.all().iter().map(|session| session.close())).await;
    }

    fn all(&self) -> Vec<Arc<Session>> {
        self.stopping.cancel();
        let mut others = self.others.lock();
        others.is_stopping = true;
        let sessions = others.sessions.values().map(|open| Arc::clone(&open.session));
        sessions.chain([Arc::clone(&self.own.session)]).collect()
    }
}

impl Others {
    /// Looks at the session with this handle, and takes it out if nobody uses it any more.
    fn forget(&mut self, handle: &str) -> ForgottenSession {
        let Some(open) = self.sessions.get(handle) else { return ForgottenSession::Ended };
        let idle = open.idle_for();
        if idle < FORGOTTEN {
            return ForgottenSession::NotYet(FORGOTTEN - idle);
        }
        self.take_out(handle, SessionEnd::Forgotten).map_or(ForgottenSession::Ended, ForgottenSession::Yes)
    }

    /// Takes out the session with this handle, which is to be closed.
    fn take_out(&mut self, handle: &str, end: SessionEnd) -> Option<OpenSession> {
        let open = self.sessions.remove(handle)?;
        open.taken_out.cancel();
        if self.ended.len() == MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((handle.to_owned(), end));
        Some(open)
    }

    /// The end of the session that had this handle.
    fn end_of(&self, handle: &str) -> Option<SessionEnd> {
        self.ended.iter().find(|(ended, _)| ended == handle).map(|(_, end)| *end)
    }

    /// The handles of those that live.
    fn handles(&self) -> String {
        let handles = [OWN].into_iter().chain(self.sessions.keys().map(String::as_str));
        backticked(handles)
    }
}

/// Ends a session that nobody has used for too long, by itself and not by the next call.
async fn end_if_forgotten(others: Arc<Mutex<Others>>, handle: String, taken_out: CancellationToken) {
    loop {
        let found = others.lock().forget(&handle);
        match found {
            ForgottenSession::Yes(open) => {
                tracing::info!(session = %handle, "ending a session that had no cell for long");
                return open.session.close().await;
            }
            ForgottenSession::NotYet(left) => {
                if taken_out.run_until_cancelled(sleep(left)).await.is_none() {
                    return;
                }
            }
            ForgottenSession::Ended => return,
        }
    }
}

/// Opens a session as the settings of the server say, alone or beside another one of the same client.
pub(super) async fn open_session(
    config: &Config,
    beside: Option<Arc<Session>>,
) -> Result<Arc<Session>, StartError> {
    let policy = policy(&config.approval.mode, &config.workspace).map_err(StartError::Policy)?;
    let tools = ToolOptions { registry: None, policy, face: SessionFace::Mcp, beside, replay: None };
    // Opening is a large future.
    Box::pin(Session::open(config, Some(tools))).await.map(Arc::new)
}

/// The approval policy that the settings ask for.
pub(super) fn policy(mode: &ApprovalMode, workspace: &Path) -> Result<ApprovalPolicy, PolicyError> {
    Ok(match mode {
        ApprovalMode::Auto => ApprovalPolicy::always(ApprovalEffect::Allow),
        ApprovalMode::Ask => ApprovalPolicy::always(ApprovalEffect::Ask),
        ApprovalMode::Deny => ApprovalPolicy::always(ApprovalEffect::Deny),
        ApprovalMode::Policy(path) => ApprovalPolicy::read_in(workspace, path)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    /// Sessions whose kernels do not start.
    async fn sessions(root: &Path) -> ClientSessions {
        let mut settings = Settings { workspace: root.join("work"), ..Settings::default() };
        settings.state_dir = Some(root.join("states"));
        settings.kernel.python = Some(root.join("no-python"));
        let config = Config::new(settings).unwrap();
        ClientSessions::new(open_session(&config, None).await.unwrap(), &config)
    }

    async fn open(sessions: &ClientSessions) -> (String, OpenSession) {
        let open = sessions.choose(Some(NEW)).await.ok().unwrap().open;
        let others = sessions.others.lock();
        let is_it = |(_, other): &(&String, &OpenSession)| Arc::ptr_eq(&other.session, &open.session);
        let handle = others.sessions.iter().find(is_it).unwrap().0.clone();
        (handle, open)
    }

    /// Lets tasks run that wait for nothing else than each other.
    async fn until(sessions: &ClientSessions, expected: &[&str]) {
        while sessions.others() != expected {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn nothing_is_left_of_sessions_that_were_ended_but_the_last_handles() {
        let root = tempfile::tempdir().unwrap();
        let sessions = sessions(root.path()).await;
        let mut handles = Vec::new();
        for _ in 0..3 {
            let (handle, _) = open(&sessions).await;
            sessions.end(Some(&handle)).await.unwrap();
            handles.push(handle);
        }
        // No task waits until it would be forgotten.
        while !sessions.watching.is_empty() {
            tokio::task::yield_now().await;
        }
        for number in 0..MOST_ENDED - 1 {
            let open = sessions.own.clone();
            let mut others = sessions.others.lock();
            others.sessions.insert(number.to_string(), open);
            others.take_out(&number.to_string(), SessionEnd::PlaceNeeded);
        }
        let said = async |handle: &str| sessions.choose(Some(handle)).await.err().unwrap();
        assert!(said(&handles[0]).await.contains("there is no session"));
        assert!(said(&handles[1]).await.contains("there is no session"));
        assert!(said(&handles[2]).await.contains("has ended, as a call of `reset` asked"));
        assert!(said("0").await.contains("has ended, to make room"));
        sessions.stop().await;
        sessions.close().await;
    }

    #[tokio::test]
    async fn a_session_that_nobody_uses_ends_without_another_call() {
        let root = tempfile::tempdir().unwrap();
        let sessions = sessions(root.path()).await;
        let (forgotten, _) = open(&sessions).await;
        let (busy, open) = open(&sessions).await;
        let cell = open.begin_cell();
        tokio::time::pause();
        tokio::time::advance(FORGOTTEN).await;
        until(&sessions, &[&busy]).await;
        let error = sessions.choose(Some(&forgotten)).await.err().unwrap();
        assert!(error.contains("has ended, since it had no cell for 2 hours"), "{error}");
        // The time begins when the cell has ended.
        drop(cell);
        tokio::time::advance(FORGOTTEN - Duration::from_secs(1)).await;
        assert!(sessions.choose(Some(&busy)).await.is_ok());
        tokio::time::advance(FORGOTTEN - Duration::from_secs(1)).await;
        assert_eq!(sessions.others(), [busy]);
        tokio::time::advance(Duration::from_secs(1)).await;
        until(&sessions, &[]).await;
        tokio::time::resume();
        sessions.stop().await;
        sessions.close().await;
    }

    #[tokio::test]
    async fn kernels_without_names_are_not_chosen() {
        let root = tempfile::tempdir().unwrap();
        let sessions = sessions(root.path()).await;
        let error = sessions.choose(Some("new:gpu")).await.err().unwrap();
        assert!(error.contains("`new:gpu`") && error.contains("`--kernel-pool NAME=POOL`"), "{error}");
        assert!(sessions.others().is_empty());
        sessions.stop().await;
        sessions.close().await;
    }

    #[tokio::test]
    async fn a_place_counts_while_its_session_is_opened_and_is_free_if_it_is_not() {
        let root = tempfile::tempdir().unwrap();
        let sessions = sessions(root.path()).await;
        let places: Vec<_> = (0..MOST_OTHERS).map(|_| sessions.reserve().ok().unwrap()).collect();
        assert!(sessions.choose(Some(NEW)).await.is_err());
        drop(places);
        let opening = sessions.open(sessions.config());
        assert!(futures::FutureExt::now_or_never(opening).is_none_or(|opened| opened.is_ok()));
        assert_eq!(sessions.others.lock().opening, 0);
        sessions.stop().await;
        sessions.close().await;
    }
}
