//! Pods of a pool: each is claimed, and reached at its address or through the router of sandboxes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::jupyter::{AccessError, JupyterAccess, JupyterHeaders, JupyterServer};
use super::{AddressDialer, PodRest, PodSourceError, TakenPod, within};
use crate::ground::text::Redactor;
use crate::kernels::claims::{
    ClaimError, ClaimedSandbox, FrontClaim, FrontClaims, SandboxClaims, SandboxStanding, SuspendedSandbox,
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
    Cluster(ClaimedSandbox),
    Front(FrontClaim),
}

/// The address of a sandbox, and its names for the router.
struct PodPlace<'a> {
    sandbox: &'a str,
    namespace: &'a str,
    address: IpAddr,
}

/// The route to a sandbox.
pub(crate) enum PodRoute {
    /// At the address of its pod, with these headers; by TLS if certificates are named.
    Direct { headers: JupyterHeaders, roots: Option<PathBuf>, redactor: Redactor },
    /// Through the router, which takes it from headers.
    Router(Box<JupyterAccess>),
}

/// The claim of a pod that is taken, and its pool.
pub(super) struct PoolClaim {
    pool: Arc<PodPool>,
    claim: PodClaim,
}

/// A pod that nobody uses for a while: its sandbox is suspended. Dropping it has its claim deleted.
pub(super) struct SuspendedPod {
    pool: Arc<PodPool>,
    sandbox: SuspendedSandbox,
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
        let claim = self.claims.claim(report).await?;
        match self.connect(&claim, patience, report).await {
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
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PodLink, PodSourceError> {
        let place = claim.place();
        report(&format!("connecting to the sandbox `{}`", place.sandbox));
        Ok(take_soon(&self.server(&place)?, claim, patience).await?)
    }

    /// The client of a sandbox.
    fn server(&self, place: &PodPlace<'_>) -> Result<Arc<JupyterServer>, AccessError> {
        let access = match &self.route {
            PodRoute::Direct { headers, roots, redactor } => {
                let address = std::net::SocketAddr::new(place.address, self.port);
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
                ("X-Sandbox-ID", place.sandbox),
                ("X-Sandbox-Namespace", place.namespace),
                ("X-Sandbox-Port", &self.port.to_string()),
            ])?,
        };
        Ok(Arc::new(JupyterServer::new(access)?))
    }
}

impl PodClaims {
    async fn claim(&self, report: &(dyn Fn(&str) + Send + Sync)) -> Result<PodClaim, ClaimError> {
        match self {
            Self::Cluster(claims) => claims.claim(report).await.map(PodClaim::Cluster),
            Self::Front(claims) => claims.claim(report).await.map(PodClaim::Front),
        }
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
    fn place(&self) -> PodPlace<'_> {
        match self {
            Self::Cluster(ClaimedSandbox { sandbox, namespace, address, .. }) => {
                PodPlace { sandbox, namespace, address: *address }
            }
            Self::Front(FrontClaim { sandbox, namespace, address, .. }) => {
                PodPlace { sandbox, namespace, address: *address }
            }
        }
    }

    /// The question about its pod, for when that does not answer.
    fn standing(&self) -> Option<SandboxStanding> {
        match self {
            Self::Cluster(claim) => Some(claim.standing()),
            Self::Front(_) => None,
        }
    }

    /// Deletes the claim, and with it the sandbox.
    async fn release(self) {
        match self {
            Self::Cluster(claim) => claim.release().await,
            Self::Front(claim) => claim.release().await,
        }
    }
}

impl PoolClaim {
    /// The state that the sandbox gets when nobody uses it for a while.
    pub(super) async fn rest_for(&self) -> Result<PodRest, PodSourceError> {
        match &self.claim {
            PodClaim::Cluster(claim) if claim.has_volumes().await? => Ok(PodRest::Suspended),
            PodClaim::Front(claim) if claim.has_volumes => Ok(PodRest::Stays),
            PodClaim::Cluster(_) | PodClaim::Front(_) => Ok(PodRest::Deleted),
        }
    }

    /// Suspends the sandbox, if that can be woken.
    pub(super) async fn suspend(self) -> Option<SuspendedPod> {
        match self.claim {
            PodClaim::Cluster(claim) => {
                Some(SuspendedPod { pool: self.pool, sandbox: claim.suspend().await })
            }
            PodClaim::Front(claim) => {
                claim.release().await;
                None
            }
        }
    }

    /// Deletes the claim.
    pub(super) async fn release(self) {
        self.claim.release().await;
    }
}

impl SuspendedPod {
    /// Wakes it, and takes it.
    ///
    /// # Errors
    /// It cannot be woken now, and rests on; or it is gone, and is not returned.
    pub(super) async fn wake(
        self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<TakenPod, (Option<Self>, PodSourceError)> {
        let Self { pool, sandbox } = self;
        let claim = match sandbox.wake(pool.claims.patience(), report).await {
            Ok(sandbox) => PodClaim::Cluster(sandbox),
            Err((sandbox, error @ ClaimError::NotFound { .. })) => {
                sandbox.release().await;
                return Err((None, error.into()));
            }
            Err((sandbox, error)) => return Err((Some(Self { pool, sandbox }), error.into())),
        };
        let connected = pool.connect(&claim, patience, report).await;
        let claim = PoolClaim { pool, claim };
        match connected {
            Ok(link) => Ok(TakenPod { link, claim: Some(claim) }),
            Err(error) => Err((claim.suspend().await, error)),
        }
    }

    /// Deletes its claim.
    pub(super) async fn release(self) {
        self.sandbox.release().await;
    }
}

/// Takes a pod as soon as it can be reached.
async fn take_soon(
    server: &Arc<JupyterServer>,
    claim: &PodClaim,
    patience: Duration,
) -> Result<PodLink, PodError> {
    let deadline = Instant::now() + patience;
    loop {
        let dialer = AddressDialer { server: Arc::clone(server), sandbox: claim.standing() };
        match within(patience, PodLink::take(dialer, None)).await {
            Err(PodError::Unreachable(why)) if Instant::now() + PAUSE < deadline => {
                tracing::debug!(why, "a sandbox cannot be reached yet");
            }
            taken => return taken,
        }
        tokio::time::sleep(PAUSE).await;
    }
}
