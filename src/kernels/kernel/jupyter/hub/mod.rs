//! A JupyterHub: finds or starts the Jupyter server of a user, and stops it if it has started it.
//!
//! Everything after that is between us and the server, at its URL below the Hub's.

mod client;
mod error;
mod progress;
mod search;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use self::search::HubSearch;
use super::{AccessError, Error, JupyterAccess, JupyterServer};
use crate::ground::files::FrontSocket;

pub(super) use self::client::HubClient;
pub(crate) use self::client::{HubOptions, HubServerName};
pub(crate) use self::error::HubError;

/// The time that a server may take to start. The Hub has a shorter time of its own: `Spawner.start_timeout`.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// The number of different words of a start that are reported.
const WORDS_MAX: usize = 1000;

/// The time that stopping a server may take. The Hub goes on with it afterwards.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A user's server at a JupyterHub, shared by all sessions of this process.
#[derive(Debug)]
pub(crate) struct HubServer {
    client: Arc<HubClient>,
    /// The server, as soon as its URL is known.
    found: parking_lot::Mutex<Option<Arc<JupyterServer>>>,
    /// Whether we have started it. One session at a time looks for the server.
    is_ours: Mutex<bool>,
}

impl HubServer {
    pub(crate) fn new(access: JupyterAccess, name: HubServerName) -> Result<Self, AccessError> {
        let client = Arc::new(HubClient::new(access.of_hub(), name)?);
        Ok(Self { client, found: parking_lot::Mutex::default(), is_ours: Mutex::new(false) })
    }

    /// The Hub's name for people.
    pub(super) fn name(&self) -> &str {
        self.client.name()
    }

    /// The server, once it was found.
    pub(super) fn found(&self) -> Option<Arc<JupyterServer>> {
        self.found.lock().clone()
    }

    /// Finds the server, and has the Hub start it if it does not run. One that is said to be ready has the time `patience` to
    /// answer.
    ///
    /// # Errors
    /// The Hub does not know us, or does not start the server.
    pub(super) async fn find(
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Arc<JupyterServer>, HubError> {
        // The Hub tells the whole progress to everybody who begins to follow it.
        let said = parking_lot::Mutex::new(HashSet::new());
        let report_once = |words: &str| {
            let mut said = said.lock();
            if said.len() < WORDS_MAX && said.insert(words.to_owned()) {
                report(words);
            }
        };
        let finding = async {
            let mut is_ours = self.is_ours.lock().await;
            let user = self.client.user().await?;
            HubSearch::new(self, user, patience, &report_once).run(&mut is_ours).await
        };
        tokio::time::timeout(START_TIMEOUT, finding).await.unwrap_or_else(|_| {
            Err(HubError::StartTimeout { hub: self.name().to_owned(), seconds: START_TIMEOUT.as_secs() })
        })
    }

    /// The client of the server at this address.
    fn server(&self, access: JupyterAccess) -> Result<Arc<JupyterServer>, HubError> {
        let mut found = self.found.lock();
        if let Some(server) = found.as_ref().filter(|server| server.name() == access.name()) {
            return Ok(Arc::clone(server));
        }
        let server = JupyterServer::behind(access, Arc::clone(&self.client)).map_err(HubError::Access)?;
        Ok(Arc::clone(found.insert(Arc::new(server))))
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
        let address = || self.server(self.client.access_of_server(&user)).ok();
        let Some(server) = self.found().or_else(address) else { return };
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
    /// Finds it; one at a Hub is started if it does not run, and has the time `patience` to answer once it is said to be ready.
    ///
    /// # Errors
    /// The Hub does not know us, or does not start it.
    pub(crate) async fn find(
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Arc<JupyterServer>, HubError> {
        match self {
            Self::Named(server) => Ok(Arc::clone(server)),
            Self::OfHub(hub) => hub.find(patience, report).await,
        }
    }

    /// The server that was found; `None` before that.
    pub(crate) fn found(&self) -> Option<Arc<JupyterServer>> {
        match self {
            Self::Named(server) => Some(Arc::clone(server)),
            Self::OfHub(hub) => hub.found(),
        }
    }

    /// Has the server of a team give the token for its Hub, if it is to do so.
    pub(crate) fn ask_front(&self, front: FrontSocket) {
        if let Self::OfHub(hub) = self
            && let Some(token) = hub.client.http.access.token()
        {
            token.ask_at(front);
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

    /// The answer alone, without the request.
    fn in_short(&self) -> String {
        match self {
            Self::NotJupyter { status, .. } => format!("it answers {status}"),
            Self::Refused { status, .. } => format!("it answers {status}"),
            Self::Failed { status, message, .. } => format!("it answers {status}: {message}"),
            Self::Unreachable { reason, .. } => reason.clone(),
            error => error.to_string(),
        }
    }
}
