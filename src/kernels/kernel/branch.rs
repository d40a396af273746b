//! Branches: a kernel of our own forks, and the fork is a kernel with a connection of its own. It sleeps if it is a state to
//! which the kernel can be set back.
//!
//! `ipybox_branch.py` is the kernel's side; see [`fork`](super::fork).

use std::path::PathBuf;
use std::time::Duration;

#[cfg(target_os = "linux")]
use serde_json::json;

use super::branch_error::{BranchError, RenewOrigin};
#[cfg(target_os = "linux")]
use super::fork::ForkRequest;
#[cfg(target_os = "linux")]
use super::output::new_mark;
#[cfg(target_os = "linux")]
use super::own::OwnKernel;
use super::{Error, Kernel, KernelEvent};
use crate::kernels::sandbox::BranchInside;

/// The time that a kernel may take to fork. With 100 GB of memory it takes some seconds.
const FORK_TIMEOUT: Duration = Duration::from_secs(20);
/// The same for a state, for which the next cell waits.
const STATE_TIMEOUT: Duration = Duration::from_secs(10);

/// The data for a branch.
pub(crate) struct BranchOrder {
    /// The tool server of the branch, if its code has tools.
    pub(crate) tools: Option<BranchTools>,
    /// The place of the branch in the sandbox of its origin, if that has one.
    pub(crate) inside: Option<BranchInside>,
    /// Whether it is a state: it sleeps until it takes the place of its origin, whose random numbers and exit functions it has.
    pub(crate) sleeps: bool,
    /// The directories that the branch uses in the place of its origin's.
    pub(crate) moves: Vec<PlaceMove>,
}

/// A directory that a branch uses in the place of another: as its working directory, and to find modules.
#[derive(serde::Serialize)]
pub(crate) struct PlaceMove {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
}

/// The tool server of a branch.
pub(crate) struct BranchTools {
    pub(crate) address: String,
    pub(crate) token: String,
    pub(crate) renew_origin: RenewOrigin,
}

/// A branch that runs.
pub(crate) struct RunningBranch {
    pub(crate) kernel: Kernel,
    /// The differences between it and its origin, beside those that are wanted.
    pub(crate) notes: Vec<String>,
    /// The process of the origin of a state.
    pub(crate) origin: Option<u32>,
}

impl Kernel {
    /// Has a kernel that runs no cell fork. Returns the branch, and what else has happened meanwhile. After at most half a
    /// minute there is a branch or none.
    pub(crate) async fn branch(
        &mut self,
        order: BranchOrder,
    ) -> (Result<RunningBranch, BranchError>, Vec<Result<KernelEvent, Error>>) {
        let mut others = Vec::new();
        let branched = match self {
            #[cfg(target_os = "linux")]
            Self::Own(kernel) => kernel.branch(order, &mut others).await,
            #[cfg(not(target_os = "linux"))]
            Self::Own(_) => Err(BranchError::System),
            Self::Remote(_) => Err(BranchError::Remote),
        };
        (branched, others)
    }
}

#[cfg(target_os = "linux")]
impl OwnKernel {
    async fn branch(
        &mut self,
        order: BranchOrder,
        others: &mut Vec<Result<KernelEvent, Error>>,
    ) -> Result<RunningBranch, BranchError> {
        let BranchOrder { tools, inside, sleeps, moves } = order;
        let (address, token) = tools.as_ref().map(|tools| (&tools.address, &tools.token)).unzip();
        let request = ForkRequest {
            kind: "branch",
            mark: new_mark(),
            content: json!({ "address": address, "token": token, "sleeps": sleeps, "moves": moves }),
            report: None,
            renew_origin: tools.map(|tools| tools.renew_origin),
            timeout: if sleeps { STATE_TIMEOUT } else { FORK_TIMEOUT },
            shows_origin: sleeps,
        };
        let mut fork = request.send(self, others).await?;
        let notes = std::mem::take(&mut fork.notes);
        let origin = fork.origin;
        let branch = fork.welcomed(None, inside, self.limits(), self.held()).await?;
        Ok(RunningBranch { kernel: Kernel::Own(Box::new(branch)), notes, origin })
    }
}
