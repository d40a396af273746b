//! What the other program has opened, by number.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::wire::Failure;

/// Things of one kind, by the numbers that the other program gives them: it can close what it has asked for before it
/// knows that it is open.
pub(super) struct Table<T> {
    kind: &'static str,
    entries: Mutex<HashMap<u64, T>>,
}

impl<T> Table<T> {
    pub(super) fn new(kind: &'static str) -> Self {
        Self { kind, entries: Mutex::default() }
    }

    pub(super) fn put(&self, number: u64, thing: T) {
        self.entries().insert(number, thing);
    }

    /// Takes it out, if it is there.
    pub(super) fn take(&self, number: u64) -> Option<T> {
        self.entries().remove(&number)
    }

    /// Takes out everything.
    pub(super) fn take_all(&self) -> Vec<T> {
        self.entries().drain().map(|(_, thing)| thing).collect()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<u64, T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Table<T> {
    pub(super) fn get(&self, number: u64) -> Result<T, Failure> {
        let thing = self.entries().get(&number).cloned();
        thing.ok_or_else(|| Failure::closed(self.kind))
    }
}
