//! The client of a cluster for `ipybox team`: the library's, as the server asks it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use ipybox::{ClaimLabels, LabelledClaim, LabelledClaimSettings, LabelledClaims, LabelledSandbox};
use ipybox_team::{
    ClaimReport, ClaimerSettings, KeptClaim, KnownClaim, SandboxClaimer, SandboxOwner, SandboxPlace,
    TakenSandbox,
};

struct TeamClaims(LabelledClaims);

struct TeamClaim(LabelledClaim);

/// Opens it for a server that may run in a pod of the cluster.
pub(super) fn open_claimer(settings: ClaimerSettings) -> Result<Arc<dyn SandboxClaimer>, String> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let claims = LabelledClaims::new(LabelledClaimSettings {
        namespace: settings.namespace,
        pools: settings.pools,
        instance: settings.instance,
        lease: settings.lease,
        timeout: settings.timeout,
        suspends: settings.suspends,
        pod: variable("POD_NAME").zip(variable("POD_UID")),
    });
    Ok(Arc::new(TeamClaims(claims?)))
}

#[async_trait]
impl SandboxClaimer for TeamClaims {
    async fn find_credentials(&self) -> Result<Vec<PathBuf>, String> {
        self.0.find_credentials().await
    }

    async fn claim(
        &self,
        pool: &str,
        owner: &SandboxOwner,
        report: &ClaimReport,
    ) -> Result<TakenSandbox, String> {
        let claimed = self.0.claim(pool, &labels(owner), report).await?;
        let LabelledSandbox { sandbox, namespace, address, claim } = claimed;
        let place = SandboxPlace { claim: claim.name().to_owned(), sandbox, namespace, address };
        Ok(TakenSandbox { place, claim: Box::new(TeamClaim(claim)) })
    }

    async fn resume(&self, claim: &str, owner: &SandboxOwner) -> Result<Option<Box<dyn KeptClaim>>, String> {
        let resumed = self.0.resume(claim, &labels(owner)).await?;
        Ok(resumed.map(|claim| Box::new(TeamClaim(claim)) as Box<dyn KeptClaim>))
    }

    async fn list(&self) -> Result<Vec<KnownClaim>, String> {
        let known =
            |(name, ClaimLabels { user, kernel })| KnownClaim { name, owner: SandboxOwner { user, kernel } };
        Ok(self.0.list().await?.into_iter().map(known).collect())
    }

    async fn check(&self) -> Result<(), String> {
        self.0.check().await
    }
}

#[async_trait]
impl KeptClaim for TeamClaim {
    async fn has_volumes(&self) -> Result<bool, String> {
        self.0.has_volumes().await
    }

    async fn suspend(&self) -> Result<(), String> {
        self.0.suspend().await
    }

    async fn wake(&self, report: &ClaimReport) -> Result<Option<IpAddr>, String> {
        self.0.wake(report).await
    }

    async fn gone(&self, address: IpAddr) -> Option<String> {
        self.0.gone(address).await
    }

    async fn release(self: Box<Self>) -> bool {
        self.0.release().await
    }
}

fn labels(owner: &SandboxOwner) -> ClaimLabels {
    ClaimLabels { user: owner.user.clone(), kernel: owner.kernel.clone() }
}
