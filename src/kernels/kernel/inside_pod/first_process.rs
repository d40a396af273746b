//! The first process of a container: it starts the pod's own, passes signals on, and waits for processes that lost their parents.

use std::process::ExitCode;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

/// The flag of the child.
const CHILD_OF_FIRST: &str = "--child-of-first";

/// Runs the same program with the same arguments as a child, and ends with it.
pub(super) fn run() -> ExitCode {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = tokio.and_then(|tokio| tokio.block_on(attend()));
    ended.unwrap_or_else(|error| {
        tracing::error!(%error, "cannot be the first process");
        ExitCode::FAILURE
    })
}

async fn attend() -> std::io::Result<ExitCode> {
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let child = std::process::Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg(CHILD_OF_FIRST)
        .spawn()?;
    let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let child = child.ok_or_else(|| std::io::Error::other("the child has no process id"))?;
    loop {
        tokio::select! {
            _ = children.recv() => {}
            // It may have ended already.
            _ = terminate.recv() => kill_process(child, Signal::TERM).unwrap_or_default(),
            _ = interrupt.recv() => kill_process(child, Signal::INT).unwrap_or_default(),
        }
        while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG) {
            if process == child {
                let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
                return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
            }
        }
    }
}
