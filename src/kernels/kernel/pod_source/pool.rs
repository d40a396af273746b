//! Pods of a pool: each is claimed, and reached at its address or through the router of sandboxes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::jupyter::{AccessError, JupyterAccess, JupyterHeaders, JupyterServer};
use super::{AddressDialer, PodSourceError, TakenPod, within};
use crate::ground::text::Redactor;
use crate::kernels::claims::{ClaimError, ClaimedSandbox, FrontClaim, FrontClaims, SandboxClaims};
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
pub(super) enum PodClaim {
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
    /// At the address of its pod, with these headers.
    Direct { headers: JupyterHeaders, roots: Option<PathBuf>, redactor: Redactor },
    /// Through the router, which takes it from headers.
    Router(Box<JupyterAccess>),
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
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<TakenPod, PodSourceError> {
        let claim = self.claims.claim(report).await?;
        let place = claim.place();
        report(&format!("connecting to the sandbox `{}`", place.sandbox));
        let taken = match self.server(&place) {
            Ok(server) => take_soon(&server, patience).await.map_err(PodSourceError::from),
            Err(error) => Err(error.into()),
        };
        match taken {
            Ok(link) => Ok(TakenPod { link, claim: Some(claim) }),
            Err(error) => {
                claim.release().await;
                Err(error)
            }
        }
    }

    /// The client of a sandbox.
    fn server(&self, place: &PodPlace<'_>) -> Result<Arc<JupyterServer>, AccessError> {
        let access = match &self.route {
            PodRoute::Direct { headers, roots, redactor } => {
                let address = std::net::SocketAddr::new(place.address, self.port);
                JupyterAccess::new(
                    &format!("http://{address}/"),
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

    /// Deletes the claim, and with it the sandbox.
    pub(super) async fn release(self) {
        match self {
            Self::Cluster(claim) => claim.release().await,
            Self::Front(claim) => claim.release().await,
        }
    }
}

/// Takes a pod as soon as it can be reached.
async fn take_soon(server: &Arc<JupyterServer>, patience: Duration) -> Result<PodLink, PodError> {
    let deadline = Instant::now() + patience;
    loop {
        match within(patience, PodLink::take(AddressDialer(Arc::clone(server)), None)).await {
            Err(PodError::Unreachable(why)) if Instant::now() + PAUSE < deadline => {
                tracing::debug!(why, "a sandbox cannot be reached yet");
            }
            taken => return taken,
        }
        tokio::time::sleep(PAUSE).await;
    }
}
