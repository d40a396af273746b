//! Sandboxes whose claims are kept. One that nobody uses for a while is suspended: it has no pod, and its volumes stay.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use super::ClaimError;
use super::lease::ClaimLease;
use super::objects::SandboxObject;
use super::request::{ClusterRequest, ClusterResource, ClusterVerb, PAUSE};
use crate::ground::text::visible;

/// The time that a request about a sandbox may take, also if it is sent again.
const PATIENCE: Duration = Duration::from_secs(20);

/// A sandbox whose claim is kept, with a pod or suspended. Dropping it has the claim deleted.
pub(crate) struct KeptSandbox {
    pub(super) name: String,
    pub(super) lease: ClaimLease,
}

impl KeptSandbox {
    /// Its name, by which the router knows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    pub(crate) fn namespace(&self) -> &str {
        self.lease.place().0.namespace()
    }

    /// Whether the sandbox has volumes of its own: what is in them is gone when its claim is deleted, and stays when it is
    /// suspended.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(crate) async fn has_volumes(&self) -> Result<bool, ClaimError> {
        Ok(self.look().await?.has_volumes())
    }

    /// Suspends the sandbox: its pod ends.
    ///
    /// # Errors
    /// The cluster does not do it.
    pub(crate) async fn suspend(&self) -> Result<(), ClaimError> {
        self.set_mode("Suspended").await
    }

    /// Has the sandbox have a pod again, which may take the time `patience`, and returns the pod's address.
    ///
    /// # Errors
    /// It has none in time, or is gone.
    pub(crate) async fn wake(
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<IpAddr, ClaimError> {
        report(&format!("waiting for the sandbox `{}`, which was suspended", self.name));
        let mut state = String::new();
        let waking = tokio::time::timeout(patience, self.until_awake(&mut state, report)).await;
        let late = || ClaimError::Asleep {
            sandbox: self.name.clone(),
            claim: self.lease.name().to_owned(),
            seconds: patience.as_secs(),
            state: visible::line(&state),
        };
        waking.unwrap_or_else(|_| Err(late()))
    }

    async fn until_awake(
        &self,
        state: &mut String,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<IpAddr, ClaimError> {
        // The pod of before may not have ended yet, and must not be taken for the next one.
        while self.look().await?.is_suspending() {
            "its pod has not ended".clone_into(state);
            tokio::time::sleep(PAUSE).await;
        }
        self.set_mode("Running").await?;
        loop {
            match self.look().await?.address() {
                Ok(address) => return Ok(address),
                Err(words) if words == *state => {}
                Err(words) => {
                    report(&format!("waiting for the sandbox `{}`: {}", self.name, visible::line(&words)));
                    *state = words;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes the claim, and with it the sandbox. Returns whether it is gone.
    pub(crate) async fn release(self) -> bool {
        self.lease.release().await
    }

    async fn look(&self) -> Result<SandboxObject, ClaimError> {
        let request = ClusterRequest::of(ClusterVerb::Get, ClusterResource::Sandboxes).named(&self.name);
        self.lease.place().0.read_object(self.send(request).await?)
    }

    async fn set_mode(&self, mode: &str) -> Result<(), ClaimError> {
        let body = json!({"spec": {"operatingMode": mode}});
        let request = ClusterRequest::of(ClusterVerb::Patch, ClusterResource::Sandboxes).named(&self.name);
        self.send(request.with_body(body)).await.map(drop)
    }

    async fn send(&self, request: ClusterRequest) -> Result<serde_json::Value, ClaimError> {
        let (cluster, _) = self.lease.place();
        let answered = tokio::time::timeout(PATIENCE, cluster.insist(&request)).await;
        let late =
            |_| Err(cluster.wrong_answer(format!("it takes more than {} seconds", PATIENCE.as_secs())));
        answered.unwrap_or_else(late)
    }
}
