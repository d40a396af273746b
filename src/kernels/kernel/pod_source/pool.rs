//! Pods of a pool: each is claimed, and reached at its address or through the router of sandboxes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::jupyter::{AccessError, JupyterAccess, JupyterHeaders, JupyterServer};
use super::{AddressDialer, PodRest, PodSourceError, TakenPod, within};
use crate::ground::text::Redactor;
use crate::kernels::claims::{ClaimError, ClaimedSandbox, SandboxClaims, SuspendedSandbox};
use crate::kernels::pod::{PodError, PodLink};

/// The pause between two tries to connect to a sandbox, whose name in DNS may be new.
const PAUSE: Duration = Duration::from_millis(250);

/// A pool of sandboxes, and the route to them.
#[derive(Debug)]
pub(crate) struct PodPool {
    claims: SandboxClaims,
    /// The port on which `ipybox pod` listens in them.
    port: u16,
    route: PodRoute,
}

/// The route to a sandbox.
pub(crate) enum PodRoute {
    /// At the address of its pod, with these headers.
    Direct { headers: JupyterHeaders, roots: Option<PathBuf>, redactor: Redactor },
    /// Through the router, which takes it from headers.
    Router(Box<JupyterAccess>),
}

/// The sandbox of a pod that is taken.
pub(super) struct PoolClaim {
    pool: Arc<PodPool>,
    sandbox: ClaimedSandbox,
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
    pub(crate) fn new(claims: SandboxClaims, port: u16, route: PodRoute) -> Self {
        Self { claims, port, route }
    }

    pub(super) fn name(&self) -> &str {
        self.claims.pool()
    }

    /// Claims a sandbox and takes its pod.
    pub(super) async fn take(
        self: &Arc<Self>,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<TakenPod, PodSourceError> {
        let sandbox = self.claims.claim(report).await?;
        match self.connect(&sandbox, patience, report).await {
            Ok(link) => Ok(TakenPod { link, claim: Some(PoolClaim { pool: Arc::clone(self), sandbox }) }),
            Err(error) => {
                sandbox.release().await;
                Err(error)
            }
        }
    }

    async fn connect(
        &self,
        claim: &ClaimedSandbox,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PodLink, PodSourceError> {
        report(&format!("connecting to the sandbox `{}`", claim.sandbox));
        Ok(take_soon(&self.server(claim)?, claim, patience).await?)
    }

    /// The client of a sandbox.
    fn server(&self, claim: &ClaimedSandbox) -> Result<Arc<JupyterServer>, AccessError> {
        let access = match &self.route {
            PodRoute::Direct { headers, roots, redactor } => {
                let address = std::net::SocketAddr::new(claim.address, self.port);
                JupyterAccess::new(
                    &format!("http://{address}/"),
                    headers.clone(),
                    roots.clone(),
                    redactor.clone(),
                )?
            }
            PodRoute::Router(access) => access.with_headers(&[
                ("X-Sandbox-ID", &claim.sandbox),
                ("X-Sandbox-Namespace", &claim.namespace),
                ("X-Sandbox-Port", &self.port.to_string()),
            ])?,
        };
        Ok(Arc::new(JupyterServer::new(access)?))
    }
}

impl PoolClaim {
    /// The state that the sandbox gets when nobody uses it for a while.
    pub(super) async fn rest_for(&self) -> Result<PodRest, PodSourceError> {
        Ok(if self.sandbox.has_volumes().await? { PodRest::Suspended } else { PodRest::Deleted })
    }

    /// Suspends the sandbox.
    pub(super) async fn suspend(self) -> SuspendedPod {
        SuspendedPod { pool: self.pool, sandbox: self.sandbox.suspend().await }
    }

    /// Deletes the claim.
    pub(super) async fn release(self) {
        self.sandbox.release().await;
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
        let sandbox = match sandbox.wake(pool.claims.patience(), report).await {
            Ok(sandbox) => sandbox,
            Err((sandbox, error @ ClaimError::NotFound { .. })) => {
                sandbox.release().await;
                return Err((None, error.into()));
            }
            Err((sandbox, error)) => return Err((Some(Self { pool, sandbox }), error.into())),
        };
        match pool.connect(&sandbox, patience, report).await {
            Ok(link) => Ok(TakenPod { link, claim: Some(PoolClaim { pool, sandbox }) }),
            Err(error) => Err((Some(Self { pool, sandbox: sandbox.suspend().await }), error)),
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
    claim: &ClaimedSandbox,
    patience: Duration,
) -> Result<PodLink, PodError> {
    let deadline = Instant::now() + patience;
    loop {
        let dialer = AddressDialer { server: Arc::clone(server), sandbox: Some(claim.standing()) };
        match within(patience, PodLink::take(dialer, None)).await {
            Err(PodError::Unreachable(why)) if Instant::now() + PAUSE < deadline => {
                tracing::debug!(why, "a sandbox cannot be reached yet");
            }
            taken => return taken,
        }
        tokio::time::sleep(PAUSE).await;
    }
}
