//! The number of sandboxes that each user has of each kernel.

use std::sync::Arc;

use parking_lot::Mutex;

use super::claimer::{KnownClaim, SandboxClaimer, SandboxOwner};

/// Counts the sandboxes of users: those of sessions that are connected, and claims that a server before this one has made and no
/// session has resumed.
#[derive(Default)]
pub(super) struct SandboxQuota {
    counted: Arc<Mutex<CountedClaims>>,
    /// Whether the claims of the server before this one are counted. Held while the cluster is asked: one request at a time.
    has_listed: tokio::sync::Mutex<bool>,
}

#[derive(Default)]
struct CountedClaims {
    next: u64,
    open: Vec<OpenClaim>,
    left: Vec<KnownClaim>,
}

struct OpenClaim {
    number: u64,
    owner: SandboxOwner,
    /// The name of the claim, once it is made.
    name: Option<String>,
}

/// Why there is no place for another sandbox.
pub(super) enum QuotaRefusal {
    /// The user has as many as there may be.
    Full,
    /// The cluster does not tell which claims there are: the reason, in words.
    Unknown(String),
}

/// A place for a sandbox, until this is dropped.
pub(super) struct SandboxSlot {
    counted: Arc<Mutex<CountedClaims>>,
    number: u64,
}

impl SandboxQuota {
    /// Takes a place for another sandbox of this owner, who may have so many.
    pub(super) async fn take(
        &self,
        owner: &SandboxOwner,
        most: usize,
        claimer: &dyn SandboxClaimer,
    ) -> Result<SandboxSlot, QuotaRefusal> {
        {
            let mut has_listed = self.has_listed.lock().await;
            if !*has_listed {
                let listed = claimer.list().await.map_err(QuotaRefusal::Unknown)?;
                self.counted.lock().add_left(listed);
                *has_listed = true;
            }
        }
        if self.counted.lock().is_full_by_left(owner, most) {
            // Some may have ended since. Other users do not wait for it.
            let listed = claimer.list().await.map_err(QuotaRefusal::Unknown)?;
            let is_there = |left: &KnownClaim| listed.iter().any(|claim| claim.name == left.name);
            self.counted.lock().left.retain(is_there);
        }
        let mut counted = self.counted.lock();
        if counted.of(owner) >= most {
            return Err(QuotaRefusal::Full);
        }
        Ok(self.slot(&mut counted, owner, None))
    }

    /// The place of a sandbox that a session has resumed.
    pub(super) fn resume(&self, owner: &SandboxOwner, name: &str) -> SandboxSlot {
        let mut counted = self.counted.lock();
        counted.left.retain(|claim| claim.name != name);
        self.slot(&mut counted, owner, Some(name.to_owned()))
    }

    fn slot(&self, counted: &mut CountedClaims, owner: &SandboxOwner, name: Option<String>) -> SandboxSlot {
        let number = counted.next;
        counted.next += 1;
        counted.open.push(OpenClaim { number, owner: owner.clone(), name });
        SandboxSlot { counted: Arc::clone(&self.counted), number }
    }
}

impl CountedClaims {
    fn of(&self, owner: &SandboxOwner) -> usize {
        let open = self.open.iter().filter(|claim| claim.owner == *owner).count();
        open + self.left_of(owner)
    }

    fn left_of(&self, owner: &SandboxOwner) -> usize {
        self.left.iter().filter(|claim| claim.owner == *owner).count()
    }

    fn is_full_by_left(&self, owner: &SandboxOwner, most: usize) -> bool {
        self.left_of(owner) > 0 && self.of(owner) >= most
    }

    /// Counts claims that no session has resumed.
    fn add_left(&mut self, claims: Vec<KnownClaim>) {
        let is_open =
            |claim: &KnownClaim| self.open.iter().any(|open| open.name.as_ref() == Some(&claim.name));
        let left: Vec<_> = claims.into_iter().filter(|claim| !is_open(claim)).collect();
        self.left.extend(left);
    }
}

impl SandboxSlot {
    /// Notes the name of the claim that has the place.
    pub(super) fn name(&self, claim: &str) {
        if let Some(open) = self.counted.lock().open.iter_mut().find(|open| open.number == self.number) {
            open.name = Some(claim.to_owned());
        }
    }

    /// Has the claim counted until the cluster has it no more.
    pub(super) fn leave(self) {
        let mut counted = self.counted.lock();
        let open = counted.open.iter().find(|open| open.number == self.number);
        let left =
            open.and_then(|open| Some(KnownClaim { name: open.name.clone()?, owner: open.owner.clone() }));
        counted.left.extend(left);
    }
}

impl Drop for SandboxSlot {
    fn drop(&mut self) {
        self.counted.lock().open.retain(|open| open.number != self.number);
    }
}
