//! The exit of a kernel: Python's own, in which threads end, `atexit` functions run, and files are written.
//!
//! It runs code of the user, so its time is limited. Whoever calls this kills the kernel afterwards.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::kernels::kernel::{Kernel, KernelEvent, KernelMessage, MessageContent};
use crate::kernels::output::LateOutput;

/// The times for an exit that timers can take.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
/// The times that a running cell is interrupted: the code may begin after the first interrupt, or go on. Not more often, as
/// an interrupt ends the code that cleans up after the one before.
const INTERRUPTS: u32 = 2;

/// The moment at which a kernel ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitMoment {
    /// Another kernel follows.
    Replaced,
    /// The session ends too: MCP clients kill a server four seconds after they have closed its input.
    SessionEnd,
}

impl ExitMoment {
    /// The time that an interrupted cell may take, as a part of the time of the exit.
    const fn cell_part(self) -> f64 {
        match self {
            Self::Replaced => 1.5,
            Self::SessionEnd => 0.75,
        }
    }
}

/// The result of a kernel's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelExit {
    /// All of it was done.
    Complete,
    /// It, or the running cell, took too long.
    CutShort,
}

/// Has a kernel do what Python does at its exit, which may take `timeout`, after an interrupt of the running cell. What the
/// kernel shows meanwhile is late output.
pub(super) async fn exit(
    kernel: &mut Kernel,
    late: &mut LateOutput,
    timeout: Duration,
    moment: ExitMoment,
) -> KernelExit {
    let timeout = timeout.clamp(*TIMEOUTS.start(), *TIMEOUTS.end());
    if !kernel.request_exit(timeout) {
        return KernelExit::Complete;
    }
    let mut exit = KernelExit::CutShort;
    let mut was_running = kernel.is_running();
    let cell_timeout = timeout.mul_f64(moment.cell_part());
    let mut deadline = Instant::now() + if was_running { cell_timeout } else { timeout };
    let mut interrupts = tokio::time::interval(cell_timeout / INTERRUPTS);
    // After a pause of this process, code has its time for cleaning up too.
    interrupts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = kernel.next() => match event {
                Ok(KernelEvent::Message(KernelMessage { content: MessageContent::ShutdownReply { is_complete }, .. })) => {
                    exit = if is_complete { KernelExit::Complete } else { KernelExit::CutShort };
                }
                // Nobody waits for the output of the cell that was interrupted.
                Ok(KernelEvent::Message(message)) if !was_running => late.take(message.content).await,
                Ok(KernelEvent::Message(_) | KernelEvent::Torn | KernelEvent::Disconnected(_)) => {}
                Ok(KernelEvent::Died(_)) | Err(_) => break,
            },
            _ = interrupts.tick(), if was_running => kernel.signal_interrupt(),
            () = tokio::time::sleep_until(deadline) => break,
        }
        if was_running && !kernel.is_running() {
            was_running = false;
            deadline = Instant::now() + timeout;
        }
    }
    if exit == KernelExit::CutShort {
        tracing::warn!("the exit of the kernel took too long and was cut short");
    }
    exit
}
