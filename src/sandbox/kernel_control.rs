//! What the host does to a kernel in a sandbox beside speaking to it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;

use super::protocol::Request;
use super::running::{Control, Ended};

/// How long a gateway is given to say that a kernel has ended which it has been told to kill.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// What the gateway has said of a kernel.
#[derive(Default)]
pub(super) struct KernelState {
    /// How many signals it was sent.
    pub(super) signals: u64,
    /// How it has ended; nothing is left of it.
    pub(super) status: Option<ExitStatus>,
}

/// What is heard of a kernel in a sandbox.
pub(crate) enum KernelNews {
    /// A signal has been sent that was on its way.
    Signalled,
    /// It has ended, and nothing is left of what it started.
    Ended(ExitStatus),
}

/// What is done to a kernel in a sandbox beside speaking to it.
pub(crate) struct KernelControl {
    pub(super) kernel: u64,
    pub(super) control: Arc<Control>,
    pub(super) state: watch::Receiver<KernelState>,
    /// How many signals the caller has heard of.
    pub(super) heard_signals: u64,
    pub(super) sandbox: watch::Receiver<Option<Ended>>,
}

impl KernelControl {
    /// Sends a signal to the kernel and all that it started.
    pub(crate) fn signal(&self, signal: Signal) {
        let request = Request::Signal { kernel: self.kernel, signal: signal.as_raw() };
        // Nothing needs a signal in a sandbox that is gone.
        self.control.request(request, None).ok();
    }

    /// The next that is heard of the kernel, or of the end of its sandbox with it. Cancellation safe; may be called again
    /// after the end.
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
                    // Nobody tells more of it than that the sandbox has ended.
                    self.sandbox.wait_for(Option::is_some).await.ok();
                },
                ended = self.sandbox.changed() => if ended.is_err() {
                    return KernelNews::Ended(ExitStatus::from_raw(Signal::KILL.as_raw()));
                },
            }
        }
    }

    /// How the kernel has ended, or its sandbox with it, if it has.
    pub(crate) fn has_ended(&self) -> Option<ExitStatus> {
        self.state.borrow().status.or_else(|| self.sandbox.borrow().as_ref().map(|ended| ended.status))
    }

    /// Whether the gateway has said that nothing is left of the kernel.
    pub(crate) fn has_kernel_ended(&self) -> bool {
        self.state.borrow().status.is_some()
    }

    /// What the sandbox said, if it has ended.
    pub(crate) fn last_words(&self) -> Option<String> {
        self.sandbox.borrow().as_ref().map(|ended| ended.stderr.clone())
    }

    /// Kills the kernel and all that it started. `false` if the gateway does not say that it is done.
    pub(crate) async fn kill(mut self) -> bool {
        self.signal(Signal::KILL);
        let ended = async { while !matches!(self.news().await, KernelNews::Ended(_)) {} };
        tokio::time::timeout(KILL_GRACE, ended).await.is_ok()
    }
}
