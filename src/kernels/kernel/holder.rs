//! The owner of a kernel's process: us, a sandbox, or another process of ours, which has forked it.

use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;

use super::Error;
use super::death::DeathManner;
#[cfg(target_os = "linux")]
use super::end_report::EndReport;
use super::launch::KernelProcess;
#[cfg(target_os = "linux")]
use crate::ground::process::AdoptedLeader;
use crate::kernels::pod::{PodControl, PodNews};
#[cfg(target_os = "linux")]
use crate::kernels::sandbox::BranchInside;
use crate::kernels::sandbox::{KernelControl, KernelNews};

/// The time that a process may take to end after its connection has closed. A core dump takes a while.
const DEATH_AFTER_DISCONNECT: Duration = Duration::from_secs(5);

/// The owner of the process. Dropping it kills the process and all that it started.
pub(super) enum KernelHolder {
    Us(KernelProcess),
    Sandbox(KernelControl),
    /// A fork of a kernel or of a template.
    #[cfg(target_os = "linux")]
    Adopted(Box<AdoptedKernel>),
    Pod(Box<PodControl>),
}

/// A kernel that is no child of ours.
#[cfg(target_os = "linux")]
pub(super) struct AdoptedKernel {
    pub(super) leader: AdoptedLeader,
    /// The report of its end, if its parent makes one.
    pub(super) report: Option<EndReport>,
    /// Its place in a sandbox, if it is in one, which it has as long as this lives.
    pub(super) _inside: Option<BranchInside>,
}

/// An event of the process.
pub(super) enum HolderNews {
    /// A requested signal has been sent.
    Signalled,
    /// It has ended.
    Ended(DeathManner),
}

/// The manner of an end in a pod, from its exit status if that is known.
fn manner_in_pod(status: Option<ExitStatus>) -> DeathManner {
    status.map_or(DeathManner::Unknown, DeathManner::Process)
}

impl KernelHolder {
    /// Cancellation safe; may be called again after the end.
    pub(super) async fn news(&mut self) -> Result<HolderNews, Error> {
        match self {
            Self::Us(process) => {
                let status = process.wait().await.map_err(Error::Files)?;
                // No process of the kernel writes any more.
                process.signal(Signal::KILL);
                Ok(HolderNews::Ended(DeathManner::Process(status)))
            }
            Self::Sandbox(control) => Ok(match control.news().await {
                KernelNews::Signalled => HolderNews::Signalled,
                KernelNews::Ended(status) => HolderNews::Ended(DeathManner::Process(status)),
            }),
            #[cfg(target_os = "linux")]
            Self::Adopted(kernel) => {
                kernel.leader.ended().await.map_err(Error::Files)?;
                Ok(HolderNews::Ended(match &mut kernel.report {
                    None => DeathManner::Unknown,
                    Some(report) => report.manner().await,
                }))
            }
            Self::Pod(control) => Ok(match control.news().await {
                PodNews::Signalled => HolderNews::Signalled,
                PodNews::Ended(status) => HolderNews::Ended(manner_in_pod(status)),
                PodNews::Lost(why) => HolderNews::Ended(DeathManner::Remote(why)),
            }),
        }
    }

    /// The manner of its end, if it has ended.
    pub(super) fn has_ended(&mut self) -> Result<Option<DeathManner>, Error> {
        let process = |status: Option<ExitStatus>| status.map(DeathManner::Process);
        match self {
            Self::Us(leader) => leader.ended().map(process).map_err(Error::Files),
            Self::Sandbox(control) => Ok(process(control.has_ended())),
            #[cfg(target_os = "linux")]
            Self::Adopted(kernel) => Ok(match &mut kernel.report {
                _ if !kernel.leader.has_ended() => None,
                // It comes in a moment; until then the kernel counts as running.
                Some(report) => report.manner_now(),
                None => Some(DeathManner::Unknown),
            }),
            Self::Pod(control) => Ok(control.has_ended().and_then(|news| match news {
                PodNews::Signalled => None,
                PodNews::Ended(status) => Some(manner_in_pod(status)),
                PodNews::Lost(why) => Some(DeathManner::Remote(why)),
            })),
        }
    }

    /// The process of a branch.
    pub(super) fn branch_process(&self) -> Option<u32> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Adopted(kernel) => Some(kernel.leader.process()),
            Self::Pod(control) => control.process(),
            Self::Us(_) | Self::Sandbox(_) => None,
        }
    }

    /// Whether an ended kernel is gone for certain. When the process that made its sandbox ends, the kernel may run on for a
    /// moment.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Sandbox(control) => control.has_kernel_ended(),
            _ => true,
        }
    }

    /// Why its sandbox has ended, if it has.
    pub(super) fn last_words(&self) -> Option<String> {
        match self {
            Self::Sandbox(control) => control.last_words(),
            _ => None,
        }
    }

    /// Whether a signal has been delivered when it has been sent, so that the kernel handles it before it reads more.
    pub(super) fn signals_at_once(&self) -> bool {
        !matches!(self, Self::Sandbox(_) | Self::Pod(_))
    }

    /// Waits for the end after the connection has closed, and brings it about if it takes too long.
    pub(super) async fn end_without_connection(&mut self) -> Result<DeathManner, Error> {
        if let Ok(manner) = tokio::time::timeout(DEATH_AFTER_DISCONNECT, self.end()).await {
            return manner;
        }
        self.signal(Signal::KILL);
        self.end().await
    }

    async fn end(&mut self) -> Result<DeathManner, Error> {
        loop {
            if let HolderNews::Ended(manner) = self.news().await? {
                return Ok(manner);
            }
        }
    }

    /// Sends a signal to the kernel and all that it started.
    pub(super) fn signal(&self, signal: Signal) {
        match self {
            Self::Us(process) => process.signal(signal),
            Self::Sandbox(control) => control.signal(signal),
            #[cfg(target_os = "linux")]
            Self::Adopted(kernel) => kernel.leader.signal(signal),
            Self::Pod(control) => control.signal(signal),
        }
    }

    /// Kills the kernel and all that it started. `false` if it is in a sandbox that does not confirm it.
    pub(super) async fn kill(self) -> bool {
        match self {
            Self::Us(process) => process.kill().await,
            Self::Sandbox(control) => return control.kill().await,
            #[cfg(target_os = "linux")]
            Self::Adopted(kernel) => kernel.leader.kill().await,
            Self::Pod(control) => control.kill().await,
        }
        true
    }
}
