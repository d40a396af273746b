//! The disk that the files of a session take. Looked at while the free space of their file systems falls, since no system has
//! limits for it that an ordinary user could set.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The interval of looks at the free space, and the longest one while it falls slowly.
const LOOK: Duration = Duration::from_millis(100);
const CALM_LOOK: Duration = Duration::from_secs(1);
/// The files are looked at when so much of the limit, one part of many, has been taken from the free space.
const PARTS: u64 = 64;
/// They are looked at so often in any case, unless nothing has changed.
const LONGEST: Duration = Duration::from_secs(30);
/// Looking takes one part of the time, in so many.
const SHARE: u32 = 20;
/// The size of the units in which file systems count.
const BLOCK_BYTES: u64 = 512;

/// The files of a session.
#[derive(Debug, Clone)]
pub(crate) struct DiskPlaces {
    /// Directories of its own.
    pub(crate) own: Vec<PathBuf>,
    /// Directories of which only the growth counts.
    pub(crate) shared: Vec<PathBuf>,
}

/// The disk in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DiskState {
    /// In bytes.
    pub(super) used: u64,
    /// The number of times that it was more than the limit.
    pub(super) overruns: u64,
}

/// Watches the files of a session, until it is dropped.
#[derive(Debug)]
pub(super) struct DiskWatch {
    pub(super) state: watch::Receiver<DiskState>,
    _stop: DropGuard,
}

impl DiskWatch {
    /// Begins. `members` are the processes of the session, which may have open files without a name.
    pub(super) fn start(
        places: DiskPlaces,
        limit: u64,
        members: impl Fn() -> Vec<u32> + Clone + Send + 'static,
    ) -> Self {
        let (state, receiver) = watch::channel(DiskState::default());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = follow(places, limit, members, state) => {}
            }
        });
        Self { state: receiver, _stop: stop.drop_guard() }
    }
}

async fn follow(
    places: DiskPlaces,
    limit: u64,
    members: impl Fn() -> Vec<u32> + Clone + Send + 'static,
    state: watch::Sender<DiskState>,
) {
    let all: Vec<PathBuf> = places.own.iter().chain(&places.shared).cloned().collect();
    let shared = places.shared.clone();
    let mut free = free_space(&all);
    let mut last = free;
    let Some(before) = blocking(move || size_of(&shared, &[])).await else { return };
    let mut looked = Instant::now();
    let mut shortest = LOOK;
    let mut pause = shortest;
    let mut allowed = limit;
    loop {
        tokio::time::sleep(pause).await;
        let now = free_space(&all);
        let sunk = last.saturating_sub(now);
        last = now;
        free = free.max(now);
        let fallen = free - now;
        pause = next_pause(pause, sunk, (limit / PARTS).saturating_sub(fallen)).max(shortest);
        if fallen == 0 || fallen < limit / PARTS && looked.elapsed() < LONGEST {
            continue;
        }
        (free, looked) = (now, Instant::now());
        let places = places.clone();
        let members = members.clone();
        let look =
            move || size_of(&places.own, &members()) + size_of(&places.shared, &[]).saturating_sub(before);
        let Some(used) = blocking(look).await else { return };
        shortest = LOOK.max(looked.elapsed() * SHARE);
        pause = shortest;
        // What is there may be more than the limit: a new kernel can remove it, but not add to it.
        let is_over = used > allowed;
        allowed = if used > limit { used + limit / PARTS } else { limit };
        state.send_modify(|state| {
            state.used = used;
            state.overruns += u64::from(is_over);
        });
    }
}

/// The time until the next look at the free space, which sank by `sunk` in the `pause` before: no longer than it takes to sink by `left`
/// at this speed, nor much longer than before.
fn next_pause(pause: Duration, sunk: u64, left: u64) -> Duration {
    let growth = if sunk == 0 { 1.25 } else { (left as f64 / sunk as f64).min(1.25) };
    pause.mul_f64(growth).clamp(LOOK, CALM_LOOK)
}

/// The result of work that blocks; `None` if it has panicked, or the program ends.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.inspect_err(|error| tracing::warn!(%error, "the disk of the session is not limited any more")).ok()
}

/// The free space of the file systems of these directories, in bytes.
fn free_space(directories: &[PathBuf]) -> u64 {
    let systems = directories.iter().filter_map(|directory| statvfs(directory.as_path()).ok());
    systems.map(|system| system.f_bfree.saturating_mul(system.f_frsize)).fold(0, u64::saturating_add)
}

/// The size of what is in these directories, and of the files on their file systems that `processes` have open and that have
/// no name any more.
fn size_of(directories: &[PathBuf], processes: &[u32]) -> u64 {
    let mut seen = HashSet::new();
    let mut systems = HashSet::new();
    let mut size = 0;
    for directory in directories {
        let Ok(top) = directory.symlink_metadata() else { continue };
        systems.insert(top.dev());
        let mut left = vec![directory.clone()];
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                // What is removed meanwhile does not count.
                let Ok(found) = entry.metadata() else { continue };
                size += counted(&found, &mut seen);
                if found.is_dir() && found.dev() == top.dev() {
                    left.push(entry.path());
                }
            }
        }
    }
    for process in processes {
        let descriptors = Path::new("/proc").join(process.to_string()).join("fd");
        for entry in std::fs::read_dir(descriptors).into_iter().flatten().flatten() {
            let Ok(found) = std::fs::metadata(entry.path()) else { continue };
            if found.is_file() && found.nlink() == 0 && systems.contains(&found.dev()) {
                size += counted(&found, &mut seen);
            }
        }
    }
    size
}

/// The size of a file that may have been seen by another name.
fn counted(found: &Metadata, seen: &mut HashSet<(u64, u64)>) -> u64 {
    let has_one_name = found.nlink() == 1 || found.is_dir();
    let is_new = has_one_name || seen.insert((found.dev(), found.ino()));
    if is_new { found.blocks().saturating_mul(BLOCK_BYTES) } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn write(path: &Path, size: u64) -> std::fs::File {
        let mut file = std::fs::File::create(path).unwrap();
        file.write_all(&vec![1; usize::try_from(size).unwrap()]).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn files_count_once_and_links_do_not_lead_away() {
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("inside/deep"), place.path().join("outside"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        write(&outside.join("large"), 4 * MIB);
        write(&inside.join("file"), MIB);
        std::fs::hard_link(inside.join("file"), inside.join("again")).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("away")).unwrap();
        let size = size_of(&[place.path().join("inside")], &[]);
        assert!((MIB..2 * MIB).contains(&size), "{size}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_open_file_without_a_name_counts() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let file = write(&path, 2 * MIB);
        std::fs::remove_file(&path).unwrap();
        let directories = [place.path().to_owned()];
        assert!(size_of(&directories, &[]) < MIB);
        assert!(size_of(&directories, &[std::process::id()]) >= 2 * MIB);
        drop(file);
        assert!(size_of(&directories, &[std::process::id()]) < MIB);
    }

    #[test]
    fn looks_are_rare_while_little_is_written() {
        let mut pause = LOOK;
        for _ in 0..20 {
            pause = next_pause(pause, MIB, 1024 * MIB);
        }
        assert_eq!(pause, CALM_LOOK);
        assert_eq!(next_pause(pause, 100 * MIB, 20 * MIB), CALM_LOOK / 5);
        assert_eq!(next_pause(pause, 1024 * MIB, 0), LOOK);
        assert_eq!(next_pause(LOOK, 0, u64::MAX), LOOK * 5 / 4);
    }

    #[tokio::test]
    async fn more_than_the_limit_is_noticed_each_time_that_it_grows() {
        let place = tempfile::tempdir().unwrap();
        let shared = place.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        write(&shared.join("before"), 8 * MIB);
        let own = place.path().join("own");
        std::fs::create_dir(&own).unwrap();
        let places = DiskPlaces { own: vec![own.clone()], shared: vec![shared.clone()] };
        let mut watch = DiskWatch::start(places, 4 * MIB, Vec::new);
        // Each file is written until the watch has seen it: what is there at its start does not count.
        for round in 1..3 {
            let mut number = 0;
            while watch.state.borrow_and_update().overruns < round {
                number += 1;
                write(&own.join(format!("{round}-{}", number % 3)), 3 * MIB * round);
                tokio::time::sleep(LOOK).await;
            }
        }
        assert!(watch.state.borrow().used > 4 * MIB);
    }
}
