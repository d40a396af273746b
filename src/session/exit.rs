//! The exit of a kernel: Python's own, in which threads end, `atexit` functions run, and files are written.
//!
//! It runs code of the user, so its time is limited. Whoever calls this kills the kernel afterwards.

use std::time::Duration;

use tokio::time::Instant;

use crate::kernels::kernel::{Kernel, KernelEvent, KernelMessage, MessageContent};
use crate::kernels::output::LateOutput;

/// The time that a kernel that runs no cell may take.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// The times that a running cell is interrupted: the code may begin after the first interrupt, or go on. Not more often, as
/// an interrupt ends the code that cleans up after the one before.
const INTERRUPTS: u32 = 2;

/// The time that an interrupted cell may take before a reset replaces its kernel.
pub(super) const CELL_TIMEOUT_AT_RESET: Duration = Duration::from_secs(3);

/// The result of a kernel's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelExit {
    /// All of it was done.
    Complete,
    /// It, or the running cell, took too long.
    CutShort,
}

/// Has a kernel do what Python does at its exit, after an interrupt of the running cell, which may take `cell_timeout` to
/// end. What the kernel shows meanwhile is late output.
pub(super) async fn exit(kernel: &mut Kernel, late: &mut LateOutput, cell_timeout: Duration) -> KernelExit {
    if !kernel.request_exit(EXIT_TIMEOUT) {
        return KernelExit::Complete;
    }
    let mut exit = KernelExit::CutShort;
    let mut was_running = kernel.is_running();
    let mut deadline = Instant::now() + if was_running { cell_timeout } else { EXIT_TIMEOUT };
    let mut interrupts = tokio::time::interval(cell_timeout / INTERRUPTS);
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
            deadline = Instant::now() + EXIT_TIMEOUT;
        }
    }
    if exit == KernelExit::CutShort {
        tracing::warn!("the exit of the kernel took too long and was cut short");
    }
    exit
}
