//! The search for a user's server: it is started if it does not run, and used as soon as it answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::{Error, JupyterAccess, JupyterServer};
use super::client::{HubServerState, HubStart};
use super::progress::FollowedStart;
use super::{HubError, HubServer};

/// The pause between two questions about a server that is about to start or stop.
const PAUSE: Duration = Duration::from_millis(500);

/// A search, of one session at a time.
pub(super) struct HubSearch<'a> {
    hub: &'a HubServer,
    user: String,
    /// The time that a server which is said to be ready may take to answer.
    patience: Duration,
    report: &'a (dyn Fn(&str) + Send + Sync),
    /// Whether the Hub may have begun to start it for us.
    has_asked: bool,
    /// Whether the Hub has said to us that it cannot be started, since it runs.
    is_said_to_run: bool,
    /// Why the Hub's answer to our request did not arrive.
    lost_answer: Option<HubError>,
    /// The Hub's words for a start that has failed.
    last_failure: Option<String>,
    /// Since when it is said to run, and does not answer.
    silent_since: Option<Instant>,
}

impl<'a> HubSearch<'a> {
    pub(super) fn new(
        hub: &'a HubServer,
        user: String,
        patience: Duration,
        report: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Self {
        Self {
            hub,
            user,
            patience,
            report,
            has_asked: false,
            is_said_to_run: false,
            lost_answer: None,
            last_failure: None,
            silent_since: None,
        }
    }

    /// Finds the server. `is_ours` says afterwards whether we may have started it.
    pub(super) async fn run(mut self, is_ours: &mut bool) -> Result<Arc<JupyterServer>, HubError> {
        loop {
            let state = match self.hub.client.state(&self.user).await {
                // The Hub restarts, or the connection to it broke.
                Err(HubError::Unreachable { .. }) if self.has_asked => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                state => state?,
            };
            let found = match state {
                HubServerState::Ready(access) => self.look(*access, true).await?,
                HubServerState::Unknown => {
                    self.look(self.hub.client.access_of_server(&self.user), self.is_said_to_run).await?
                }
                HubServerState::Spawning => {
                    self.follow().await;
                    continue;
                }
                HubServerState::Stopping => {
                    self.silent_since = None;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                HubServerState::Stopped if self.has_asked => return Err(self.failed().await),
                HubServerState::Stopped => None,
            };
            match found {
                Some(server) => return Ok(server),
                // The route to it is about to come.
                None if self.has_asked => tokio::time::sleep(PAUSE).await,
                // This has the Hub notice one that has died, too.
                None => self.ask(is_ours).await?,
            }
        }
    }

    /// Returns the server if it answers us. One that is said to run has a while to do it.
    async fn look(
        &mut self,
        access: JupyterAccess,
        is_said_to_run: bool,
    ) -> Result<Option<Arc<JupyterServer>>, HubError> {
        let server = self.hub.server(access)?;
        let error = match server.look().await {
            Ok(()) => return Ok(Some(server)),
            Err(error @ Error::Unreachable { .. }) => error,
            Err(error) if error.is_of_stopped_server() => error,
            Err(error) => return Err(HubError::Server(error)),
        };
        if is_said_to_run {
            self.wait_for_answer(&server, &error)?;
        }
        Ok(None)
    }

    fn wait_for_answer(&mut self, server: &JupyterServer, error: &Error) -> Result<(), HubError> {
        let answer = error.in_short();
        let has_waited = self.silent_since.is_some_and(|since| since.elapsed() >= self.patience);
        if !has_waited {
            self.silent_since.get_or_insert_with(Instant::now);
            let server = server.name();
            (self.report)(&format!(
                "waiting for the Jupyter server at {server}, which JupyterHub says is ready: {answer}"
            ));
            return Ok(());
        }
        let seconds = self.patience.as_secs();
        let server = server.name().to_owned();
        Err(HubError::Silent { hub: self.hub.name().to_owned(), server, seconds, answer })
    }

    /// Has the Hub start the server.
    async fn ask(&mut self, is_ours: &mut bool) -> Result<(), HubError> {
        (self.report)("asking JupyterHub to start the Jupyter server");
        // Also if nobody waits for the answer.
        let was_ours = std::mem::replace(is_ours, true);
        match self.start().await {
            Ok(HubStart::Asked) => self.has_asked = true,
            Ok(HubStart::Failed(message)) => {
                *is_ours = was_ours;
                self.last_failure = Some(message);
                return Err(self.failed().await);
            }
            Ok(HubStart::Busy) => {
                *is_ours = was_ours;
                self.is_said_to_run = true;
                tokio::time::sleep(PAUSE).await;
            }
            // The request may have arrived.
            Err(error @ HubError::Unreachable { .. }) => {
                self.has_asked = true;
                self.lost_answer = Some(error);
            }
            Err(error) => {
                *is_ours = was_ours;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends the request, and follows the start meanwhile: the Hub answers after 10 seconds, or another time that it is configured
    /// for (`slow_spawn_timeout`).
    async fn start(&self) -> Result<HubStart, HubError> {
        let following = async {
            loop {
                // What is heard of an earlier start, before the request has arrived, says nothing.
                let followed = self.hub.client.follow(&self.user, self.report).await;
                tracing::trace!(
                    ?followed,
                    "the progress of the start ended before the answer to its request"
                );
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            started = self.hub.client.start(&self.user) => started,
            never = following => never,
        }
    }

    /// Follows a start to its end, whoever has asked for it. The next look says how it ended.
    async fn follow(&mut self) {
        self.silent_since = None;
        self.has_asked = true;
        match self.hub.client.follow(&self.user, self.report).await {
            FollowedStart::Failed(message) => self.last_failure = Some(message),
            FollowedStart::Ready => {}
            FollowedStart::Broken(why) => {
                tracing::debug!(why, "the progress of the start cannot be followed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// The error of a server that has not started: the Hub's own words, which its progress repeats.
    async fn failed(&mut self) -> HubError {
        let followed = self.hub.client.follow(&self.user, self.report).await;
        let message = match (followed, self.last_failure.take(), self.lost_answer.take()) {
            (FollowedStart::Failed(message), ..) | (_, Some(message), _) => message,
            (_, None, Some(error)) => return error,
            (_, None, None) => "the Hub does not say why".to_owned(),
        };
        HubError::Failed { hub: self.hub.name().to_owned(), message }
    }
}
