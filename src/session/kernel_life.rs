//! A session's kernel comes and goes: it is started when a cell needs it, and given up when it has ended or lost its protection.

use std::time::{Instant, SystemTime};

use super::Error;
use super::cell::{Cell, CellRequester};
use super::lost::{ended_with, lost_note, pause_after};
use super::phase::StartPhase;
use super::undo;
use super::worker::{HOUSEKEEPING_TIMEOUT, KernelWorker};
use crate::ground::files::file_time;
use crate::ground::text::describe;
use crate::kernels::kernel::{self, ExecuteRequest, Kernel, KernelDeath, KernelEvent};
use crate::session::site;

/// A request that the kernel has been sent.
pub(super) struct SentRequest {
    pub(super) id: String,
    /// The time before it, by the clock of files.
    pub(super) before: SystemTime,
}

impl SentRequest {
    async fn send(kernel: &mut Kernel, request: &ExecuteRequest) -> Result<Self, kernel::Error> {
        // On a busy machine, the code may have made files before this task goes on.
        let before = file_time();
        Ok(Self { id: kernel.execute(request).await?, before })
    }
}

impl KernelWorker {
    /// Sends code to the kernel, or to a fresh one if the kernel has died since the last cell or lost its protection.
    pub(super) async fn send(&mut self, cell: &Cell) -> Result<SentRequest, Error> {
        let request = ExecuteRequest {
            code: cell.code.clone(),
            store_history: cell.author != CellRequester::Ourselves,
            has_views: cell.has_views,
        };
        if let Some(path) = self.kernels.replaced().filter(|_| self.kernel.is_some()) {
            let why = format!("`{}`, which its sandbox protects, was removed or replaced", path.display());
            tracing::warn!(%why, "ending the sandbox, which would not protect the new file");
            self.give_up_kernel().await;
            self.lost = Some(lost_note(&why));
        }
        if let Some(kernel) = self.kernel.as_mut() {
            match SentRequest::send(kernel, &request).await {
                Ok(sent) => return Ok(sent),
                // The remote kernel runs on, and may be reachable again later.
                Err(error @ kernel::Error::Disconnected(_)) => return Err(site::Error::Kernel(error).into()),
                Err(error) => {
                    let end = tokio::time::timeout(HOUSEKEEPING_TIMEOUT, self.drain_kernel()).await;
                    let why = match (error, end.ok().flatten()) {
                        (kernel::Error::Ended(death), _) | (_, Some(death)) => ended_with(&death),
                        (error, None) => format!("the connection to it failed ({})", describe(&error)),
                    };
                    tracing::warn!(%why, "the kernel is gone; starting it anew");
                    self.give_up_kernel().await;
                    self.lost = Some(lost_note(&why));
                }
            }
        }
        self.start_kernel().await?;
        let Some(kernel) = self.kernel.as_mut() else { return Err(Error::Stopped) };
        Ok(SentRequest::send(kernel, &request).await.map_err(site::Error::Kernel)?)
    }

    /// Reads the remaining messages of a kernel that accepts no requests any more. Returns how it ended if
    /// that is known: its connection may break first.
    async fn drain_kernel(&mut self) -> Option<KernelDeath> {
        loop {
            match self.kernel.as_mut()?.next().await {
                Ok(KernelEvent::Message(message)) => self.late.take(message.content).await,
                Ok(KernelEvent::Torn | KernelEvent::Disconnected(_)) => {}
                Ok(KernelEvent::Died(death)) => return Some(death),
                Err(_) => return None,
            }
        }
    }

    /// Starts a kernel, after a pause if starts have failed.
    pub(super) async fn start_kernel(&mut self) -> Result<(), Error> {
        if let Some((count, last)) = self.failed_starts {
            let pause = pause_after(count).saturating_sub(last.elapsed());
            if !pause.is_zero() {
                let words = format!(
                    "waiting {} s, since the kernel did not start {count} times",
                    pause.as_secs() + 1
                );
                self.phase.send_replace(StartPhase::Preparing(words));
                tokio::time::sleep(pause).await;
            }
        }
        let mut started = self.try_to_start().await;
        if let Err(site::Error::Kernel(kernel::Error::Spawn { .. })) = started {
            // The interpreter is gone: find or create another.
            self.kernels.forget().await;
            started = self.try_to_start().await;
        }
        match &started {
            Ok(()) => self.failed_starts = None,
            Err(_) => {
                self.kernels.forget().await;
                let count = self.failed_starts.map_or(0, |(count, _)| count);
                self.failed_starts = Some((count + 1, Instant::now()));
            }
        }
        Ok(started?)
    }

    async fn try_to_start(&mut self) -> Result<(), site::Error> {
        let phase = &self.phase;
        let report = |words: &str| drop(phase.send_replace(StartPhase::Preparing(words.to_owned())));
        self.kernel = Some(self.kernels.start(&report).await?);
        self.template_due = self.template_due();
        self.obedience.has_run = false;
        self.audience.forget_cells();
        self.history.kernel_started();
        self.record_environment().await;
        self.phase.send_replace(StartPhase::Ready);
        Ok(())
    }

    /// Handles an event that the kernel sends between cells.
    pub(super) async fn take_event(&mut self, event: Result<KernelEvent, kernel::Error>) {
        let why = match event {
            Ok(KernelEvent::Message(message)) => {
                // Threads and tasks of earlier cells still work.
                self.idleness.used();
                return self.late.take(message.content).await;
            }
            Ok(KernelEvent::Torn) => return,
            // The next cell tries to reach the kernel again.
            Ok(KernelEvent::Disconnected(why)) => {
                return tracing::warn!(why, "the remote kernel cannot be reached");
            }
            Ok(KernelEvent::Died(death)) => ended_with(&death),
            Err(error) => format!("the connection to it failed ({})", describe(&error)),
        };
        tracing::warn!(%why, "the kernel ended between cells");
        self.give_up_kernel().await;
        self.lost = Some(lost_note(&why));
    }

    pub(super) async fn give_up_kernel(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            self.kernels.kill(kernel).await;
        }
        self.history.kernel_lost(self.audience.last_number());
        if self.kernels.are_limits_filled() || self.kernels.are_lost() {
            // Only without them all that the kernel has left is removed before the next one starts. A lost pod has none.
            undo::end_all(self.history.forget()).await;
        }
    }
}
