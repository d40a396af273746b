//! Sandboxes that nobody uses for a while: suspended, they have no pod, and their volumes stay.

use std::time::Duration;

use serde_json::json;

use super::lease::ClaimLease;
use super::objects::SandboxObject;
use super::request::{ClusterRequest, ClusterResource, ClusterVerb, PAUSE};
use super::{ClaimError, ClaimedSandbox};
use crate::ground::text::{describe, visible};

/// The time that a request about a sandbox may take, also if it is sent again.
const PATIENCE: Duration = Duration::from_secs(20);

/// A sandbox without a pod, whose claim is kept. Dropping it has the claim deleted.
pub(crate) struct SuspendedSandbox {
    sandbox: String,
    lease: ClaimLease,
}

impl ClaimedSandbox {
    /// Whether the sandbox has volumes of its own: what is in them is gone when its claim is deleted, and stays when it is
    /// suspended.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(crate) async fn has_volumes(&self) -> Result<bool, ClaimError> {
        Ok(look_at(&self.lease, &self.sandbox).await?.has_volumes())
    }

    /// Suspends the sandbox: its pod ends. If the cluster does not do it, the pod runs on until it is woken.
    pub(crate) async fn suspend(self) -> SuspendedSandbox {
        if let Err(error) = set_mode(&self.lease, &self.sandbox, "Suspended").await {
            tracing::warn!(sandbox = self.sandbox, error = describe(&error), "a sandbox is not suspended");
        }
        SuspendedSandbox { sandbox: self.sandbox, lease: self.lease }
    }
}

impl SuspendedSandbox {
    /// Has the sandbox have a pod again, which may take the time `patience`.
    ///
    /// # Errors
    /// It has none in time, or is gone.
    pub(crate) async fn wake(
        self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<ClaimedSandbox, (Self, ClaimError)> {
        report(&format!("waiting for the sandbox `{}`, which was suspended", self.sandbox));
        let mut state = String::new();
        let waking = tokio::time::timeout(patience, self.until_awake(&mut state, report)).await;
        let (cluster, claim) = self.lease.place();
        let late = || ClaimError::Asleep {
            sandbox: self.sandbox.clone(),
            claim: claim.to_owned(),
            seconds: patience.as_secs(),
            state: visible::line(&state),
        };
        match waking.unwrap_or_else(|_| Err(late())) {
            Ok(address) => {
                let namespace = cluster.namespace().to_owned();
                Ok(ClaimedSandbox { sandbox: self.sandbox, namespace, address, lease: self.lease })
            }
            Err(error) => Err((self, error)),
        }
    }

    async fn until_awake(
        &self,
        state: &mut String,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<std::net::IpAddr, ClaimError> {
        // The pod of before may not have ended yet, and must not be taken for the next one.
        while look_at(&self.lease, &self.sandbox).await?.is_suspending() {
            "its pod has not ended".clone_into(state);
            tokio::time::sleep(PAUSE).await;
        }
        set_mode(&self.lease, &self.sandbox, "Running").await?;
        loop {
            match look_at(&self.lease, &self.sandbox).await?.address() {
                Ok(address) => return Ok(address),
                Err(words) if words == *state => {}
                Err(words) => {
                    report(&format!("waiting for the sandbox `{}`: {}", self.sandbox, visible::line(&words)));
                    *state = words;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes the claim, and with it the sandbox.
    pub(crate) async fn release(self) {
        self.lease.release().await;
    }
}

async fn look_at(lease: &ClaimLease, sandbox: &str) -> Result<SandboxObject, ClaimError> {
    let request = ClusterRequest::of(ClusterVerb::Get, ClusterResource::Sandboxes).named(sandbox);
    let (cluster, _) = lease.place();
    cluster.read_object(send(lease, request).await?)
}

async fn set_mode(lease: &ClaimLease, sandbox: &str, mode: &str) -> Result<(), ClaimError> {
    let body = json!({"spec": {"operatingMode": mode}});
    let request = ClusterRequest::of(ClusterVerb::Patch, ClusterResource::Sandboxes).named(sandbox);
    send(lease, request.with_body(body)).await.map(drop)
}

async fn send(lease: &ClaimLease, request: ClusterRequest) -> Result<serde_json::Value, ClaimError> {
    let (cluster, _) = lease.place();
    let answered = tokio::time::timeout(PATIENCE, cluster.insist(&request)).await;
    let late = |_| Err(cluster.wrong_answer(format!("it takes more than {} seconds", PATIENCE.as_secs())));
    answered.unwrap_or_else(late)
}
