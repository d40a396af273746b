//! Claims of sandboxes from a pool in a Kubernetes cluster, by
//! [agent-sandbox](https://github.com/kubernetes-sigs/agent-sandbox): made, awaited, kept, and deleted.
//!
//! ```text
//! claim: create ─→ wait: list and watch until it is ready ─→ KeptSandbox ┄ lease: patches its end, deletes it
//!                                                             ↓     ↑
//!                                              suspension: has no pod, and its volumes stay
//! ```
//!
//! A claim has an end that is always a few minutes away, so that the cluster deletes it when we are gone.

mod cluster;
mod error;
mod front;
mod labelled;
mod lease;
mod objects;
mod request;
mod standing;
mod suspension;
#[cfg(test)]
mod tests;
mod wait;
mod watch;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::cluster::ClusterClient;
pub(crate) use self::error::ClaimError;
pub(crate) use self::front::{FrontClaim, FrontClaims, FrontInquiry};
pub use self::labelled::{
    ClaimLabels, LabelledClaim, LabelledClaimSettings, LabelledClaims, LabelledSandbox,
};
use self::lease::AskedClaim;
use self::objects::ObjectList;
use self::request::{API_VERSION, ClusterRequest, ClusterResource, ClusterVerb, PAUSE};
pub(crate) use self::standing::SandboxStanding;
pub(crate) use self::suspension::KeptSandbox;
use self::wait::ClaimWait;

/// The settings of claims.
#[derive(Debug, Clone)]
pub(crate) struct ClaimSettings {
    /// The pool, a `SandboxWarmPool`.
    pub(crate) pool: String,
    /// Its namespace; that of the credentials without.
    pub(crate) namespace: Option<String>,
    /// The time after which the cluster deletes a claim that nobody keeps.
    pub(crate) lease: Duration,
    /// The time that a sandbox may take to be ready.
    pub(crate) patience: Duration,
    /// Our own pod, with which claims end, if it is in their namespace.
    pub(crate) owner: Option<ClaimOwner>,
    /// Labels of claims, beside those that say that they are ours.
    pub(crate) labels: BTreeMap<&'static str, String>,
}

/// The pod that we run in.
#[derive(Debug, Clone)]
pub(crate) struct ClaimOwner {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Claims sandboxes from one pool. It connects to the cluster with the first claim.
#[derive(Debug)]
pub(crate) struct SandboxClaims {
    settings: ClaimSettings,
    cluster: Arc<OnceCell<Arc<ClusterClient>>>,
}

impl SandboxClaims {
    /// # Errors
    /// The name of the pool or the namespace is none.
    pub(crate) fn new(settings: ClaimSettings) -> Result<Self, ClaimError> {
        let names = [("a warm pool", Some(&settings.pool)), ("a namespace", settings.namespace.as_ref())];
        for (what, name) in names {
            if let Some(name) = name.filter(|name| !is_object_name(name)) {
                return Err(ClaimError::Name { what, name: name.clone() });
            }
        }
        Ok(Self { settings, cluster: Arc::default() })
    }

    /// The time that a sandbox may take to be ready.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.patience
    }

    /// The pool's name.
    pub(crate) fn pool(&self) -> &str {
        &self.settings.pool
    }

    /// Claims a sandbox, waits until it is ready, and returns it with the address of its pod.
    ///
    /// # Errors
    /// There are no credentials or rights for it, no such pool, or no sandbox of it in time.
    pub(crate) async fn claim(
        &self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(KeptSandbox, IpAddr), ClaimError> {
        report(&format!("claiming a sandbox of the pool `{}`", self.settings.pool));
        let cluster = self.cluster.get_or_try_init(|| self.connect()).await?;
        let mut wait = ClaimWait::new(cluster, &self.settings, report);
        let claiming = tokio::time::timeout(self.settings.patience, self.take(cluster, &mut wait)).await;
        claiming.unwrap_or_else(|_| Err(wait.too_late()))
    }

    async fn connect(&self) -> Result<Arc<ClusterClient>, ClaimError> {
        ClusterClient::connect(self.settings.namespace.clone()).await.map(Arc::new)
    }

    async fn take(
        &self,
        cluster: &Arc<ClusterClient>,
        wait: &mut ClaimWait<'_>,
    ) -> Result<(KeptSandbox, IpAddr), ClaimError> {
        self.look_at_pool(cluster, wait).await?;
        let name = format!("ipybox-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        let asked = AskedClaim::new(Arc::clone(cluster), &name, self.settings.lease);
        let created = self.create(cluster, &name, wait).await;
        let lease = asked.answered(created)?;
        let bound = match wait.until_ready(&name).await {
            Err(ClaimError::Rejected { reason, .. }) if reason == "WarmPoolNotFound" => {
                Err(self.no_such_pool(cluster).await)
            }
            bound => bound,
        };
        // Whoever cannot keep a claim should hear that now, and not when it ends in the middle of a cell.
        let kept = match bound {
            Ok(bound) => wait.insist(&lease.renewal()).await.map(|_| bound),
            Err(error) => Err(error),
        };
        match kept {
            Ok(bound) => Ok((KeptSandbox { name: bound.sandbox, lease }, bound.address)),
            Err(error) => {
                lease.release().await;
                Err(error)
            }
        }
    }

    /// Checks that there is the pool, if we may see it. The answer tells the cluster's time, in which the claim's end is.
    async fn look_at_pool(
        &self,
        cluster: &Arc<ClusterClient>,
        wait: &mut ClaimWait<'_>,
    ) -> Result<(), ClaimError> {
        let request = ClusterRequest::of(ClusterVerb::Get, ClusterResource::Pools).named(&self.settings.pool);
        match wait.insist(&request).await {
            Ok(_) | Err(ClaimError::Forbidden { .. }) => Ok(()),
            Err(ClaimError::NotFound { .. }) => Err(self.no_such_pool(cluster).await),
            Err(error) => Err(error),
        }
    }

    async fn create(
        &self,
        cluster: &ClusterClient,
        name: &str,
        wait: &mut ClaimWait<'_>,
    ) -> Result<(), ClaimError> {
        let mut body = self.body(cluster, name);
        loop {
            let request = ClusterRequest::of(ClusterVerb::Create, ClusterResource::Claims).with_body(body);
            match wait.try_once(&request).await {
                // The answer to an earlier try was lost: nobody else takes such a name.
                Ok(_) | Err(ClaimError::Exists { .. }) => return Ok(()),
                Err(error) => tokio::time::sleep(error.pause().ok_or(error)?.max(PAUSE)).await,
            }
            body = self.body(cluster, name);
        }
    }

    fn body(&self, cluster: &ClusterClient, name: &str) -> Value {
        let mut metadata = json!({
            "name": name,
            "labels": {
                "app.kubernetes.io/managed-by": env!("CARGO_PKG_NAME"),
                "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
            },
        });
        for (label, value) in &self.settings.labels {
            metadata["labels"][label] = json!(value);
        }
        if let Some(owner) = self.settings.owner.as_ref().filter(|_| cluster.is_of_our_pod()) {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid});
            metadata["ownerReferences"] = json!([owner]);
        }
        json!({
            "apiVersion": API_VERSION,
            "kind": "SandboxClaim",
            "metadata": metadata,
            "spec": {
                "warmPoolRef": {"name": self.settings.pool},
                "lifecycle": {
                    "shutdownTime": cluster.time_in(self.settings.lease),
                    "shutdownPolicy": "Delete",
                },
            },
        })
    }

    /// The error that names the pools that there are, if they may be listed.
    async fn no_such_pool(&self, cluster: &ClusterClient) -> ClaimError {
        let listed = cluster.ask(&ClusterRequest::of(ClusterVerb::List, ClusterResource::Pools)).await.ok();
        let known = listed.and_then(|list| serde_json::from_value::<ObjectList<Value>>(list).ok());
        let names = known.map(|list| {
            let names = list.items.iter().filter_map(|item| item["metadata"]["name"].as_str());
            names.map(str::to_owned).collect()
        });
        ClaimError::no_such_pool(&self.settings.pool, cluster.namespace(), names)
    }
}

/// Whether this can name an object: a DNS subdomain (RFC 1123).
fn is_object_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
