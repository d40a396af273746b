//! The client of the cluster, as the program gives it to the server: this crate knows none.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

/// Opens the client of a cluster. It connects with the first claim.
///
/// # Errors
/// There can be no claims: the reason, in words.
pub type OpenClaimer = fn(ClaimerSettings) -> Result<Arc<dyn SandboxClaimer>, String>;

/// The settings of a client of a cluster.
#[derive(Debug, Clone)]
pub struct ClaimerSettings {
    /// The namespace of pools and claims. Default: that of the credentials.
    pub namespace: Option<String>,
    /// All pools.
    pub pools: Vec<String>,
    /// The value of the label by which claims are this server's.
    pub instance: String,
    /// The time after which the cluster deletes a claim that is not kept.
    pub lease: Duration,
    /// The time that a sandbox may take to be ready.
    pub timeout: Duration,
    /// Whether sandboxes are suspended that nobody uses.
    pub suspends: bool,
}

/// The user whose claim it is, and the kernel that it is for. Both are labels of the claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxOwner {
    /// The key of the user.
    pub user: String,
    /// The name of the kernel; `None` for that of sessions that choose none.
    pub kernel: Option<String>,
}

/// A claim in the cluster.
#[derive(Debug, Clone)]
pub struct KnownClaim {
    /// Its name.
    pub name: String,
    /// The user whose it is.
    pub owner: SandboxOwner,
}

/// The address of a sandbox.
#[derive(Debug, Clone, Serialize)]
pub struct SandboxPlace {
    /// The name of its claim.
    pub claim: String,
    /// Its name, by which the router knows it.
    pub sandbox: String,
    /// Its namespace.
    pub namespace: String,
    /// The address of its pod.
    pub address: IpAddr,
}

/// A sandbox of a user, whose claim is kept.
pub struct TakenSandbox {
    /// Its address.
    pub place: SandboxPlace,
    /// The claim.
    pub claim: Box<dyn KeptClaim>,
}

/// A claim whose end is put off as long as this lives, and its sandbox. Dropping it leaves the claim to its end; see
/// [`release`](Self::release). Errors are words for people.
#[async_trait]
pub trait KeptClaim: Send + Sync {
    /// Whether the sandbox has volumes, which are deleted with it.
    async fn has_volumes(&self) -> Result<bool, String>;

    /// Suspends the sandbox: its pod ends, and its volumes stay.
    async fn suspend(&self) -> Result<(), String>;

    /// Has the sandbox have a pod again, and returns the pod's address; `None` if there is no such sandbox any more.
    async fn wake(&self, report: &ClaimReport) -> Result<Option<IpAddr>, String>;

    /// Why the pod at this address is gone, in words, if the cluster says so.
    async fn gone(&self, address: IpAddr) -> Option<String>;

    /// Deletes the claim, and with it the sandbox. Returns whether it is deleted; otherwise the cluster does it when its time is
    /// over.
    async fn release(self: Box<Self>) -> bool;
}

/// Progress of a claim, in words.
pub type ClaimReport = dyn Fn(&str) + Send + Sync;

/// A client of a cluster that claims sandboxes for users. Its errors are words for people.
#[async_trait]
pub trait SandboxClaimer: Send + Sync {
    /// Finds the credentials for the cluster, without a request, and returns the files in which they are.
    async fn find_credentials(&self) -> Result<Vec<PathBuf>, String>;

    /// Claims a sandbox of a pool, and waits until it is ready. Dropping the future deletes the claim.
    async fn claim(
        &self,
        pool: &str,
        owner: &SandboxOwner,
        report: &ClaimReport,
    ) -> Result<TakenSandbox, String>;

    /// Keeps a claim that is there and has this owner; `None` if there is none. Waits while the cluster is away.
    async fn resume(&self, claim: &str, owner: &SandboxOwner) -> Result<Option<Box<dyn KeptClaim>>, String>;

    /// All claims of this server.
    async fn list(&self) -> Result<Vec<KnownClaim>, String>;

    /// Tries as much as can be tried without a claim: credentials, pools, rights.
    async fn check(&self) -> Result<(), String>;
}
