//! The wait for a claim's sandbox: a list, then watches from its version on, and the same again when that is too old.

use serde_json::Value;

use super::cluster::ClusterClient;
use super::objects::{BoundSandbox, ClaimObject, ClaimState, ObjectList};
use super::request::{ClusterRequest, ClusterResource, ClusterVerb, PAUSE};
use super::watch::{ClaimEvent, ClaimWatch};
use super::{ClaimError, ClaimSettings};
use crate::ground::text::{describe, visible};

/// One session's wait.
pub(super) struct ClaimWait<'a> {
    cluster: &'a ClusterClient,
    settings: &'a ClaimSettings,
    report: &'a (dyn Fn(&str) + Send + Sync),
    /// The cluster's last words about the claim.
    state: Option<String>,
    /// The failure of the last request, if it is tried again.
    failure: Option<ClaimError>,
}

impl<'a> ClaimWait<'a> {
    pub(super) fn new(
        cluster: &'a ClusterClient,
        settings: &'a ClaimSettings,
        report: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Self {
        Self { cluster, settings, report, state: None, failure: None }
    }

    /// The error when the time is over.
    pub(super) fn too_late(self) -> ClaimError {
        let pool = self.settings.pool.clone();
        let seconds = self.settings.patience.as_secs();
        match (self.failure, self.state) {
            (Some(failure), _) => failure,
            (None, Some(state)) => ClaimError::TooLate { pool, seconds, state },
            (None, None) => ClaimError::Ignored { pool, seconds },
        }
    }

    /// Sends a request until it is answered, also if the server fails at first.
    pub(super) async fn insist(&mut self, request: &ClusterRequest) -> Result<Value, ClaimError> {
        loop {
            match self.try_once(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => tokio::time::sleep(error.pause().ok_or(error)?).await,
            }
        }
    }

    /// Sends a request, and remembers a failure that may pass.
    pub(super) async fn try_once(&mut self, request: &ClusterRequest) -> Result<Value, ClaimError> {
        match self.cluster.ask(request).await {
            Ok(answer) => {
                self.failure = None;
                Ok(answer)
            }
            Err(error) => {
                self.note(&error);
                Err(error)
            }
        }
    }

    /// Waits until the claim of this name has a sandbox that is ready.
    pub(super) async fn until_ready(&mut self, name: &str) -> Result<BoundSandbox, ClaimError> {
        loop {
            let listed = self
                .insist(&ClusterRequest::of(ClusterVerb::List, ClusterResource::Claims).only(name))
                .await?;
            let listed: ObjectList<ClaimObject> = self.cluster.read_object(listed)?;
            let version = listed.metadata.resource_version;
            let claim = listed.items.into_iter().next().ok_or(ClaimError::Deleted)?;
            if let Some(bound) = self.look(claim)? {
                return Ok(bound);
            }
            match self.watch(name, version).await {
                Err(ClaimError::Expired) => tracing::debug!("a watch begins anew: its version is too old"),
                bound => return bound,
            }
        }
    }

    /// Watches from a version on, also over connections that break.
    async fn watch(&mut self, name: &str, mut version: String) -> Result<BoundSandbox, ClaimError> {
        loop {
            let ended = self.watch_once(name, &mut version).await;
            match ended {
                Ok(Some(bound)) => return Ok(bound),
                Ok(None) => tokio::time::sleep(PAUSE / 5).await,
                Err(ClaimError::Expired) => return Err(ClaimError::Expired),
                Err(error) => {
                    self.note(&error);
                    tokio::time::sleep(error.pause().ok_or(error)?).await;
                }
            }
        }
    }

    async fn watch_once(
        &mut self,
        name: &str,
        version: &mut String,
    ) -> Result<Option<BoundSandbox>, ClaimError> {
        let mut watch = ClaimWatch::start(self.cluster, name, version).await?;
        self.failure = None;
        while let Some(event) = watch.next().await? {
            match event {
                ClaimEvent::Changed(claim) => {
                    version.clone_from(&claim.metadata.resource_version);
                    if let Some(bound) = self.look(claim)? {
                        return Ok(Some(bound));
                    }
                }
                ClaimEvent::Version(new) => *version = new,
                ClaimEvent::Deleted => return Err(ClaimError::Deleted),
            }
        }
        Ok(None)
    }

    /// Looks at a claim, and reports news about it.
    fn look(&mut self, claim: ClaimObject) -> Result<Option<BoundSandbox>, ClaimError> {
        match claim.state()? {
            ClaimState::Ready(bound) => Ok(Some(bound)),
            ClaimState::Waiting(words) => {
                let state = words.map(|words| visible::line(&words));
                if let Some(words) = state.as_ref().filter(|_| state != self.state) {
                    let pool = &self.settings.pool;
                    (self.report)(&format!("waiting for a sandbox of the pool `{pool}`: {words}"));
                }
                self.state = state;
                Ok(None)
            }
        }
    }

    fn note(&mut self, error: &ClaimError) {
        if error.pause().is_some() && !matches!(error, ClaimError::Expired) {
            (self.report)(&format!("trying again: could not {}", describe(error)));
            self.failure = Some(ClaimError::Repeated(describe(error)));
        }
    }
}
