//! The first process of a container: it starts the pod's own, passes signals on, and waits for processes that lost their parents.

use std::process::ExitCode;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

/// The flag of the child.
const CHILD_OF_FIRST: &str = "--child-of-first";

/// The number of times to search again: killed processes may have started more.
const ROUNDS: usize = 100;

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

/// Kills the processes of the container that are neither the first one nor ours, nor the one to be spared: what kernels have
/// left. Only for a child of that process: anywhere else they are other people's.
pub(super) fn kill_leftovers(spared: Option<u32>) {
    if !rustix::process::getppid().is_some_and(Pid::is_init) {
        return;
    }
    for _ in 0..ROUNDS {
        let left = leftovers(spared);
        if left.is_empty() {
            return;
        }
        // Each of them may have ended by itself.
        for process in left {
            kill_process(process, Signal::KILL).ok();
        }
    }
}

fn leftovers(spared: Option<u32>) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ids = ids.filter(|id: &i32| Some(id.unsigned_abs()) != spared);
    let others = ids.filter_map(Pid::from_raw).filter(|process| *process != own && !process.is_init());
    others.filter(|process| is_left(*process, own)).collect()
}

/// Whether a process lives, and is no child of ours. Its name in its `stat`, in parentheses, may hold anything.
fn is_left(process: Pid, own: Pid) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let mut fields = fields.split(' ');
    let is_dead = matches!(fields.next(), Some("Z" | "X") | None);
    let parent = fields.next().and_then(|parent| parent.parse().ok()).and_then(Pid::from_raw);
    !is_dead && parent != Some(own)
}
