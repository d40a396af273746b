//! The end of a kernel that nobody uses: its variables are saved, and the next cell has another one with them.
//!
//! ```text
//! idle → does it work? → save once more → what becomes of its place? → exit, kill → a sandbox of a pool is suspended or deleted
//! cell → resume (`session/checkpoint`): start, restore → one line in the answer
//! ```

use super::exit::ExitMoment;
use super::idle::{IdleMeasure, IdleStep, has_worked};
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
        match self.idleness.step() {
            IdleStep::Nothing => match self.effort().await {
                Some(effort) => self.idleness.begin_to_measure(effort),
                None => self.idleness.postpone(),
            },
            IdleStep::Measured(since) => {
                if self.is_idle_since(since).await {
                    self.checkpoint().into_iter().for_each(Checkpoint::save_now);
                    self.save_once_more().await;
                }
            }
            IdleStep::Saving(since) => {
                if self.is_idle_since(since).await {
                    if self.checkpoint().is_some_and(Checkpoint::is_saved) {
                        return self.end_idle().await;
                    }
                    // A kernel that did not send its variables is asked again.
                    self.checkpoint().into_iter().for_each(Checkpoint::ask_again);
                    self.save_once_more().await;
                    self.idleness.postpone();
                }
            }
        }
    }

    /// Whether the kernel is known not to have worked since then. Otherwise it is looked at again later.
    async fn is_idle_since(&mut self, since: IdleMeasure) -> bool {
        match self.effort().await {
            // What came meanwhile is a use, too.
            Some(effort) if has_worked(since, effort) || !self.idleness.is_over() => {
                self.idleness.used();
                false
            }
            Some(_) => true,
            None => {
                self.idleness.postpone();
                false
            }
        }
    }

    /// Has the kernel save its variables, and measures it when it has begun with that.
    async fn save_once_more(&mut self) {
        self.save_variables();
        match self.effort().await {
            Some(effort) => self.idleness.begin_to_save(effort),
            None => self.idleness.postpone(),
        }
    }

    /// The work of the kernel until now; `None` if it does not say so.
    async fn effort(&mut self) -> Option<KernelEffort> {
        let (insight, said) = self.kernel.as_mut()?.inquire(CodeInquiry::Effort).await;
        for event in said {
            self.take_event(event).await;
        }
        match insight {
            Some(CodeInsight::Effort(effort)) => effort,
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
            self.exit_kernel(ExitMoment::Replaced).await;
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
