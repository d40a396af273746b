//! The end of a kernel that nobody uses: its variables are saved, and the next cell has another one with them.
//!
//! ```text
//! idle → rest: saved? what becomes of its place? → exit, kill → a sandbox of a pool is suspended or deleted
//! cell → resume (`session/checkpoint`): start, restore → one line in the answer
//! ```

use super::exit::CELL_TIMEOUT_AT_RESET;
use super::undo::end_all;
use super::worker::KernelWorker;
use crate::ground::text::describe;
use crate::kernels::checkpoint::Checkpoint;

impl KernelWorker {
    /// Ends the kernel that nobody uses, with what it needs of a cluster, once its variables are saved.
    pub(super) async fn rest(&mut self) {
        let Some(checkpoint) = self.checkpoint().filter(|checkpoint| checkpoint.is_saved()) else {
            // A kernel that did not send its variables is asked again.
            self.checkpoint().into_iter().for_each(Checkpoint::ask_again);
            return self.idleness.postpone();
        };
        let rest = match self.kernels.rest_for().await {
            Ok(rest) => rest,
            Err(error) => {
                let why = describe(&error);
                tracing::warn!(why, "a kernel that nobody uses goes on");
                return self.idleness.goes_on(&why);
            }
        };
        checkpoint.kernel_rests();
        self.template_due = None;
        self.exit_kernel(CELL_TIMEOUT_AT_RESET).await;
        // They share the place of the kernel.
        end_all(self.history.forget()).await;
        if let Some(kernel) = self.kernel.take() {
            self.kernels.rest(kernel, rest).await;
        }
        tracing::info!(?rest, "the kernel has ended, since nobody used it");
        self.idleness.rests(rest);
    }
}
