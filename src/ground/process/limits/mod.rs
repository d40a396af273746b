//! Hard limits around a whole session: the memory, processor time, processes and disk of its kernel and of all that this starts.
//!
//! ```text
//! SessionLimits ┬ hierarchy: where groups can be made → group: made, entered by each program before it runs, removed
//!               └ disk: what its files take
//! ```
//!
//! Linux's control groups hold them, of version 2 or 1. Where none can be made, the limits of single processes are the
//! next best (`ipybox_limits.py`), which is said; a limit that nothing holds is refused.

mod bytes;
mod disk;
mod group;
mod hierarchy;

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub(crate) use self::bytes::ByteSize;
pub(crate) use self::disk::DiskPlaces;
use self::disk::DiskWatch;
use self::group::ControlGroup;
use self::hierarchy::LimitController;
use super::memory::{family, memory_of_machine};

/// The most disk that temporary files in a sandbox may take, in bytes.
const SANDBOX_DISK: u64 = 16 * 1024 * 1024 * 1024;
/// The number of processes and threads in a sandbox.
const SANDBOX_PROCESSES: u32 = 1024;

/// The limits of a whole session: of its kernel and all that this starts. Default: none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionLimits {
    /// The memory of all its processes together, in bytes, with files in shared memory.
    pub memory: Option<u64>,
    /// The processor time that it may use, in processors: 0.5 is half of one.
    pub cpu: Option<f64>,
    /// The number of its processes and threads.
    pub processes: Option<u32>,
    /// The disk that its temporary files and the growth of its workspace may take, in bytes.
    pub disk: Option<u64>,
}

/// Makes a control group around all that a user of a server runs, or finds it, with these limits; its directories, into which
/// a process goes by writing its id to their `cgroup.procs`. The system's user with the id `owner` may make groups in it.
///
/// # Errors
/// There can be none, or a limit is held by nothing; in words.
pub fn user_group(
    name: &str,
    limits: SessionLimits,
    owner: Option<u32>,
) -> Result<Vec<std::path::PathBuf>, String> {
    let directories = ControlGroup::keep(name, limits, owner)?;
    if directories.is_empty() {
        return Err("this system shows no control groups with memory, pids or cpu".to_owned());
    }
    Ok(directories)
}

/// Removes the control groups that [`user_group`] has made, unless processes are in them.
pub fn remove_user_group(name: &str) {
    ControlGroup::release(name);
}

/// A limit that nothing on this system holds.
#[derive(Debug, thiserror::Error)]
#[error(
    "limit the {what} of the session: {why}\n\
     hint: leave `{flag}` out, or start ipybox where it may make control groups; `ipybox doctor` says more"
)]
pub(crate) struct LimitsError {
    what: &'static str,
    flag: &'static str,
    why: String,
}

/// The use of something that is limited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitUse {
    /// `memory` or `disk`, in bytes, `processes` or `cpu`.
    pub name: String,
    /// The part in use, where the system counts it.
    pub used: Option<u64>,
    /// The limit, in bytes, in processes, or in thousandths of a processor.
    pub limit: u64,
    /// Whether it holds for the session as a whole, and not just for each of its processes.
    pub is_whole: bool,
}

/// The limits that hold around a session. Dropping them kills what is within them.
#[derive(Debug, Default)]
pub(crate) struct HeldLimits {
    limits: SessionLimits,
    group: ControlGroup,
    disk: OnceLock<DiskWatch>,
    told: Mutex<LimitCounts>,
    /// Whether a kernel has died for want of something since the last time that it was asked.
    is_exhausted: AtomicBool,
}

/// Counts of what the limits have done.
#[derive(Debug, Clone, Copy, Default)]
struct LimitCounts {
    killed: u64,
    refused: u64,
    overruns: u64,
}

impl SessionLimits {
    /// The limits of a sandbox, in which code must not take the machine. Its temporary files are in `directory`.
    pub(crate) fn of_sandbox(directory: &Path) -> Self {
        let free =
            rustix::fs::statvfs(directory).map(|system| system.f_bavail.saturating_mul(system.f_frsize));
        let disk = free.ok().map(|bytes| SANDBOX_DISK.min(bytes / 4 * 3));
        if !cfg!(target_os = "linux") {
            return Self { disk, ..Self::default() };
        }
        let memory = memory_of_machine().map(|bytes| bytes / 4 * 3);
        Self { memory, cpu: None, processes: Some(SANDBOX_PROCESSES), disk }
    }

    /// These limits; unset ones are taken from `others`.
    fn or(self, others: Self) -> Self {
        Self {
            memory: self.memory.or(others.memory),
            cpu: self.cpu.or(others.cpu),
            processes: self.processes.or(others.processes),
            disk: self.disk.or(others.disk),
        }
    }

    /// The smaller ones of these and `others`.
    fn within(self, others: &Self) -> Self {
        let smaller = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            memory: self.memory.into_iter().chain(others.memory).min(),
            cpu: smaller(self.cpu, others.cpu),
            processes: self.processes.into_iter().chain(others.processes).min(),
            disk: self.disk.into_iter().chain(others.disk).min(),
        }
    }
}

impl HeldLimits {
    /// Holds the limits that a user has `asked` for, and `defaults` for the others.
    ///
    /// # Errors
    /// One that was asked for is held by nothing here.
    pub(crate) fn hold(asked: SessionLimits, defaults: SessionLimits) -> Result<Self, LimitsError> {
        let wanted = asked.or(defaults);
        if (SessionLimits { disk: None, ..wanted }) == SessionLimits::default() {
            return Ok(Self { limits: wanted, ..Self::default() });
        }
        let group = ControlGroup::make(wanted);
        let held = Self { limits: group.limits, group, ..Self::default() };
        held.refuse_unheld(&asked)?;
        held.say_what_is_not_whole(&asked);
        Ok(held)
    }

    fn refuse_unheld(&self, asked: &SessionLimits) -> Result<(), LimitsError> {
        let is_root = rustix::process::geteuid().is_root();
        let has_rlimits = cfg!(target_os = "linux");
        for (controller, is_asked, is_held_otherwise, what, flag) in [
            (LimitController::Memory, asked.memory.is_some(), has_rlimits, "memory", "--limit-memory"),
            // The limit of a user's processes does not bind root.
            (
                LimitController::Processes,
                asked.processes.is_some(),
                has_rlimits && !is_root,
                "processes",
                "--limit-processes",
            ),
            (LimitController::Cpu, asked.cpu.is_some(), false, "processor time", "--limit-cpu"),
        ] {
            if is_asked && !is_held_otherwise && !self.group.holds(controller) {
                return Err(LimitsError { what, flag, why: self.group.troubles.join("; ") });
            }
        }
        Ok(())
    }

    fn say_what_is_not_whole(&self, asked: &SessionLimits) {
        let uses = self.uses();
        let mut loose = uses.iter().filter(|one| !one.is_whole).map(|one| one.name.as_str()).peekable();
        if loose.peek().is_none() {
            return;
        }
        let names = loose.collect::<Vec<_>>().join(" and ");
        let why = self.group.troubles.join("; ");
        if *asked == SessionLimits::default() {
            tracing::info!(%why, "{names}: limited for each process, and not for the session as a whole");
        } else {
            tracing::warn!(%why, "{names}: limited for each process, and not for the session as a whole");
        }
    }

    /// The beginning of a command line whose process is within the limits before it becomes the program after it. Empty if
    /// there is nothing to enter.
    pub(crate) fn entrance(&self) -> Vec<OsString> {
        self.group.entrance()
    }

    /// The memory that each process may have, in bytes, so that code gets a `MemoryError` rather than be killed.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.limits.memory
    }

    /// The number of processes and threads, if nothing holds it for the session as a whole.
    pub(crate) fn processes_unheld(&self) -> Option<u32> {
        self.limits.processes.filter(|_| !self.group.holds(LimitController::Processes))
    }

    /// Sentences about what was ended or refused for want of something since the last time. A kernel that has died asks first.
    pub(crate) fn news(&self) -> Vec<String> {
        let overruns = self.disk.get().map_or(0, |disk| disk.state.borrow().overruns);
        let now = LimitCounts { killed: self.group.killed(), refused: self.group.refused(), overruns };
        let told = std::mem::replace(&mut *self.told.lock(), now);
        let mut news = Vec::new();
        if let Some(bytes) = self.limits.memory.filter(|_| now.killed > told.killed) {
            let size = ByteSize(bytes);
            news.push(format!(
                "The system has ended a process: it was out of the session's memory ({size}), which `--limit-memory` sets."
            ));
        }
        if let Some(count) = self.limits.processes.filter(|_| now.refused > told.refused) {
            news.push(format!(
                "A process or thread was not started: out of the session's processes ({count}), which `--limit-processes` \
                 sets."
            ));
        }
        if let Some(bytes) = self.limits.disk.filter(|_| now.overruns > told.overruns) {
            let size = ByteSize(bytes);
            news.push(format!(
                "ipybox has ended the kernel: it was out of the session's disk ({size}), which `--limit-disk` sets."
            ));
        }
        news
    }

    /// Sentences about what a kernel died of that has just ended.
    pub(crate) fn causes_of_death(&self) -> Vec<String> {
        let causes = self.news();
        self.is_exhausted.fetch_or(!causes.is_empty(), Ordering::Relaxed);
        causes
    }

    /// Whether a kernel has died for want of something since the last call: what it has left may fill the limits.
    pub(crate) fn take_exhausted(&self) -> bool {
        self.is_exhausted.swap(false, Ordering::Relaxed)
    }

    /// Begins to watch the disk that files in these places take, if it is limited.
    pub(crate) fn watch_disk(&self, places: DiskPlaces) {
        if let Some(limit) = self.limits.disk {
            let directories = self.group.directories();
            // Without a group all that we have started counts.
            let members = move || match &directories[..] {
                [] => family(std::process::id()),
                directories => group::members_of(directories),
            };
            self.disk.get_or_init(|| DiskWatch::start(places, limit, members));
        }
    }

    /// The number of times that the files have taken more disk than the limit.
    pub(crate) fn overruns(&self) -> u64 {
        self.disk.get().map_or(0, |disk| disk.state.borrow().overruns)
    }

    /// Resolves when they have done so more often than `before`. Cancellation safe.
    pub(crate) async fn overrun(&self, before: u64) {
        if let Some(disk) = self.disk.get() {
            let mut state = disk.state.clone();
            if state.wait_for(|state| state.overruns > before).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }

    /// The limits, and what is in use.
    pub(crate) fn uses(&self) -> Vec<LimitUse> {
        let group = &self.group;
        let of = |name: &str, controller, used, limit: Option<u64>| {
            limit.map(|limit| LimitUse {
                name: name.to_owned(),
                used,
                limit,
                is_whole: group.holds(controller),
            })
        };
        let Self { limits: SessionLimits { memory, cpu, processes, disk }, .. } = self;
        let on_disk = self.disk.get().map(|disk| disk.state.borrow().used);
        let thousandths = cpu.map(|cpus| (cpus * 1000.0).round() as u64);
        [
            of("memory", LimitController::Memory, group.memory_used(), *memory),
            of("processes", LimitController::Processes, group.processes_used(), processes.map(u64::from)),
            of("cpu", LimitController::Cpu, None, thousandths),
            disk.map(|limit| LimitUse { name: "disk".to_owned(), used: on_disk, limit, is_whole: true }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Whether a kernel has died for want of something, and more than half of something that is limited is in use still.
    pub(crate) fn are_filled(&self) -> bool {
        let is_exhausted = self.is_exhausted.load(Ordering::Relaxed);
        is_exhausted && self.uses().iter().any(|limit| limit.used.is_some_and(|used| used > limit.limit / 2))
    }

    /// Kills all that is within the limits. More can be started afterwards.
    pub(crate) async fn clear(&self) {
        self.group.clear().await;
    }

    /// Kills all that is within the limits, and removes what held them.
    pub(crate) async fn end(&self) {
        self.group.end().await;
    }
}

/// The limits that can be held around a session as a whole, by name, and why others cannot. Tried by making a group, which is
/// removed again.
pub(crate) fn limits_held_here() -> (Vec<&'static str>, Vec<String>) {
    let limits = SessionLimits { cpu: Some(1.0), ..SessionLimits::of_sandbox(Path::new("/")) };
    let group = ControlGroup::make(limits);
    let held = LimitController::ALL.into_iter().filter(|controller| group.holds(*controller));
    (held.map(LimitController::name).collect(), group.troubles.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_limit_holds() {
        let one = SessionLimits { memory: Some(3), processes: Some(5), ..SessionLimits::default() };
        let other = SessionLimits { memory: Some(4), cpu: Some(0.5), processes: None, disk: Some(1) };
        let expected = SessionLimits { memory: Some(3), cpu: Some(0.5), processes: Some(5), disk: Some(1) };
        assert_eq!((one.within(&other), other.within(&one)), (expected, expected));
    }

    #[test]
    fn no_limits_need_no_group() {
        let held = HeldLimits::hold(SessionLimits::default(), SessionLimits::default()).unwrap();
        assert!(held.entrance().is_empty() && held.uses().is_empty() && held.news().is_empty());
    }
}
