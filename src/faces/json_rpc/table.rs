//! What the other program has opened, by number.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::wire::Failure;

/// Things of one kind, by the numbers that the other program gives them: it can close what it has asked for before it
/// knows that it is open.
pub(super) struct Table<T> {
    kind: &'static str,
    /// `None`: closed before it was open.
    entries: Mutex<HashMap<u64, Option<T>>>,
}

impl<T> Table<T> {
    pub(super) fn new(kind: &'static str) -> Self {
        Self { kind, entries: Mutex::default() }
    }

    /// Drops what has been closed already.
    pub(super) fn put(&self, number: u64, thing: T) {
        let mut entries = self.entries();
        if entries.remove(&number).is_none() {
            entries.insert(number, Some(thing));
        }
    }

    /// Takes it out, now or when it is put in.
    pub(super) fn take(&self, number: u64) -> Option<T> {
        let mut entries = self.entries();
        let thing = entries.remove(&number).flatten();
        if thing.is_none() {
            entries.insert(number, None);
        }
        thing
    }

    /// Removes what has ended by itself.
    pub(super) fn remove(&self, number: u64) {
        self.entries().remove(&number);
    }

    /// Takes out everything.
    pub(super) fn take_all(&self) -> Vec<T> {
        self.entries().drain().filter_map(|(_, thing)| thing).collect()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Option<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Table<T> {
    pub(super) fn get(&self, number: u64) -> Result<T, Failure> {
        let thing = self.entries().get(&number).cloned().flatten();
        thing.ok_or_else(|| Failure::closed(self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn what_is_closed_before_it_is_open_is_never_open() {
        let table = Table::new("thing");
        assert_eq!(table.take(1), None);
        table.put(1, "late");
        assert!(table.get(1).is_err());
        table.put(2, "open");
        assert_eq!(table.get(2).ok(), Some("open"));
        assert_eq!(table.take(2), Some("open"));
        assert!(table.take_all().is_empty());
    }
}
