//! A JupyterHub: finds or starts the Jupyter server of a user, and stops it if it has started it.
//!
//! Everything after that is between us and the server, at its URL below the Hub's.

mod client;
mod error;
mod progress;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex;

use self::client::{HubServerState, HubStart};
use self::progress::FollowedStart;
use super::{AccessError, Error, JupyterAccess, JupyterServer};

pub(super) use self::client::HubClient;
pub(crate) use self::client::HubServerName;
pub(crate) use self::error::HubError;

/// The time that a server may take to start. The Hub has a shorter time of its own: `Spawner.start_timeout`.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// The pause between two questions about a server that is about to start or stop.
const PAUSE: Duration = Duration::from_millis(500);

/// The time that stopping a server may take. The Hub goes on with it afterwards.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A user's server at a JupyterHub, shared by all sessions of this process.
#[derive(Debug)]
pub(crate) struct HubServer {
    client: Arc<HubClient>,
    /// The server, as soon as its URL is known.
    found: OnceLock<Arc<JupyterServer>>,
    /// Whether we have started it. One session at a time looks for the server.
    is_ours: Mutex<bool>,
}

impl HubServer {
    pub(crate) fn new(access: JupyterAccess, name: HubServerName) -> Result<Self, AccessError> {
        let client = Arc::new(HubClient::new(access.of_hub(), name)?);
        Ok(Self { client, found: OnceLock::new(), is_ours: Mutex::new(false) })
    }

    /// The Hub's name for people.
    pub(super) fn name(&self) -> &str {
        self.client.name()
    }

    /// The server, once it was found.
    pub(super) fn found(&self) -> Option<&Arc<JupyterServer>> {
        self.found.get()
    }

    /// Finds the server, and has the Hub start it if it does not run.
    ///
    /// # Errors
    /// The Hub does not know us, or does not start the server.
    pub(super) async fn find(
        &self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Arc<JupyterServer>, HubError> {
        let finding = self.try_to_find(report);
        tokio::time::timeout(START_TIMEOUT, finding).await.unwrap_or_else(|_| {
            Err(HubError::StartTimeout { hub: self.name().to_owned(), seconds: START_TIMEOUT.as_secs() })
        })
    }

    async fn try_to_find(
        &self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Arc<JupyterServer>, HubError> {
        let mut is_ours = self.is_ours.lock().await;
        let user = self.client.user().await?;
        let mut has_asked = false;
        let mut last_failure = None;
        loop {
            let state = match self.client.state(&user).await {
                // The Hub restarts, or the connection to it broke.
                Err(HubError::Unreachable { .. }) if has_asked => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                state => state?,
            };
            match state {
                HubServerState::Ready | HubServerState::Unknown => {
                    let server = self.server(&user)?;
                    match server.look().await {
                        Ok(()) => return Ok(server),
                        Err(error) if !error.is_of_stopped_server() => return Err(HubError::Server(error)),
                        Err(error) => tracing::debug!(%error, "the server of the Hub does not answer"),
                    }
                }
                HubServerState::Spawning => {
                    match self.client.follow(&user, report).await {
                        FollowedStart::Failed(message) => last_failure = Some(message),
                        FollowedStart::Ready => {}
                        FollowedStart::Broken(why) => {
                            tracing::debug!(why, "the progress of the start cannot be followed");
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    // The next look says how it ended.
                    has_asked = true;
                    continue;
                }
                HubServerState::Stopping => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                HubServerState::Stopped if has_asked => {
                    return Err(self.failed(&user, last_failure, report).await);
                }
                HubServerState::Stopped => {}
            }
            if has_asked {
                // The route to it is about to come.
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            report("asking JupyterHub to start the Jupyter server");
            let was_ours = std::mem::replace(&mut *is_ours, true);
            match self.client.start(&user).await {
                Ok(HubStart::Asked) => has_asked = true,
                Ok(HubStart::Failed(message)) => {
                    *is_ours = was_ours;
                    return Err(self.failed(&user, Some(message), report).await);
                }
                Ok(HubStart::Busy) => {
                    *is_ours = was_ours;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    // A request that was sent may have started it.
                    *is_ours = was_ours || matches!(error, HubError::Unreachable { .. });
                    return Err(error);
                }
            }
        }
    }

    /// The error of a server that has not started: the Hub's own words, which its progress repeats.
    async fn failed(
        &self,
        user: &str,
        message: Option<String>,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> HubError {
        let message = match (self.client.follow(user, report).await, message) {
            (FollowedStart::Failed(message), _) | (_, Some(message)) => message,
            (FollowedStart::Ready | FollowedStart::Broken(_), None) => "the Hub does not say why".to_owned(),
        };
        HubError::Failed { hub: self.name().to_owned(), message }
    }

    fn server(&self, user: &str) -> Result<Arc<JupyterServer>, HubError> {
        if let Some(found) = self.found.get() {
            return Ok(Arc::clone(found));
        }
        let access = self.client.access_of_server(user);
        let server = JupyterServer::behind(access, Arc::clone(&self.client)).map_err(HubError::Access)?;
        Ok(Arc::clone(self.found.get_or_init(|| Arc::new(server))))
    }

    /// Has the Hub stop the server if we have started it and no kernel runs in it.
    pub(super) async fn leave(&self) {
        if tokio::time::timeout(STOP_TIMEOUT, self.try_to_leave()).await.is_err() {
            tracing::info!("JupyterHub takes long to stop the Jupyter server, which may still run");
        }
    }

    async fn try_to_leave(&self) {
        let mut is_ours = self.is_ours.lock().await;
        if !*is_ours {
            return;
        }
        let Ok(user) = self.client.user().await else { return };
        let Ok(server) = self.server(&user) else { return };
        match server.count_kernels().await {
            Ok(0) => {}
            // It is starting, or has ended.
            Err(error) if error.is_of_stopped_server() => {}
            Ok(count) => {
                return tracing::info!(count, "other kernels run in the Jupyter server, which stays");
            }
            Err(error) => return tracing::warn!(%error, "the Jupyter server is not stopped"),
        }
        match self.client.stop(&user).await {
            Ok(()) => *is_ours = false,
            Err(error) => tracing::warn!(%error, "JupyterHub does not stop the Jupyter server"),
        }
    }
}

/// The server that runs the kernels: that of a URL, or a user's at a JupyterHub.
#[derive(Debug, Clone)]
pub(crate) enum KernelServer {
    Named(Arc<JupyterServer>),
    OfHub(Arc<HubServer>),
}

impl KernelServer {
    /// Finds it; one at a Hub is started if it does not run.
    ///
    /// # Errors
    /// The Hub does not know us, or does not start it.
    pub(crate) async fn find(
        &self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Arc<JupyterServer>, HubError> {
        match self {
            Self::Named(server) => Ok(Arc::clone(server)),
            Self::OfHub(hub) => hub.find(report).await,
        }
    }

    /// The server that was found; `None` before that.
    pub(crate) fn found(&self) -> Option<Arc<JupyterServer>> {
        match self {
            Self::Named(server) => Some(Arc::clone(server)),
            Self::OfHub(hub) => hub.found().map(Arc::clone),
        }
    }

    /// Whether a Hub starts and stops it.
    pub(crate) fn is_of_hub(&self) -> bool {
        matches!(self, Self::OfHub(_))
    }

    /// Whether this error is that of a server which its Hub can start again.
    pub(crate) fn may_start_again(&self, error: &Error) -> bool {
        self.is_of_hub() && error.is_of_stopped_server()
    }

    /// Its name for people, or that of its Hub.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Named(server) => server.name(),
            Self::OfHub(hub) => hub.name(),
        }
    }

    /// Has the Hub stop it if we have started it and no kernel runs in it.
    pub(crate) async fn leave(&self) {
        if let Self::OfHub(hub) = self {
            hub.leave().await;
        }
    }
}

impl Error {
    /// Whether a proxy or the Hub answers in the place of a server that does not run.
    pub(super) fn is_of_stopped_server(&self) -> bool {
        match self {
            Self::ServerStopped { .. } | Self::NotJupyter { .. } => true,
            Self::Refused { status, .. } => status.is_redirection(),
            Self::Failed { status, .. } => status.is_server_error(),
            _ => false,
        }
    }
}
