//! Replaces a session's kernel by a fresh one.

use std::sync::Arc;

use super::Error;
use super::exit::{ExitMoment, KernelExit, exit};
use super::lost::lost_note;
use super::permissions::ToldPermissions;
use super::undo::end_all;
use super::worker::KernelWorker;

impl KernelWorker {
    /// Replaces the kernel by a fresh one, which gets what its client allows, and closes the connections to MCP servers.
    pub(super) async fn reset(&mut self, client: &ToldPermissions) -> Result<KernelExit, Error> {
        let mut exit = std::mem::replace(&mut self.exit, KernelExit::Complete);
        // Only without them all that the kernel leaves can be removed.
        end_all(self.history.forget()).await;
        if self.kernel.is_some() {
            exit = self.exit_kernel(ExitMoment::Replaced).await;
        }
        if let Some(kernel) = self.kernel.take() {
            self.kernels.replace(kernel).await;
        }
        self.lost = None;
        self.idleness.forget();
        self.failed_starts = None;
        if let Some(checkpoint) = self.checkpoint() {
            checkpoint.discard();
        }
        let pool = self.tools.as_ref().map(|tools| Arc::clone(&tools.pool));
        let closing = async {
            if let Some(pool) = pool {
                pool.close_all().await;
            }
        };
        let adopted = self.adopt(client).await;
        let starting = async {
            adopted?;
            self.start_kernel().await
        };
        let (started, ()) = tokio::join!(starting, closing);
        if started.is_err() {
            // The caller of the next cell may be another one.
            self.lost = Some(lost_note("the earlier one was reset"));
        }
        started.map(|()| exit)
    }

    /// Has the kernel do what Python does at its exit. It is to be killed afterwards.
    pub(super) async fn exit_kernel(&mut self, moment: ExitMoment) -> KernelExit {
        let timeout = self.obedience.config.kernel.exit_timeout;
        match self.kernel.as_mut() {
            Some(kernel) => exit(kernel, &mut self.late, timeout, moment).await,
            None => KernelExit::Complete,
        }
    }
}
