//! The source of a session's pods: the one at an address, or sandboxes that are claimed from a pool.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::jupyter::{AccessError, DuplexStream, JupyterServer};
use crate::ground::text::describe;
#[cfg(feature = "kubernetes")]
use crate::kernels::claims::{ClaimError, FrontClaims};
use crate::kernels::pod::{LinkKey, PodDialer, PodError, PodLink};

#[cfg(feature = "kubernetes")]
mod pool;

#[cfg(feature = "kubernetes")]
pub(crate) use self::pool::{PodClaims, PodPool, PodRoute};
#[cfg(feature = "kubernetes")]
use self::pool::{PodInquiry, PoolClaim};

/// Without a cluster no pod has a claim.
#[cfg(not(feature = "kubernetes"))]
type PoolClaim = std::convert::Infallible;

/// The source of pods.
#[derive(Debug, Clone)]
pub(crate) enum PodSource {
    /// There is one, at this address.
    Address {
        server: Arc<JupyterServer>,
        /// The secret for which it is kept.
        secret: Option<LinkKey>,
    },
    /// Each is claimed from a pool.
    #[cfg(feature = "kubernetes")]
    Pool(Arc<PodPool>),
}

/// Why there is no pod for a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodSourceError {
    /// It cannot be taken.
    #[error(transparent)]
    Link(#[from] PodError),
    /// There is no client for it.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The cluster gives none.
    #[cfg(feature = "kubernetes")]
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

impl PodSourceError {
    /// Whether the pod's sandbox is gone.
    pub(crate) fn is_missing(&self) -> bool {
        #[cfg(feature = "kubernetes")]
        return matches!(self, Self::Claim(ClaimError::NotFound { .. }));
        #[cfg(not(feature = "kubernetes"))]
        false
    }
}

/// A pod that a session has taken. Dropping it has the pod end.
pub(crate) struct TakenPod {
    link: PodLink,
    #[cfg(feature = "kubernetes")]
    claim: Option<PoolClaim>,
}

/// The state of a pod that nobody uses for a while.
#[cfg_attr(not(feature = "kubernetes"), expect(dead_code, reason = "only sandboxes of a pool do not stay"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodRest {
    /// It stays: nobody else could use it.
    Stays,
    /// Its sandbox is suspended: the volumes stay.
    Suspended,
    /// Its sandbox is deleted, with its files.
    Deleted,
}

/// A pod that rests, and can be woken. Dropping it gives it up.
pub(crate) struct RestingPod(PoolClaim);

/// Opens WebSockets to a pod.
struct AddressDialer {
    server: Arc<JupyterServer>,
    /// Its sandbox.
    #[cfg(feature = "kubernetes")]
    sandbox: Option<PodInquiry>,
}

impl PodDialer for AddressDialer {
    type Stream = Box<dyn DuplexStream>;

    fn dial(
        &self,
        config: WebSocketConfig,
    ) -> BoxFuture<'_, Result<WebSocketStream<Box<dyn DuplexStream>>, String>> {
        Box::pin(async move {
            self.server.root_socket(config).await.map_err(|error| match error {
                super::jupyter::Error::Unreachable { reason, .. } => reason,
                error => describe(&error).to_string(),
            })
        })
    }

    fn gone(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async move {
            #[cfg(feature = "kubernetes")]
            if let Some(sandbox) = &self.sandbox {
                return sandbox.gone().await;
            }
            None
        })
    }
}

/// In words: `the pod at …`.
impl std::fmt::Display for PodSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address { server, .. } => write!(formatter, "the pod at `{}`", server.name()),
            #[cfg(feature = "kubernetes")]
            Self::Pool(pool) => write!(formatter, "a sandbox of the pool `{}`", pool.name()),
        }
    }
}

impl PodSource {
    /// Its name for people.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Address { server, .. } => server.name(),
            #[cfg(feature = "kubernetes")]
            Self::Pool(pool) => pool.name(),
        }
    }

    /// The claims, if the server of a team makes them.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn of_front(&self) -> Option<&FrontClaims> {
        match self {
            Self::Address { .. } => None,
            Self::Pool(pool) => pool.of_front(),
        }
    }

    /// Takes a pod, which has the time `patience` to answer.
    pub(crate) async fn take(
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<TakenPod, PodSourceError> {
        match self {
            Self::Address { server, secret } => {
                report("connecting to the pod");
                let dialer = AddressDialer {
                    server: Arc::clone(server),
                    #[cfg(feature = "kubernetes")]
                    sandbox: None,
                };
                let link = within(patience, PodLink::take(dialer, secret.as_ref())).await?;
                Ok(TakenPod {
                    link,
                    #[cfg(feature = "kubernetes")]
                    claim: None,
                })
            }
            #[cfg(feature = "kubernetes")]
            Self::Pool(pool) => pool.take(patience, report).await,
        }
    }
}

impl TakenPod {
    /// The connection to it.
    pub(crate) fn link(&self) -> &PodLink {
        &self.link
    }

    /// The state that it gets when nobody uses it for a while.
    ///
    /// # Errors
    /// The cluster does not tell whether files would be lost.
    pub(crate) async fn rest_for(&self) -> Result<PodRest, PodSourceError> {
        #[cfg(feature = "kubernetes")]
        if let Some(claim) = &self.claim {
            return claim.rest_for().await;
        }
        Ok(PodRest::Stays)
    }

    /// Leaves it; its sandbox, if it has one, is to be suspended.
    pub(crate) async fn rest(self) -> Option<RestingPod> {
        self.link.leave().await;
        #[cfg(feature = "kubernetes")]
        return self.claim.map(RestingPod);
        #[cfg(not(feature = "kubernetes"))]
        None
    }

    /// Leaves it, and deletes its claim.
    pub(crate) async fn leave(self) {
        self.link.leave().await;
        #[cfg(feature = "kubernetes")]
        if let Some(claim) = self.claim {
            claim.release().await;
        }
    }
}

impl RestingPod {
    /// Suspends it. If the cluster does not do it, it runs on until it is woken.
    #[cfg_attr(not(feature = "kubernetes"), expect(clippy::unused_async, reason = "there is none"))]
    pub(crate) async fn suspend(&self) {
        #[cfg(feature = "kubernetes")]
        self.0.suspend().await;
        #[cfg(not(feature = "kubernetes"))]
        match self.0 {}
    }

    /// Wakes it, and connects to it, which may take the time `patience` once it runs. It is suspended again if that fails.
    ///
    /// # Errors
    /// It cannot be woken now, or [is missing](PodSourceError::is_missing).
    #[cfg_attr(
        not(feature = "kubernetes"),
        expect(clippy::unused_async, unused_variables, reason = "there is none")
    )]
    pub(crate) async fn wake(
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PodLink, PodSourceError> {
        #[cfg(feature = "kubernetes")]
        return self.0.wake(patience, report).await;
        #[cfg(not(feature = "kubernetes"))]
        match self.0 {}
    }

    /// The pod, to which this connection leads.
    #[cfg_attr(not(feature = "kubernetes"), expect(unused_variables, reason = "there is none"))]
    pub(crate) fn taken(self, link: PodLink) -> TakenPod {
        #[cfg(feature = "kubernetes")]
        return TakenPod { link, claim: Some(self.0) };
        #[cfg(not(feature = "kubernetes"))]
        match self.0 {}
    }

    /// Gives it up.
    #[cfg_attr(not(feature = "kubernetes"), expect(clippy::unused_async, reason = "there is none"))]
    pub(crate) async fn release(self) {
        #[cfg(feature = "kubernetes")]
        self.0.release().await;
        #[cfg(not(feature = "kubernetes"))]
        match self.0 {}
    }
}

async fn within(
    patience: Duration,
    taking: impl Future<Output = Result<PodLink, PodError>>,
) -> Result<PodLink, PodError> {
    tokio::time::timeout(patience, taking).await.unwrap_or_else(|_| {
        let seconds = patience.as_secs_f64();
        Err(PodError::Unreachable(format!("it does not answer within {seconds} seconds")))
    })
}
