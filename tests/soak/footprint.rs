//! What a server takes up: memory, descriptors, threads, processes, files.

use std::path::Path;

use crate::support::{Ipybox, Place};

/// Noise of the allocator: what pictures need for a moment is given back late, or in part. Seven MiB were seen. A leak of
/// a KiB per cell is more in 10,000 cells.
const MEMORY_SLACK_KIB: u64 = 8 * 1024;

/// Threads for file work come and go: tokio keeps idle ones for ten seconds.
const THREADS_SLACK: usize = 2;

#[derive(Debug)]
pub(crate) struct Footprint {
    memory_kib: u64,
    threads: usize,
    descriptors: usize,
    children: usize,
    temporary_files: usize,
    state_files: usize,
}

impl Footprint {
    pub(crate) fn of(ipybox: &Ipybox, place: &Place) -> Self {
        let process = format!("/proc/{}", ipybox.id());
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let memory = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        Self {
            memory_kib: memory.split_whitespace().nth(1).unwrap().parse().unwrap(),
            threads: entries(&format!("{process}/task")),
            descriptors: entries(&format!("{process}/fd")),
            children: children(ipybox.id()),
            temporary_files: files(&place.temporary()),
            state_files: files(&place.states()),
        }
    }

    /// Whether nothing but memory is more than it was.
    pub(crate) fn is_settled(&self, before: &Self) -> bool {
        self.threads <= before.threads + THREADS_SLACK
            && self.descriptors <= before.descriptors
            && self.children <= before.children
            && self.temporary_files <= before.temporary_files
            && self.state_files <= before.state_files
    }

    pub(crate) fn assert_like(&self, before: &Self) {
        assert!(self.is_settled(before), "something is left: {self:?}; before: {before:?}");
        let allowed = before.memory_kib + before.memory_kib / 10 + MEMORY_SLACK_KIB;
        assert!(self.memory_kib <= allowed, "the server has grown: {self:?}; before: {before:?}");
    }
}

fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

fn children(id: i32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

/// The files below a directory. What vanishes meanwhile is none.
fn files(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.map(|path| if path.is_dir() && !path.is_symlink() { files(&path) } else { 1 }).sum()
}
