//! Whether a claimed sandbox still has its pod, which is asked when that does not answer.

use std::net::IpAddr;
use std::sync::Arc;

use super::cluster::ClusterClient;
use super::objects::{ClaimObject, ObjectList};
use super::request::{ClusterRequest, ClusterResource, ClusterVerb};
use super::{ClaimError, KeptSandbox};
use crate::ground::text::{describe, visible};

/// A claim, and the address of its pod.
#[derive(Clone)]
pub(crate) struct SandboxStanding {
    cluster: Arc<ClusterClient>,
    claim: String,
    address: IpAddr,
}

impl KeptSandbox {
    /// Its standing with the pod at this address, which can be asked for when that does not answer.
    pub(crate) fn standing(&self, address: IpAddr) -> SandboxStanding {
        let (cluster, claim) = self.lease.place();
        SandboxStanding { cluster: Arc::clone(cluster), claim: claim.to_owned(), address }
    }
}

impl SandboxStanding {
    /// Why its pod is gone, in words, if the cluster says so.
    pub(crate) async fn gone(&self) -> Option<String> {
        match self.look().await {
            Ok(Some(claim)) => claim.gone(self.address).map(|why| visible::line(&why)),
            Ok(None) => Some("its claim was deleted".to_owned()),
            Err(error) => {
                tracing::debug!(
                    error = describe(&error),
                    "the cluster does not say what has become of a sandbox"
                );
                None
            }
        }
    }

    async fn look(&self) -> Result<Option<ClaimObject>, ClaimError> {
        let request = ClusterRequest::of(ClusterVerb::List, ClusterResource::Claims).only(&self.claim);
        let listed = self.cluster.ask(&request).await?;
        let listed: ObjectList<ClaimObject> = self.cluster.read_object(listed)?;
        Ok(listed.items.into_iter().next())
    }
}
