//! Processes that outlive the kernel that started them.
//!
//! Processes that were in the sandbox, or the container of a pod, before any kernel belong there; later ones that are not our own
//! children were left behind by a kernel. Within another sandbox, `/proc` may show processes of sandboxes beside ours: they
//! descend from another first process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The number of times to search again: killed processes may have started more. Process limits bound their number.
const ROUNDS: usize = 100;
const PAUSE: Duration = Duration::from_millis(2);

/// The number of searches in a row that must find nothing: one search can miss a process that forks and exits all the
/// time.
const EMPTY_ROUNDS: usize = 3;

/// The processes that existed before any kernel.
pub(crate) struct LeftoverProcesses {
    before: ShownProcesses,
}

/// Processes by their ids in the namespace that `/proc` shows, which may be one further out: srt makes two.
type ShownProcesses = BTreeMap<i32, LeftoverProcess>;

/// A process of our own PID namespace, or of one beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftoverProcess {
    /// Its id in its own namespace.
    id: i32,
    /// The parent's id, as `/proc` shows it.
    parent: i32,
    /// In clock ticks since boot: together with the id it names one process for ever.
    started: u64,
    is_dead: bool,
}

impl LeftoverProcesses {
    /// Records the current processes as those that belong there.
    pub(crate) fn found() -> Self {
        Self { before: processes() }
    }

    /// Kills the processes that do not belong there, while no kernel lives: those of the last kernels and of earlier ones. The
    /// error lists the survivors.
    pub(crate) async fn kill(
        &self,
        lives_none: impl Fn() -> bool,
    ) -> Result<(), BTreeMap<i32, LeftoverProcess>> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut left = BTreeMap::new();
        let mut empty = 0;
        for _ in 0..ROUNDS {
            if !lives_none() {
                return Ok(());
            }
            let found = left_behind(&processes(), &self.before, own, shown_as());
            empty = if found.is_empty() { empty + 1 } else { 0 };
            if empty == EMPTY_ROUNDS {
                return Ok(());
            }
            for pid in found.keys().copied().filter_map(Pid::from_raw) {
                // The process may have ended by itself.
                kill_process(pid, Signal::KILL).ok();
            }
            left = found;
            // No pause at first: mostly nothing is found.
            if empty == 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Err(left)
    }
}

/// The processes of our namespace, by their ids there, that are neither older than kernels, nor the process `own`, nor its
/// children. `own` is shown as `shown`.
fn left_behind(
    found: &ShownProcesses,
    before: &ShownProcesses,
    own: i32,
    shown: i32,
) -> BTreeMap<i32, LeftoverProcess> {
    let first = first_process(found, shown);
    let is_spared = |number: i32, process: &LeftoverProcess| {
        let is_older = before.get(&number).is_some_and(|before| before.started == process.started);
        process.id == own || process.parent == shown || is_older
    };
    // Signals go to ids of our namespace only. A process whose parent has just ended may be of another one.
    let spared: BTreeSet<i32> = found
        .iter()
        .filter(|(number, process)| first_process(found, **number) == first && is_spared(**number, process))
        .map(|(_, process)| process.id)
        .collect();
    let of_others = |number: i32| first_process(found, number).is_some_and(|other| Some(other) != first);
    found
        .iter()
        .filter(|(number, process)| !process.is_dead && !of_others(**number) && !spared.contains(&process.id))
        .map(|(_, process)| (process.id, *process))
        .collect()
}

/// The first process of the namespace that a process is in, as `/proc` shows it; `None` if a process between has just ended.
fn first_process(found: &ShownProcesses, of: i32) -> Option<i32> {
    let mut number = of;
    for _ in 0..=found.len() {
        let process = found.get(&number)?;
        if process.id == 1 {
            return Some(number);
        }
        number = process.parent;
    }
    None
}

/// Our own id, as `/proc` shows it.
fn shown_as() -> i32 {
    let link = std::fs::read_link("/proc/self").ok();
    link.and_then(|link| link.to_str()?.parse().ok()).unwrap_or_default()
}

/// The processes of our namespace and of those beside it. Where there is no `/proc`, as on macOS, none are known.
fn processes() -> ShownProcesses {
    let depth = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ids(&status).len());
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let entries = entries.filter_map(Result::ok);
    entries.filter_map(|entry| process(entry.file_name().to_str()?.parse().ok()?, depth)).collect()
}

fn process(shown: i32, depth: usize) -> Option<(i32, LeftoverProcess)> {
    // A process that ends meanwhile is skipped.
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{shown}/{name}")).ok();
    parse(shown, depth, &read("status")?, &read("stat")?)
}

/// Reads a process's `status` and `stat`, whose second field, the name in parentheses, may hold anything.
fn parse(shown: i32, depth: usize, status: &str, stat: &str) -> Option<(i32, LeftoverProcess)> {
    let ids = ids(status);
    let id = *ids.last().filter(|_| ids.len() == depth)?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let process = LeftoverProcess {
        id,
        is_dead: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    };
    Some((shown, process))
}

/// A process's ids, from that in the namespace of `/proc` to that in its own.
fn ids(status: &str) -> Vec<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.into_iter().flat_map(str::split_whitespace).filter_map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: &str, stat: &str, expected: Option<(i32, LeftoverProcess)>) {
        assert_eq!(parse(12, 2, status, stat), expected, "{status} {stat}");
    }

    #[test]
    fn processes_are_known_by_their_innermost_ids() {
        let stat = "12 (a) Z 1 ) S 7 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1 1 1";
        let process = LeftoverProcess { id: 3, parent: 7, started: 4711, is_dead: false };
        check("Name:\ta\nNSpid:\t12\t3\n", stat, Some((12, process)));
        check("Name:\ta\nNSpid:\t12\n", stat, None);
        check("Name:\ta\n", stat, None);
        check("NSpid:\t12\t3\n", "12 (a", None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert_eq!((processes()[&own].parent, shown_as()), (parent, own));
    }

    /// Processes as (shown, id, parent).
    fn shown(processes: &[(i32, i32, i32)]) -> ShownProcesses {
        let process = |&(shown, id, parent): &(i32, i32, i32)| {
            (shown, LeftoverProcess { id, parent, started: 1, is_dead: false })
        };
        processes.iter().map(process).collect()
    }

    #[test]
    fn processes_of_a_sandbox_beside_ours_are_none_of_ours() {
        // Ours: 20 is the first, 21 we. Beside it: 30 is the first, 31 another gateway with a kernel.
        let before = shown(&[(20, 1, 5), (21, 2, 20), (30, 1, 5), (31, 2, 30)]);
        let others = shown(&[(32, 3, 31), (33, 4, 32)]);
        let left = |more: &[(i32, i32, i32)]| {
            let found = before.clone().into_iter().chain(others.clone()).chain(shown(more)).collect();
            left_behind(&found, &before, 2, 21).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(left(&[]), [0; 0]);
        // Our child, and what it has left.
        assert_eq!(left(&[(22, 3, 21), (23, 4, 20)]), [4]);
        // Its parent is gone, so that nobody knows whose it is: our child is not killed for it.
        assert_eq!(left(&[(22, 3, 21), (40, 3, 39)]), [0; 0]);
        assert_eq!(left(&[(22, 3, 21), (40, 9, 39)]), [9]);
    }
}
