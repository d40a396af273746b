//! Names that must differ from each other, and how the second of two equals is numbered.

use std::collections::{HashMap, HashSet};

/// The sign between a name and its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NameNumbering {
    /// `Item`, `Item1`, `Item2`: classes.
    Joined,
    /// `item`, `item_1`, `item_2`: fields, enum members, modules.
    Underscore,
}

/// The names taken in one scope.
#[derive(Default)]
pub(super) struct NameScope {
    taken: HashSet<String>,
    /// The number to go on from for a name, so that a thousand equal names cost a thousand steps, not a million.
    next: HashMap<String, usize>,
}

impl NameScope {
    /// A scope in which `names` are taken already.
    pub(super) fn with(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { taken: names.into_iter().map(Into::into).collect(), next: HashMap::new() }
    }

    /// Whether `name` is taken.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.taken.contains(name)
    }

    /// Takes `name`, or the first numbered form of it that is free.
    pub(super) fn take(&mut self, name: String, numbering: NameNumbering) -> String {
        if self.taken.insert(name.clone()) {
            return name;
        }
        let separator = match numbering {
            NameNumbering::Joined => "",
            NameNumbering::Underscore => "_",
        };
        let mut number = self.next.get(&name).copied().unwrap_or(1);
        loop {
            let candidate = format!("{name}{separator}{number}");
            number += 1;
            if self.taken.insert(candidate.clone()) {
                self.next.insert(name, number);
                return candidate;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_numbered_past_those_already_taken() {
        let mut scope = NameScope::with(["Item1"]);
        let names: Vec<_> = (0..3).map(|_| scope.take("Item".to_owned(), NameNumbering::Joined)).collect();
        assert_eq!(names, ["Item", "Item2", "Item3"]);
        assert_eq!(scope.take("Item1".to_owned(), NameNumbering::Underscore), "Item1_1");
    }
}
