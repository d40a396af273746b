//! Controls a kernel in a sandbox, through the gateway: signals and its end.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};

use super::error::{Error, SandboxEnd};
use super::protocol::GatewayRequest;

/// The time that a gateway may take to report the end of a kernel after a request to kill it.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// Requests to the gateway.
#[derive(Clone)]
pub(super) struct GatewayRequests(pub(super) mpsc::UnboundedSender<(GatewayRequest, Option<OwnedFd>)>);

impl GatewayRequests {
    pub(super) fn send(&self, request: GatewayRequest, descriptor: Option<OwnedFd>) -> Result<(), Error> {
        self.0.send((request, descriptor)).map_err(|_| Error::Gone)
    }
}

/// The place of a branch in a sandbox, which the gateway counts as long as this lives.
pub(crate) struct BranchInside {
    requests: GatewayRequests,
    living: Arc<Mutex<usize>>,
}

impl BranchInside {
    pub(super) fn new(requests: GatewayRequests, living: Arc<Mutex<usize>>) -> Self {
        let place = Self { requests, living };
        place.change(|living| living + 1);
        place
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        // The lock is held, so that the counts come in order.
        let mut living = self.living.lock();
        *living = change(*living);
        // Fails only if the sandbox is gone.
        self.requests.send(GatewayRequest::Branches { living: *living }, None).ok();
    }
}

impl Drop for BranchInside {
    fn drop(&mut self) {
        self.change(|living| living - 1);
    }
}

/// The state of a kernel, as the gateway has reported it.
#[derive(Default)]
pub(super) struct ReportedKernelState {
    /// The number of signals that were sent to it.
    pub(super) signals: u64,
    /// Its exit status, once it has ended and nothing is left of it.
    pub(super) status: Option<ExitStatus>,
}

/// An event of a kernel in a sandbox.
pub(crate) enum KernelNews {
    /// A requested signal has been sent.
    Signalled,
    /// It has ended, and nothing is left of what it started.
    Ended(ExitStatus),
}

/// The control of a kernel in a sandbox.
pub(crate) struct KernelControl {
    pub(super) kernel: u64,
    pub(super) requests: GatewayRequests,
    pub(super) state: watch::Receiver<ReportedKernelState>,
    /// The number of sent signals that were reported to the caller.
    pub(super) heard_signals: u64,
    pub(super) sandbox: watch::Receiver<Option<SandboxEnd>>,
}

impl KernelControl {
    /// Sends a signal to the kernel and all that it started.
    pub(crate) fn signal(&self, signal: Signal) {
        let request = GatewayRequest::Signal { kernel: self.kernel, signal: signal.as_raw() };
        // Fails only if the sandbox is gone, and the kernel with it.
        self.requests.send(request, None).ok();
    }

    /// The next event of the kernel, or the end of its sandbox. Cancellation safe; may be called again after
    /// the end.
    pub(crate) async fn news(&mut self) -> KernelNews {
        loop {
            if self.state.borrow().signals > self.heard_signals {
                self.heard_signals += 1;
                return KernelNews::Signalled;
            }
            if let Some(status) = self.has_ended() {
                return KernelNews::Ended(status);
            }
            tokio::select! {
                changed = self.state.changed() => if changed.is_err() {
                    // Only the end of the sandbox is known.
                    self.sandbox.wait_for(Option::is_some).await.ok();
                },
                ended = self.sandbox.changed() => if ended.is_err() {
                    return KernelNews::Ended(ExitStatus::from_raw(Signal::KILL.as_raw()));
                },
            }
        }
    }

    /// The exit status of the kernel, or of its sandbox, if it has ended.
    pub(crate) fn has_ended(&self) -> Option<ExitStatus> {
        self.state.borrow().status.or_else(|| self.sandbox.borrow().as_ref().map(|ended| ended.status))
    }

    /// Whether the gateway has said that nothing is left of the kernel.
    pub(crate) fn has_kernel_ended(&self) -> bool {
        self.state.borrow().status.is_some()
    }

    /// The last words of the sandbox, if it has ended.
    pub(crate) fn last_words(&self) -> Option<String> {
        self.sandbox.borrow().as_ref().map(|ended| ended.stderr.clone())
    }

    /// Kills the kernel and all that it started. `false` if the gateway does not confirm it.
    pub(crate) async fn kill(mut self) -> bool {
        self.signal(Signal::KILL);
        let ended = async { while !matches!(self.news().await, KernelNews::Ended(_)) {} };
        tokio::time::timeout(KILL_GRACE, ended).await.is_ok()
    }
}
