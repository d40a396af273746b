//! The lease of a claim: its end is put off as long as we use it, and then it is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ClaimError;
use super::cluster::ClusterClient;
use super::request::{ClusterRequest, ClusterResource, ClusterVerb};
use crate::ground::text::describe;

/// The time that deleting a claim may take. The cluster deletes it later otherwise.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pauses before it is tried to delete a claim of which it is not known whether the cluster makes it, in seconds.
const MADE_LATER: [u64; 6] = [0, 1, 2, 4, 8, 16];

/// A claim that is kept until this is released or dropped.
pub(super) struct ClaimLease {
    claim: LeasedClaim,
    stop: DropGuard,
    task: JoinHandle<bool>,
}

/// A claim that the cluster was asked for. If this is dropped before there is an answer, the claim is deleted that may come of it.
pub(super) struct AskedClaim(Option<LeasedClaim>);

#[derive(Clone)]
struct LeasedClaim {
    cluster: Arc<ClusterClient>,
    name: String,
    lease: Duration,
    /// Whether it is left to its end.
    is_left: Arc<AtomicBool>,
}

impl AskedClaim {
    pub(super) fn new(cluster: Arc<ClusterClient>, name: &str, lease: Duration) -> Self {
        Self(Some(LeasedClaim::new(cluster, name.to_owned(), lease)))
    }

    /// Keeps the claim if the cluster has made it. A refusal has made none.
    pub(super) fn answered(mut self, created: Result<(), ClaimError>) -> Result<ClaimLease, ClaimError> {
        let claim = self.0.take().ok_or(ClaimError::Deleted)?;
        created.map(|()| claim.held())
    }
}

impl Drop for AskedClaim {
    fn drop(&mut self) {
        // Without a runtime there is nobody left to ask.
        if let Some(claim) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { claim.delete_if_made().await });
        }
    }
}

impl ClaimLease {
    /// Keeps a claim that was just made.
    pub(super) fn hold(cluster: Arc<ClusterClient>, name: String, lease: Duration) -> Self {
        LeasedClaim::new(cluster, name, lease).held()
    }

    /// The cluster of the claim, and its name there.
    pub(super) fn place(&self) -> (&Arc<ClusterClient>, &str) {
        (&self.claim.cluster, &self.claim.name)
    }

    /// The request that puts the end off.
    pub(super) fn renewal(&self) -> ClusterRequest {
        self.claim.renewal()
    }

    /// The claim's name.
    pub(super) fn name(&self) -> &str {
        &self.claim.name
    }

    /// Deletes the claim. Returns whether it is gone.
    pub(super) async fn release(self) -> bool {
        drop(self.stop);
        self.task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a claim is not deleted");
            false
        })
    }

    /// Leaves the claim to its end.
    pub(super) fn leave(self) {
        self.claim.is_left.store(true, Ordering::Relaxed);
    }
}

impl LeasedClaim {
    fn new(cluster: Arc<ClusterClient>, name: String, lease: Duration) -> Self {
        Self { cluster, name, lease, is_left: Arc::default() }
    }

    fn held(self) -> ClaimLease {
        let stop = CancellationToken::new();
        let task = tokio::spawn(self.clone().keep(stop.clone()));
        ClaimLease { claim: self, stop: stop.drop_guard(), task }
    }

    /// Puts the end off until `stop` is cancelled. Returns whether the claim is gone then.
    async fn keep(self, stop: CancellationToken) -> bool {
        let mut next = Instant::now() + self.lease / 3;
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.delete().await,
                () = tokio::time::sleep_until(next) => {}
            }
            let renewal = self.renewal();
            let renewed = tokio::select! {
                () = stop.cancelled() => return self.delete().await,
                renewed = self.cluster.ask(&renewal) => renewed,
            };
            let pause = match renewed {
                Ok(_) => self.lease / 3,
                Err(ClaimError::NotFound { .. }) => {
                    tracing::warn!(claim = self.name, "the claim of the session's sandbox is gone");
                    return true;
                }
                Err(error) => {
                    tracing::warn!(
                        error = describe(&error),
                        "the claim of the session's sandbox is not renewed"
                    );
                    error.pause().unwrap_or_default().max(self.lease / 30)
                }
            };
            next = Instant::now() + pause;
        }
    }

    fn renewal(&self) -> ClusterRequest {
        let end = self.cluster.time_in(self.lease);
        let body = json!({"spec": {"lifecycle": {"shutdownTime": end}}});
        ClusterRequest::of(ClusterVerb::Patch, ClusterResource::Claims).named(&self.name).with_body(body)
    }

    /// Deletes a claim that an unanswered request may make yet.
    async fn delete_if_made(&self) {
        let request = ClusterRequest::of(ClusterVerb::Delete, ClusterResource::Claims).named(&self.name);
        for pause in MADE_LATER {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            match self.cluster.ask(&request).await {
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(claim = self.name, error = describe(&error), "no claim to delete")
                }
            }
        }
    }

    async fn delete(&self) -> bool {
        if self.is_left.load(Ordering::Relaxed) {
            return false;
        }
        let request = ClusterRequest::of(ClusterVerb::Delete, ClusterResource::Claims).named(&self.name);
        let why = match tokio::time::timeout(RELEASE_TIMEOUT, self.cluster.insist(&request)).await {
            Ok(Ok(_) | Err(ClaimError::NotFound { .. })) => return true,
            Ok(Err(error)) => describe(&error),
            Err(_) => "the cluster takes long".to_owned(),
        };
        tracing::warn!(
            claim = self.name,
            why,
            "a claim is not deleted; the cluster does it when its time is over"
        );
        false
    }
}
