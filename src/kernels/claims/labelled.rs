//! Claims with labels that say whose they are, for a server that claims sandboxes for many users.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::ClusterClient;
use super::lease::ClaimLease;
use super::objects::{ListedClaim, ObjectList};
use super::request::{ClusterRequest, ClusterResource, ClusterVerb};
use super::wait::ClaimWait;
use super::watch::ClaimWatch;
use super::{ClaimError, ClaimOwner, ClaimSettings, KeptSandbox, SandboxClaims, is_object_name};
use crate::ground::text::describe;

/// The label with the server whose claim it is.
const INSTANCE: &str = "app.kubernetes.io/instance";
/// The label with the key of the user.
const USER: &str = "ipybox-rs.github.io/user";
/// The label with the name of the kernel, if the session has chosen one.
const KERNEL: &str = "ipybox-rs.github.io/kernel";
/// The number of claims in one answer, each of a few kilobytes.
const PAGE: u32 = 200;

/// The query of a request that changes nothing.
const DRY: &str = "dryRun=All";
/// The time after which a check waits for a cluster no longer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of [`LabelledClaims`].
#[derive(Debug, Clone)]
pub struct LabelledClaimSettings {
    /// The namespace of pools and claims; that of the credentials without.
    pub namespace: Option<String>,
    /// All pools.
    pub pools: Vec<String>,
    /// The server whose claims they are, a value of a label.
    pub instance: String,
    /// The time after which the cluster deletes a claim that is not kept.
    pub lease: Duration,
    /// The time that a sandbox may take to be ready.
    pub timeout: Duration,
    /// Whether sandboxes are suspended that nobody uses.
    pub suspends: bool,
    /// The name and the uid of our own pod, with which claims end, if it is in their namespace.
    pub pod: Option<(String, String)>,
}

/// The user whose claim it is, and the kernel that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimLabels {
    /// The user, a value of a label.
    pub user: String,
    /// The kernel, a value of a label; `None` for that of sessions that choose none.
    pub kernel: Option<String>,
}

/// A client of a cluster that claims sandboxes for users. Its errors are words for people, with the keys of a team server's
/// configuration in place of flags.
pub struct LabelledClaims {
    claims: SandboxClaims,
    settings: LabelledClaimSettings,
}

/// A sandbox that is a user's and ready.
pub struct LabelledSandbox {
    /// Its name, by which the router knows it.
    pub sandbox: String,
    /// Its namespace.
    pub namespace: String,
    /// The address of its pod.
    pub address: IpAddr,
    /// Its claim.
    pub claim: LabelledClaim,
}

/// A claim whose end is put off as long as this lives. Dropping it leaves the claim to its end.
pub struct LabelledClaim {
    /// `None` once it is released.
    sandbox: Option<KeptSandbox>,
    /// The time that a suspended sandbox may take to be ready.
    timeout: Duration,
}

impl LabelledClaims {
    /// Connects to the cluster with the first request.
    ///
    /// # Errors
    /// Names are none that Kubernetes can have.
    pub fn new(settings: LabelledClaimSettings) -> Result<Self, String> {
        let mut opened = None;
        for pool in &settings.pools {
            let claims = SandboxClaims::new(ClaimSettings {
                pool: pool.clone(),
                namespace: settings.namespace.clone(),
                lease: settings.lease,
                patience: settings.timeout,
                owner: settings.pod.clone().map(|(name, uid)| ClaimOwner { name, uid }),
                labels: BTreeMap::new(),
            });
            opened = Some(claims.map_err(|error| words(&error))?);
        }
        Ok(Self { claims: opened.ok_or("there is no pool")?, settings })
    }

    /// Finds the credentials, without a request, and returns the files in which they are.
    ///
    /// # Errors
    /// There are none.
    pub async fn find_credentials(&self) -> Result<Vec<PathBuf>, String> {
        let cluster = self.cluster().await.map_err(|error| words(&error))?;
        Ok(cluster.credential_files().to_vec())
    }

    /// Claims a sandbox of a pool, and waits until it is ready. Dropping the future deletes the claim.
    ///
    /// # Errors
    /// There is none in time, or no right to claim one.
    pub async fn claim(
        &self,
        pool: &str,
        labels: &ClaimLabels,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<LabelledSandbox, String> {
        let claimed = self.claims(pool, self.labels(labels)).claim(report).await;
        let (kept, address) = claimed.map_err(|error| words(&error))?;
        Ok(LabelledSandbox {
            sandbox: kept.name().to_owned(),
            namespace: kept.namespace().to_owned(),
            address,
            claim: self.claim_of(kept),
        })
    }

    /// Keeps a claim that is there with these labels; `None` if there is none. Waits while the cluster is away.
    ///
    /// # Errors
    /// The cluster does not tell, or does not do it.
    pub async fn resume(&self, name: &str, labels: &ClaimLabels) -> Result<Option<LabelledClaim>, String> {
        match self.resume_claim(name, labels).await {
            Ok(claim) => Ok(Some(claim)),
            Err(ClaimError::NotFound { .. }) => Ok(None),
            Err(error) => Err(words(&error)),
        }
    }

    /// All claims of this server, by their names.
    ///
    /// # Errors
    /// The cluster does not list them.
    pub async fn list(&self) -> Result<BTreeMap<String, ClaimLabels>, String> {
        self.list_all().await.map_err(|error| words(&error))
    }

    /// Tries pools and rights with requests that change nothing.
    ///
    /// # Errors
    /// One is missing, or the cluster cannot be reached.
    pub async fn check(&self) -> Result<(), String> {
        self.try_rights().await.map_err(|error| words(&error))
    }

    /// The client for claims of an owner from a pool.
    fn claims(&self, pool: &str, labels: BTreeMap<&'static str, String>) -> SandboxClaims {
        let settings = &self.claims.settings;
        SandboxClaims {
            settings: ClaimSettings { pool: pool.to_owned(), labels, ..settings.clone() },
            cluster: Arc::clone(&self.claims.cluster),
        }
    }

    fn claim_of(&self, kept: KeptSandbox) -> LabelledClaim {
        LabelledClaim { sandbox: Some(kept), timeout: self.settings.timeout }
    }

    fn labels(&self, labels: &ClaimLabels) -> BTreeMap<&'static str, String> {
        let kernel = labels.kernel.as_ref().map(|kernel| (KERNEL, kernel.clone()));
        let labels = [(INSTANCE, self.settings.instance.clone()), (USER, labels.user.clone())];
        labels.into_iter().chain(kernel).collect()
    }

    async fn cluster(&self) -> Result<&Arc<ClusterClient>, ClaimError> {
        self.claims.cluster.get_or_try_init(|| self.claims.connect()).await
    }

    /// The claims of this server of the page after that with this mark.
    async fn page(
        &self,
        cluster: &ClusterClient,
        after: Option<&str>,
    ) -> Result<ObjectList<ListedClaim>, ClaimError> {
        let more = after.map(|mark| format!("&continue={mark}")).unwrap_or_default();
        let instance = &self.settings.instance;
        let query = format!("labelSelector={INSTANCE}%3D{instance}&limit={PAGE}{more}");
        let list = cluster
            .ask(&ClusterRequest::of(ClusterVerb::List, ClusterResource::Claims).with_query(&query))
            .await?;
        cluster.read_object(list)
    }

    async fn list_all(&self) -> Result<BTreeMap<String, ClaimLabels>, ClaimError> {
        let cluster = self.cluster().await?;
        let mut found = BTreeMap::new();
        let mut mark: Option<String> = None;
        loop {
            let page = self.page(cluster, mark.as_deref()).await?;
            found.extend(page.items.into_iter().filter_map(known));
            mark = page.metadata.next_page.filter(|mark| !mark.is_empty());
            if mark.is_none() {
                return Ok(found);
            }
        }
    }

    async fn resume_claim(&self, name: &str, labels: &ClaimLabels) -> Result<LabelledClaim, ClaimError> {
        let gone = || ClaimError::NotFound { message: format!("there is no claim `{name}` of this user") };
        if !is_object_name(name) {
            return Err(gone());
        }
        let cluster = self.cluster().await?;
        // Reading one claim by its name is a right that lists include.
        let listed = cluster
            .insist(&ClusterRequest::of(ClusterVerb::List, ClusterResource::Claims).only(name))
            .await?;
        let listed: ObjectList<ListedClaim> = cluster.read_object(listed)?;
        let claim = listed.items.into_iter().next().ok_or_else(gone)?;
        let labels = self.labels(labels);
        let is_owned = labels.iter().all(|(key, value)| claim.metadata.labels.get(*key) == Some(value));
        if !is_owned || claim.metadata.labels.contains_key(KERNEL) != labels.contains_key(KERNEL) {
            return Err(gone());
        }
        let not_named = || cluster.wrong_answer("the claim has no sandbox".to_owned());
        let sandbox = claim.sandbox().ok_or_else(not_named)?.to_owned();
        let lease = ClaimLease::hold(Arc::clone(cluster), name.to_owned(), self.settings.lease);
        let renewal = lease.renewal();
        // From now on it is left to its end if this is cancelled.
        let claim = self.claim_of(KeptSandbox { name: sandbox, lease });
        cluster.insist(&renewal).await?;
        Ok(claim)
    }

    async fn try_rights(&self) -> Result<(), ClaimError> {
        let cluster = self.cluster().await?;
        let labels = ClaimLabels { user: "doctor".to_owned(), kernel: None };
        let name = format!("ipybox-doctor-{}", uuid::Uuid::new_v4().simple());
        for pool in &self.settings.pools {
            let claims = self.claims(pool, self.labels(&labels));
            let mut wait = ClaimWait::new(cluster, &claims.settings, &|_| {});
            let looking = tokio::time::timeout(CHECK_TIMEOUT, claims.look_at_pool(cluster, &mut wait)).await;
            looking.unwrap_or_else(|_| Err(wait.too_late()))?;
            let body = claims.body(cluster, &name);
            let request = ClusterRequest::of(ClusterVerb::Create, ClusterResource::Claims)
                .with_query(DRY)
                .with_body(body);
            cluster.ask(&request).await?;
        }
        self.page(cluster, None).await?;
        ClaimWatch::start(cluster, &name, "0").await?;
        let of_claims = [ClusterVerb::Patch, ClusterVerb::Delete].map(|verb| (verb, ClusterResource::Claims));
        let of_sandboxes =
            [ClusterVerb::Get, ClusterVerb::Patch].map(|verb| (verb, ClusterResource::Sandboxes));
        let of_sandboxes = of_sandboxes.into_iter().filter(|_| self.settings.suspends);
        for (verb, resource) in of_claims.into_iter().chain(of_sandboxes) {
            let mut request = ClusterRequest::of(verb, resource).named(&name);
            if verb != ClusterVerb::Get {
                request = request.with_query(DRY).with_body(serde_json::json!({}));
            }
            match cluster.ask(&request).await {
                // It may, and there is none of that name.
                Ok(_) | Err(ClaimError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl LabelledClaim {
    /// Its name.
    pub fn name(&self) -> &str {
        self.sandbox.as_ref().map(|kept| kept.lease.name()).unwrap_or_default()
    }

    /// Whether the sandbox has volumes, which are deleted with it.
    ///
    /// # Errors
    /// The cluster does not tell.
    pub async fn has_volumes(&self) -> Result<bool, String> {
        self.kept()?.has_volumes().await.map_err(|error| words(&error))
    }

    /// Suspends the sandbox: its pod ends, and its volumes stay.
    ///
    /// # Errors
    /// The cluster does not do it.
    pub async fn suspend(&self) -> Result<(), String> {
        self.kept()?.suspend().await.map_err(|error| words(&error))
    }

    /// Has the sandbox have a pod again, and returns the pod's address; `None` if there is no such sandbox any more.
    ///
    /// # Errors
    /// It has none in time.
    pub async fn wake(&self, report: &(dyn Fn(&str) + Send + Sync)) -> Result<Option<IpAddr>, String> {
        match self.kept()?.wake(self.timeout, report).await {
            Ok(address) => Ok(Some(address)),
            Err(ClaimError::NotFound { .. }) => Ok(None),
            Err(error) => Err(words(&error)),
        }
    }

    /// Why the pod at this address is gone, in words, if the cluster says so.
    pub async fn gone(&self, address: IpAddr) -> Option<String> {
        self.kept().ok()?.standing(address).gone().await
    }

    fn kept(&self) -> Result<&KeptSandbox, String> {
        self.sandbox.as_ref().ok_or_else(|| "the claim was given back".to_owned())
    }

    /// Deletes the claim, and with it the sandbox. Returns whether it is deleted; otherwise the cluster does it when its time is
    /// over.
    pub async fn release(mut self) -> bool {
        match self.sandbox.take() {
            Some(kept) => kept.release().await,
            None => true,
        }
    }
}

impl Drop for LabelledClaim {
    fn drop(&mut self) {
        if let Some(kept) = self.sandbox.take() {
            kept.lease.leave();
        }
    }
}

/// A claim with its labels, if these say whose it is.
fn known(claim: ListedClaim) -> Option<(String, ClaimLabels)> {
    let mut metadata = claim.metadata;
    let labels = ClaimLabels { user: metadata.labels.remove(USER)?, kernel: metadata.labels.remove(KERNEL) };
    Some((metadata.name, labels))
}

/// An error in words, with the keys of the server's configuration in place of flags.
fn words(error: &ClaimError) -> String {
    let flags = [
        ("`--kernel-pool`", "`pool` in `[kernels]`"),
        ("`--kernel-namespace`", "`namespace` in `[kernels]`"),
        ("`--kernel-claim-timeout`", "`claim_timeout` in `[kernels]`"),
    ];
    flags.iter().fold(describe(error), |text, (flag, key)| text.replace(flag, key))
}
