//! The things that the other program has opened, by number.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use parking_lot::Mutex;

use super::wire::RpcFailure;

/// Things of one kind, by the numbers that the other program gives them: it can close what it has asked for before it
/// knows that it is open.
pub(super) struct NumberedTable<T> {
    kind: &'static str,
    entries: Mutex<HashMap<u64, TableEntry<T>>>,
}

enum TableEntry<T> {
    Opening,
    /// Closed before it was open.
    Closed,
    Open(T),
}

/// A number whose thing is being opened. Without [`put`](Self::put), the number is free again once this is dropped.
pub(super) struct ReservedNumber<'a, T> {
    table: &'a NumberedTable<T>,
    number: u64,
}

impl<T> NumberedTable<T> {
    pub(super) fn new(kind: &'static str) -> Self {
        Self { kind, entries: Mutex::default() }
    }

    /// Takes a number for a thing that is to be opened.
    ///
    /// # Errors
    /// Another thing has it.
    pub(super) fn begin(&self, number: u64) -> Result<ReservedNumber<'_, T>, RpcFailure> {
        match self.entries.lock().entry(number) {
            Slot::Vacant(slot) => {
                slot.insert(TableEntry::Opening);
                Ok(ReservedNumber { table: self, number })
            }
            Slot::Occupied(_) => Err(RpcFailure::taken(self.kind, number)),
        }
    }

    /// Takes it out, now or when it is put in.
    pub(super) fn take(&self, number: u64) -> Option<T> {
        let mut entries = self.entries.lock();
        match entries.remove(&number)? {
            TableEntry::Open(thing) => Some(thing),
            TableEntry::Opening | TableEntry::Closed => {
                entries.insert(number, TableEntry::Closed);
                None
            }
        }
    }

    /// Takes out everything.
    pub(super) fn take_all(&self) -> Vec<T> {
        let open = |(_, entry)| match entry {
            TableEntry::Open(thing) => Some(thing),
            TableEntry::Opening | TableEntry::Closed => None,
        };
        self.entries.lock().drain().filter_map(open).collect()
    }
}

impl<T: Clone> NumberedTable<T> {
    pub(super) fn get(&self, number: u64) -> Result<T, RpcFailure> {
        match self.entries.lock().get(&number) {
            Some(TableEntry::Open(thing)) => Ok(thing.clone()),
            _ => Err(RpcFailure::closed(self.kind)),
        }
    }
}

impl<T> ReservedNumber<'_, T> {
    /// Puts the thing in. Drops it if it has been closed already.
    pub(super) fn put(self, thing: T) {
        if let Some(entry @ TableEntry::Opening) = self.table.entries.lock().get_mut(&self.number) {
            *entry = TableEntry::Open(thing);
        }
    }
}

impl<T> Drop for ReservedNumber<'_, T> {
    fn drop(&mut self) {
        let mut entries = self.table.entries.lock();
        if let Some(TableEntry::Opening | TableEntry::Closed) = entries.get(&self.number) {
            entries.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NumberedTable;

    #[test]
    fn what_is_closed_before_it_is_open_is_never_open() {
        let table = NumberedTable::new("thing");
        let first = table.begin(1).unwrap();
        assert_eq!(table.take(1), None);
        assert_eq!(table.take(1), None);
        first.put("late");
        assert!(table.get(1).is_err());
        table.begin(2).unwrap().put("open");
        assert_eq!(table.get(2).ok(), Some("open"));
        assert_eq!(table.take(2), Some("open"));
        let last = table.begin(3).unwrap();
        assert!(table.take_all().is_empty());
        last.put("too late");
        assert!(table.take_all().is_empty());
    }

    #[test]
    fn a_number_that_is_used_again_leaves_its_thing_alone() {
        let table = NumberedTable::new("thing");
        let first = table.begin(1).unwrap();
        assert!(table.begin(1).is_err());
        first.put("first");
        assert!(table.begin(1).is_err());
        assert_eq!(table.get(1).ok(), Some("first"));
        assert_eq!(table.take(1), Some("first"));
        table.begin(1).unwrap().put("second");
        assert_eq!(table.get(1).ok(), Some("second"));
    }

    #[test]
    fn numbers_without_a_thing_are_forgotten() {
        let table = NumberedTable::<()>::new("thing");
        assert_eq!(table.take(1), None);
        drop(table.begin(2));
        let closed = table.begin(3).unwrap();
        table.take(3);
        drop(closed);
        assert!(table.entries.lock().is_empty());
    }
}
