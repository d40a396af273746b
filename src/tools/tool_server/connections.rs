//! The connections to a tool server: their limit, and which idle one is closed for a new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The most connections, each of which has one request at a time. Cells may well start a thousand threads.
const CONNECTIONS_MAX: usize = 1024;
/// One in so many of the process's descriptors is for connections: the rest is for MCP servers and files.
const PART_OF_DESCRIPTORS: u64 = 2;

/// The connections of one listener. Clones share them.
#[derive(Clone)]
pub(super) struct Connections {
    open: Arc<Mutex<Open>>,
    most: usize,
}

#[derive(Default)]
struct Open {
    /// The idle connections, in the order in which they became idle.
    idle: BTreeMap<u64, CancellationToken>,
    busy: usize,
    last: u64,
}

/// A connection. Dropping it makes room for another.
pub(super) struct Connection {
    connections: Connections,
    /// Its key in `idle`; `None` while it is busy.
    place: Mutex<Option<u64>>,
    leave: CancellationToken,
}

/// While this lives, its connection is busy and is not closed for another.
pub(super) struct Busy(Arc<Connection>);

impl Connections {
    /// With a limit from the process's descriptors.
    pub(super) fn new() -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let part = descriptors.map_or(u64::MAX, |limit| limit / PART_OF_DESCRIPTORS);
        Self::at_most(usize::try_from(part).unwrap_or(usize::MAX).clamp(1, CONNECTIONS_MAX))
    }

    fn at_most(most: usize) -> Self {
        Self { open: Arc::default(), most }
    }

    /// The limit.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Adds a connection; at the limit, the one that has been idle for longest is closed for it. `None` if
    /// all are busy.
    pub(super) fn enter(&self) -> Option<Arc<Connection>> {
        let mut open = self.open();
        if open.idle.len() + open.busy >= self.most {
            let (_, leave) = open.idle.pop_first()?;
            leave.cancel();
        }
        let leave = CancellationToken::new();
        let place = open.add(leave.clone());
        Some(Arc::new(Connection { connections: self.clone(), place: Mutex::new(Some(place)), leave }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn add(&mut self, leave: CancellationToken) -> u64 {
        self.last += 1;
        self.idle.insert(self.last, leave);
        self.last
    }
}

impl Connection {
    /// Waits until it is to be closed for another.
    pub(super) async fn has_to_leave(&self) {
        self.leave.cancelled().await;
    }

    /// Marks it busy: a whole request has arrived, or a head with the right token.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        let mut open = self.connections.open();
        if let Some(place) = self.place().take()
            && open.idle.remove(&place).is_some()
        {
            open.busy += 1;
        }
        Busy(Arc::clone(self))
    }

    fn place(&self) -> MutexGuard<'_, Option<u64>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut open = self.0.connections.open();
        // It is closed already if it was chosen just before it became busy.
        if !self.0.leave.is_cancelled() {
            open.busy -= 1;
            *self.0.place() = Some(open.add(self.0.leave.clone()));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(place) = self.place().take() {
            self.connections.open().idle.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_been_idle_longest_leaves_for_another() {
        let connections = Connections::at_most(3);
        let [first, second, third] = [(); 3].map(|()| connections.enter().unwrap());
        let busy = first.busy();
        let fourth = connections.enter().unwrap();
        let left = |connection: &Connection| connection.leave.is_cancelled();
        assert!(!left(&first) && left(&second) && !left(&third));
        drop(busy);
        let _fifth = connections.enter().unwrap();
        assert!(left(&third) && !left(&first) && !left(&fourth));
    }

    #[test]
    fn nobody_leaves_who_is_busy() {
        let connections = Connections::at_most(2);
        let [first, second] = [(); 2].map(|()| connections.enter().unwrap());
        let busy = [first.busy(), second.busy()];
        assert!(connections.enter().is_none());
        drop(busy);
        drop((first, second));
        let open = connections.open();
        assert_eq!((open.idle.len(), open.busy), (0, 0));
    }

    #[test]
    fn who_has_left_takes_no_place() {
        let connections = Connections::at_most(1);
        let first = connections.enter().unwrap();
        let second = connections.enter().unwrap();
        drop(first.busy());
        drop((first, second));
        let open = connections.open();
        assert_eq!((open.idle.len(), open.busy), (0, 0));
    }
}
