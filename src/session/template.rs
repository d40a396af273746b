//! The moment at which a template of further kernels is forked from one that has run no code.

use std::time::{Duration, Instant};

use super::command::QueuedCommand;
use super::worker::KernelWorker;

/// The time without a cell after which that is done: the first cell of a client that sends it at once is not to wait.
const IDLE: Duration = Duration::from_millis(100);

impl QueuedCommand {
    /// Whether the kernel has still run no code after it.
    pub(super) fn runs_no_code(&self) -> bool {
        matches!(self, Self::RefreshImports { .. })
    }
}

impl KernelWorker {
    /// The moment for a kernel that has just started; `None` if these kernels have a template, or can have none.
    pub(super) fn template_due(&self) -> Option<Instant> {
        self.kernels.lack_template().then(|| Instant::now() + IDLE)
    }

    /// Waits until the moment, if there is one. Cancellation safe.
    pub(super) async fn until(moment: Option<Instant>) {
        match moment {
            Some(moment) => tokio::time::sleep_until(moment.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Forks a template from the kernel, which has run no code.
    pub(super) async fn make_template(&mut self) {
        self.template_due = None;
        if let Some(kernel) = &mut self.kernel {
            self.kernels.make_template(kernel).await;
        }
    }
}
