//! Pods of a pool: each is claimed, and reached at its address or through the router of sandboxes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::jupyter::{AccessError, JupyterAccess, JupyterHeaders, JupyterServer};
use super::{AddressDialer, PodRest, PodSourceError, TakenPod, within};
use crate::ground::text::{Redactor, describe};
use crate::kernels::claims::{
    ClaimError, FrontClaim, FrontClaims, FrontInquiry, KeptSandbox, SandboxClaims, SandboxStanding,
};
use crate::kernels::pod::{PodError, PodLink};

/// The pause between two tries to connect to a sandbox, whose name in DNS may be new.
const PAUSE: Duration = Duration::from_millis(250);

/// A pool of sandboxes, and the route to them.
#[derive(Debug)]
pub(crate) struct PodPool {
    claims: PodClaims,
    /// The port on which `ipybox pod` listens in them.
    port: u16,
    route: PodRoute,
}

/// The one who claims the sandboxes.
#[derive(Debug)]
pub(crate) enum PodClaims {
    /// The session, which has credentials for the cluster.
    Cluster(SandboxClaims),
    /// The server of a team, of which it is a session.
    Front(FrontClaims),
}

/// The claim of a sandbox. Dropping it has it deleted.
enum PodClaim {
    Cluster(KeptSandbox),
    Front(FrontClaim),
}

/// The question about the pod of a sandbox, for when that does not answer.
#[derive(Clone)]
pub(super) enum PodInquiry {
    Cluster(SandboxStanding),
    Front(FrontInquiry, IpAddr),
}

/// The route to a sandbox.
pub(crate) enum PodRoute {
    /// At the address of its pod, with these headers; by TLS if certificates are named.
    Direct { headers: JupyterHeaders, roots: Option<PathBuf>, redactor: Redactor },
    /// Through the router, which takes it from headers.
    Router(Box<JupyterAccess>),
}

/// The claim of a sandbox, which runs or is suspended, and its pool. Dropping it has it deleted.
pub(super) struct PoolClaim {
    pool: Arc<PodPool>,
    claim: PodClaim,
}

/// Without the values of headers.
impl std::fmt::Debug for PodRoute {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Direct { .. } => "Direct",
            Self::Router(_) => "Router",
        })
    }
}

impl PodPool {
    pub(crate) fn new(claims: PodClaims, port: u16, route: PodRoute) -> Self {
        Self { claims, port, route }
    }

    pub(super) fn name(&self) -> &str {
        match &self.claims {
            PodClaims::Cluster(claims) => claims.pool(),
            PodClaims::Front(claims) => claims.pool(),
        }
    }

    /// The claims, if the server of a team makes them.
    pub(super) fn of_front(&self) -> Option<&FrontClaims> {
        match &self.claims {
            PodClaims::Cluster(_) => None,
            PodClaims::Front(claims) => Some(claims),
        }
    }

    /// Claims a sandbox and takes its pod.
    pub(super) async fn take(
        self: &Arc<Self>,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<TakenPod, PodSourceError> {
        let (claim, address) = self.claims.claim(report).await?;
        match self.connect(&claim, address, patience, report).await {
            Ok(link) => Ok(TakenPod { link, claim: Some(PoolClaim { pool: Arc::clone(self), claim }) }),
            Err(error) => {
                claim.release().await;
                Err(error)
            }
        }
    }

    async fn connect(
        &self,
        claim: &PodClaim,
        address: IpAddr,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PodLink, PodSourceError> {
        report(&format!("connecting to the sandbox `{}`", claim.name()));
        let server = self.server(claim, address)?;
        Ok(take_soon(&server, &claim.inquiry(address), patience).await?)
    }

    /// The client of a sandbox.
    fn server(&self, claim: &PodClaim, address: IpAddr) -> Result<Arc<JupyterServer>, AccessError> {
        let access = match &self.route {
            PodRoute::Direct { headers, roots, redactor } => {
                let address = std::net::SocketAddr::new(address, self.port);
                // Only who has a certificate says which ones are trusted.
                let scheme = if roots.is_some() { "https" } else { "http" };
                JupyterAccess::new(
                    &format!("{scheme}://{address}/"),
                    headers.clone(),
                    roots.clone(),
                    redactor.clone(),
                )?
            }
            PodRoute::Router(access) => access.with_headers(&[
                ("X-Sandbox-ID", claim.name()),
                ("X-Sandbox-Namespace", claim.namespace()),
                ("X-Sandbox-Port", &self.port.to_string()),
            ])?,
        };
        Ok(Arc::new(JupyterServer::new(access)?))
    }
}

impl PodClaims {
    async fn claim(&self, report: &(dyn Fn(&str) + Send + Sync)) -> Result<(PodClaim, IpAddr), ClaimError> {
        Ok(match self {
            Self::Cluster(claims) => {
                let (sandbox, address) = claims.claim(report).await?;
                (PodClaim::Cluster(sandbox), address)
            }
            Self::Front(claims) => {
                let (claim, address) = claims.claim(report).await?;
                (PodClaim::Front(claim), address)
            }
        })
    }

    /// The time that a sandbox may take to be ready.
    fn patience(&self) -> Duration {
        match self {
            Self::Cluster(claims) => claims.patience(),
            Self::Front(claims) => claims.patience(),
        }
    }
}

impl PodClaim {
    fn name(&self) -> &str {
        match self {
            Self::Cluster(sandbox) => sandbox.name(),
            Self::Front(claim) => claim.name(),
        }
    }

    fn namespace(&self) -> &str {
        match self {
            Self::Cluster(sandbox) => sandbox.namespace(),
            Self::Front(claim) => claim.namespace(),
        }
    }

    fn inquiry(&self, address: IpAddr) -> PodInquiry {
        match self {
            Self::Cluster(sandbox) => PodInquiry::Cluster(sandbox.standing(address)),
            Self::Front(claim) => PodInquiry::Front(claim.inquiry(), address),
        }
    }

    async fn has_volumes(&self) -> Result<bool, ClaimError> {
        match self {
            Self::Cluster(sandbox) => sandbox.has_volumes().await,
            Self::Front(claim) => claim.has_volumes().await,
        }
    }

    async fn suspend(&self) -> Result<(), ClaimError> {
        match self {
            Self::Cluster(sandbox) => sandbox.suspend().await,
            Self::Front(claim) => claim.suspend().await,
        }
    }

    async fn wake(
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<IpAddr, ClaimError> {
        match self {
            Self::Cluster(sandbox) => sandbox.wake(patience, report).await,
            Self::Front(claim) => claim.wake(patience, report).await,
        }
    }

    /// Deletes the claim, and with it the sandbox.
    async fn release(self) {
        match self {
            Self::Cluster(sandbox) => drop(sandbox.release().await),
            Self::Front(claim) => claim.release().await,
        }
    }
}

impl PodInquiry {
    /// Why the pod is gone, in words, if that is known.
    pub(super) async fn gone(&self) -> Option<String> {
        match self {
            Self::Cluster(standing) => standing.gone().await,
            Self::Front(inquiry, address) => inquiry.gone(*address).await,
        }
    }
}

impl PoolClaim {
    /// The state that the sandbox gets when nobody uses it for a while.
    pub(super) async fn rest_for(&self) -> Result<PodRest, PodSourceError> {
        Ok(if self.claim.has_volumes().await? { PodRest::Suspended } else { PodRest::Deleted })
    }

    /// Suspends the sandbox. If the cluster does not do it, the pod runs on until it is woken.
    pub(super) async fn suspend(&self) {
        if let Err(error) = self.claim.suspend().await {
            let sandbox = self.claim.name();
            tracing::warn!(sandbox, error = describe(&error), "a sandbox is not suspended");
        }
    }

    /// Wakes the sandbox, and connects to its pod. It is suspended again if that fails.
    pub(super) async fn wake(
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PodLink, PodSourceError> {
        let woken = match self.claim.wake(self.pool.claims.patience(), report).await {
            Ok(address) => self.pool.connect(&self.claim, address, patience, report).await,
            Err(error) => Err(error.into()),
        };
        if woken.as_ref().is_err_and(|error| !error.is_missing()) {
            self.suspend().await;
        }
        woken
    }

    /// Deletes the claim.
    pub(super) async fn release(self) {
        self.claim.release().await;
    }
}

/// Takes a pod as soon as it can be reached.
async fn take_soon(
    server: &Arc<JupyterServer>,
    sandbox: &PodInquiry,
    patience: Duration,
) -> Result<PodLink, PodError> {
    let deadline = Instant::now() + patience;
    loop {
        let dialer = AddressDialer { server: Arc::clone(server), sandbox: Some(sandbox.clone()) };
        match within(patience, PodLink::take(dialer, None)).await {
            Err(PodError::Unreachable(why)) if Instant::now() + PAUSE < deadline => {
                tracing::debug!(why, "a sandbox cannot be reached yet");
            }
            taken => return taken,
        }
        tokio::time::sleep(PAUSE).await;
    }
}
