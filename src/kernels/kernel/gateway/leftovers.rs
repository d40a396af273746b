//! Processes that outlive the kernel that started them.
//!
//! Processes that were in the sandbox when the gateway started belong there; later ones that are not the
//! gateway's own children were left behind by a kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The number of times to search again: killed processes may have started more. Process limits bound their number.
const ROUNDS: usize = 100;
const PAUSE: Duration = Duration::from_millis(2);

/// The number of searches in a row that must find nothing: one search can miss a process that forks and exits all the
/// time.
const EMPTY_ROUNDS: usize = 3;

/// The processes that existed before any kernel.
pub(super) struct Leftovers {
    before: BTreeMap<i32, LeftoverProcess>,
}

/// A process of our own PID namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeftoverProcess {
    /// Its id in the namespace that `/proc` shows, which may be one further out: srt makes two.
    shown: i32,
    /// The parent's id, as `/proc` shows it.
    parent: i32,
    /// In clock ticks since boot: together with the id it names one process for ever.
    started: u64,
    is_dead: bool,
}

impl Leftovers {
    /// Records the current processes as those that belong there.
    pub(super) fn found() -> Self {
        Self { before: processes() }
    }

    /// Kills the processes that do not belong there; the error lists the survivors.
    pub(super) async fn kill(&self) -> Result<(), BTreeMap<i32, LeftoverProcess>> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut left = BTreeMap::new();
        let mut empty = 0;
        for _ in 0..ROUNDS {
            let mut found = processes();
            let shown = found.get(&own).map(|process| process.shown);
            found.retain(|id, process| {
                let is_older = self.before.get(id).is_some_and(|before| before.started == process.started);
                *id != own && Some(process.parent) != shown && !is_older && !process.is_dead
            });
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

/// The processes of our namespace by their ids in it. Where there is no `/proc`, as on macOS, none are known.
fn processes() -> BTreeMap<i32, LeftoverProcess> {
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
        shown,
        is_dead: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    };
    Some((id, process))
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
        let process = LeftoverProcess { shown: 12, parent: 7, started: 4711, is_dead: false };
        check("Name:\ta\nNSpid:\t12\t3\n", stat, Some((3, process)));
        check("Name:\ta\nNSpid:\t12\n", stat, None);
        check("Name:\ta\n", stat, None);
        check("NSpid:\t12\t3\n", "12 (a", None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert_eq!(processes()[&own].parent, parent);
    }
}
