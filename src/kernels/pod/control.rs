//! The control of a kernel in a pod: signals, forks and its end.

use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};

use super::kernel_state::{PodKernelEnd, PodKernelState};
use super::protocol::{PodForkRequest, PodRequest};
use super::shared::{AddedKernel, LinkShared};

/// The time that a pod may take to report the end of a kernel after a request to kill it.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// An event of a kernel in a pod.
pub(crate) enum PodNews {
    /// A requested signal has been sent.
    Signalled,
    /// It has ended, with this status if it is known.
    Ended(Option<ExitStatus>),
    /// It has ended in another way.
    Lost(String),
}

/// The control of a kernel in a pod. Dropping it kills the kernel.
pub(crate) struct PodControl {
    pub(super) kernel: u64,
    link: Arc<LinkShared>,
    state: watch::Receiver<PodKernelState>,
    /// The number of sent signals that were reported to the caller.
    heard_signals: u64,
    forks: mpsc::UnboundedSender<PodForkRequest>,
}

impl PodControl {
    /// Adds a kernel to those of a pod, which is told afterwards.
    pub(super) fn of_new_kernel(
        link: &Arc<LinkShared>,
        socket: OwnedFd,
        output: OwnedFd,
    ) -> std::io::Result<Self> {
        let AddedKernel { kernel, state, forks } = link.add_kernel(socket, output)?;
        Ok(Self { kernel, link: Arc::clone(link), state, heard_signals: 0, forks })
    }

    /// Sends a signal to the kernel and all that it started.
    pub(crate) fn signal(&self, signal: Signal) {
        self.link.request(PodRequest::Signal { kernel: self.kernel, signal: signal.as_raw() });
    }

    /// The next event of the kernel, or the end of its pod. Cancellation safe; may be called again after the end.
    pub(crate) async fn news(&mut self) -> PodNews {
        loop {
            if self.state.borrow().signals > self.heard_signals {
                self.heard_signals += 1;
                return PodNews::Signalled;
            }
            if let Some(ended) = self.has_ended() {
                return ended;
            }
            tokio::select! {
                changed = self.state.changed() => if changed.is_err() {
                    // Only the end of the pod is known.
                    self.link.until_ended().await;
                },
                () = self.link.until_ended() => {}
            }
        }
    }

    /// Its end, if it has ended.
    pub(crate) fn has_ended(&self) -> Option<PodNews> {
        match self.state.borrow().ended.clone() {
            Some(PodKernelEnd::Exited(status)) => Some(PodNews::Ended(Some(status))),
            Some(PodKernelEnd::Unknown) => Some(PodNews::Ended(None)),
            Some(PodKernelEnd::NotStarted(why)) => Some(PodNews::Lost(why)),
            None => self.link.end().map(PodNews::Lost),
        }
    }

    /// Kills the kernel and all that it started, and waits for its end.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        let ended = async { while matches!(self.news().await, PodNews::Signalled) {} };
        if tokio::time::timeout(KILL_GRACE, ended).await.is_err() {
            tracing::warn!("a pod has not confirmed yet that it has killed a kernel");
        }
    }

    /// Has the kernel get a message with the other ends of `socket` and `output`, for a fork of it. Which process the fork is
    /// says [`forked`](Self::forked).
    pub(crate) fn fork(
        &self,
        message: &[u8],
        shows_origin: bool,
        socket: OwnedFd,
        output: OwnedFd,
    ) -> std::io::Result<Self> {
        let fork = Self::of_new_kernel(&self.link, socket, output)?;
        let message = BASE64.encode(message);
        let request = PodForkRequest { kernel: fork.kernel, message, shows_origin };
        // Fails only if the kernel is gone, which is found out by who waits for the fork.
        self.forks.send(request).ok();
        Ok(fork)
    }

    /// Waits until it is known which process the fork is. `false` if there is none.
    pub(crate) async fn forked(&mut self) -> bool {
        let known = |state: &PodKernelState| state.fork.is_some() || state.ended.is_some();
        tokio::select! {
            _ = self.state.wait_for(known) => {}
            () = self.link.until_ended() => {}
        }
        self.process().is_some()
    }

    /// The process of a fork, as the pod numbers them.
    pub(crate) fn process(&self) -> Option<u32> {
        self.state.borrow().fork.map(|fork| fork.process)
    }

    /// The process that it is a fork of, if that was to be shown.
    pub(crate) fn origin(&self) -> Option<u32> {
        self.state.borrow().fork.and_then(|fork| fork.origin)
    }

    /// The memory that forks take beside the process that they were forked from, in bytes, if it can be measured.
    pub(crate) fn meter(&self) -> PodMeter {
        PodMeter(Arc::clone(&self.link))
    }
}

impl Drop for PodControl {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.link.forget_kernel(self.kernel);
    }
}

/// Measures the memory of forks in a pod.
#[derive(Clone)]
pub(crate) struct PodMeter(Arc<LinkShared>);

impl PodMeter {
    /// The memory that forks take beside the process that they were forked from, in bytes, if it can be measured.
    pub(crate) async fn memory_of_forks(&self, forks: Vec<u32>, origin: Option<u32>) -> Option<u64> {
        self.0.measure(forks, origin).await
    }
}
