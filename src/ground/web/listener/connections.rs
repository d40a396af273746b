//! The connections of listeners: their limit, and which idle one is closed for a new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::peer::ListenerPeer;

/// The connections of one listener, or of several. Clones share them.
#[derive(Clone)]
pub(crate) struct ListenerConnections {
    open: Arc<Mutex<OpenConnections>>,
    most: usize,
}

#[derive(Default)]
struct OpenConnections {
    /// The idle connections, in the order in which they leave: others' first, then as they became idle.
    idle: BTreeMap<IdlePlace, CancellationToken>,
    busy: usize,
    last: u64,
}

type IdlePlace = (ListenerPeer, u64);

/// A connection. Dropping it makes room for another.
pub(super) struct ListenerConnection {
    connections: ListenerConnections,
    peer: ListenerPeer,
    /// Its key in `idle`; `None` while it is busy.
    place: Mutex<Option<IdlePlace>>,
    leave: CancellationToken,
}

/// While this lives, its connection is busy and is not closed for another.
pub(super) struct BusyConnection(Arc<ListenerConnection>);

impl ListenerConnections {
    /// With this limit.
    pub(crate) fn at_most(most: usize) -> Self {
        Self { open: Arc::default(), most }
    }

    /// The limit.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Adds a connection; at the limit, another user's idle one is closed for it, else the user's, the oldest first.
    /// `None` if all are busy.
    pub(super) fn enter(&self, peer: ListenerPeer) -> Option<Arc<ListenerConnection>> {
        let mut open = self.open.lock();
        if open.count() >= self.most {
            let (_, leave) = open.idle.pop_first()?;
            leave.cancel();
        }
        let leave = CancellationToken::new();
        let place = open.add(peer, leave.clone());
        Some(Arc::new(ListenerConnection {
            connections: self.clone(),
            peer,
            place: Mutex::new(Some(place)),
            leave,
        }))
    }

    /// Whether one has to leave for the next.
    pub(super) fn is_full(&self) -> bool {
        self.open.lock().count() >= self.most
    }
}

impl OpenConnections {
    fn count(&self) -> usize {
        self.idle.len() + self.busy
    }

    fn add(&mut self, peer: ListenerPeer, leave: CancellationToken) -> IdlePlace {
        self.last += 1;
        let place = (peer, self.last);
        self.idle.insert(place, leave);
        place
    }
}

impl ListenerConnection {
    /// Waits until it is to be closed for another.
    pub(super) async fn has_to_leave(&self) {
        self.leave.cancelled().await;
    }

    pub(super) fn peer(&self) -> ListenerPeer {
        self.peer
    }

    /// Marks it busy: a request has arrived that was admitted.
    pub(super) fn hold(self: &Arc<Self>) -> BusyConnection {
        let mut open = self.connections.open.lock();
        if let Some(place) = self.place.lock().take()
            && open.idle.remove(&place).is_some()
        {
            open.busy += 1;
        }
        BusyConnection(Arc::clone(self))
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        let mut open = self.0.connections.open.lock();
        // It is closed already if it was chosen just before it became busy.
        if !self.0.leave.is_cancelled() {
            open.busy -= 1;
            *self.0.place.lock() = Some(open.add(self.0.peer, self.0.leave.clone()));
        }
    }
}

impl Drop for ListenerConnection {
    fn drop(&mut self) {
        if let Some(place) = self.place.lock().take() {
            self.connections.open.lock().idle.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_been_idle_longest_leaves_for_another() {
        let connections = ListenerConnections::at_most(3);
        let [first, second, third] = [(); 3].map(|()| connections.enter(ListenerPeer::User).unwrap());
        let busy = first.hold();
        let fourth = connections.enter(ListenerPeer::User).unwrap();
        let left = |connection: &ListenerConnection| connection.leave.is_cancelled();
        assert!(!left(&first) && left(&second) && !left(&third));
        drop(busy);
        let _fifth = connections.enter(ListenerPeer::User).unwrap();
        assert!(left(&third) && !left(&first) && !left(&fourth));
    }

    #[test]
    fn other_users_leave_before_the_user() {
        let connections = ListenerConnections::at_most(2);
        let mine = connections.enter(ListenerPeer::User).unwrap();
        for _ in 0..10 {
            let other = connections.enter(ListenerPeer::Other).unwrap();
            let another = connections.enter(ListenerPeer::Other).unwrap();
            assert!(other.leave.is_cancelled() && !another.leave.is_cancelled());
        }
        assert!(!mine.leave.is_cancelled());
    }

    #[test]
    fn nobody_leaves_who_is_busy() {
        let connections = ListenerConnections::at_most(2);
        let [first, second] = [(); 2].map(|()| connections.enter(ListenerPeer::User).unwrap());
        let busy = [first.hold(), second.hold()];
        assert!(connections.enter(ListenerPeer::User).is_none());
        drop(busy);
        drop((first, second));
        let open = connections.open.lock();
        assert_eq!((open.idle.len(), open.busy), (0, 0));
    }

    #[test]
    fn who_has_left_takes_no_place() {
        let connections = ListenerConnections::at_most(1);
        let first = connections.enter(ListenerPeer::User).unwrap();
        let second = connections.enter(ListenerPeer::User).unwrap();
        drop(first.hold());
        drop((first, second));
        let open = connections.open.lock();
        assert_eq!((open.idle.len(), open.busy), (0, 0));
    }
}
