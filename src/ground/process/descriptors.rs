//! The number of files, pipes and sockets that this process may have open at the same time.
//!
//! Linux only: on other systems a process cannot restore the original limit for its children.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Enough for a full tool server and a hundred MCP servers. A higher limit slows child processes, since some
/// programs close each possible descriptor.
const ENOUGH: u64 = 4096;

/// The original limit, if it has been raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit, where it is low and may be raised.
pub fn raise_descriptors() {
    let before = getrlimit(Resource::Nofile);
    let enough = before.maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
    if before.current.is_none_or(|current| current >= enough) {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(enough), maximum: before.maximum }) {
        Ok(()) => drop(BEFORE.set(before)),
        Err(error) => tracing::debug!(%error, "the limit of open files could not be raised"),
    }
}

/// Gives a child the limit that this process was started with: some programs iterate over each possible
/// descriptor, or cannot use high ones.
pub(super) fn give_back(child: Pid) {
    let Some(before) = BEFORE.get() else { return };
    if let Err(error) = prlimit(Some(child), Resource::Nofile, *before) {
        tracing::debug!(%error, "a child process keeps our limit of open files");
    }
}
