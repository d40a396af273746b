//! The end of a kernel that nobody uses: its variables are saved, and the next cell has another one with them.
//!
//! ```text
//! idle → save once more → does it work? → what becomes of its place? → exit, kill → a sandbox of a pool is suspended or deleted
//! cell → resume (`session/checkpoint`): start, restore → one line in the answer
//! ```

use std::time::Instant;

use super::exit::CELL_TIMEOUT_AT_RESET;
use super::idle::{IdleStep, has_worked};
use super::undo::end_all;
use super::worker::KernelWorker;
use crate::ground::text::describe;
use crate::kernels::checkpoint::Checkpoint;
use crate::kernels::kernel::{CodeInquiry, CodeInsight, KernelEffort, PodRest};

impl KernelWorker {
    /// Does the next step towards the end of a kernel that nobody uses.
    pub(super) async fn rest(&mut self) {
        if self.kernel.is_none() {
            // It has died, and its place is still there.
            return if self.idleness.is_over() { self.end_idle().await } else { self.idleness.postpone() };
        }
        let step = self.idleness.step();
        if let IdleStep::Nothing = step {
            self.checkpoint().into_iter().for_each(Checkpoint::cell_ended);
            return self.idleness.has_done(IdleStep::Saving);
        }
        if !self.checkpoint().is_some_and(Checkpoint::is_saved) {
            // A kernel that did not send its variables is asked again.
            self.checkpoint().into_iter().for_each(Checkpoint::ask_again);
            return self.idleness.postpone();
        }
        let Some(effort) = self.effort().await else { return self.idleness.postpone() };
        match step {
            IdleStep::Measured { at, effort: earlier } if has_worked(at, earlier, effort) => {
                self.idleness.used()
            }
            IdleStep::Measured { .. } => self.end_idle().await,
            _ => self.idleness.has_done(IdleStep::Measured { at: Instant::now(), effort }),
        }
    }

    /// The processor time that the kernel has taken; `None` if it does not say so.
    async fn effort(&mut self) -> Option<KernelEffort> {
        let (insight, said) = self.kernel.as_mut()?.inquire(CodeInquiry::Effort).await;
        for event in said {
            self.take_event(event).await;
        }
        match insight {
            Some(CodeInsight::Effort(effort)) => Some(effort),
            _ => None,
        }
    }

    /// Ends the kernel, whose variables are saved, with what it needs of a cluster.
    async fn end_idle(&mut self) {
        let rest = match self.kernels.rest_for().await {
            Ok(rest) => rest,
            Err(error) => {
                let why = describe(&error);
                tracing::warn!(why, "a kernel that nobody uses goes on");
                return self.idleness.goes_on(&why);
            }
        };
        if self.kernel.is_none() && rest == PodRest::Stays {
            // Nothing is left to do, unless its place changes.
            return self.idleness.postpone();
        }
        if self.kernel.is_some() {
            self.checkpoint().into_iter().for_each(Checkpoint::kernel_rests);
            self.template_due = None;
            self.exit_kernel(CELL_TIMEOUT_AT_RESET).await;
        }
        // They share the place of the kernel.
        end_all(self.history.forget()).await;
        let kernel = self.kernel.take();
        self.kernels.rest(kernel, rest).await;
        // Copies may hold the place longer.
        self.idleness.postpone();
        tracing::info!(?rest, "the kernel has ended, since nobody used it");
        self.idleness.rests(rest);
    }
}
