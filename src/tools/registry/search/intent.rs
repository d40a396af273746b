//! The kind of action that a request or the name of a tool begins with: reading, making, changing or removing. Pure.

/// Kinds of actions, as bits; a word can be of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SearchIntent(u8);

const READ: u8 = 1;
const MAKE: u8 = 2;
const CHANGE: u8 = 4;
const REMOVE: u8 = 8;

/// Words with the kinds that they can be of; two words of a request can be one here.
const WORDS: [(u8, &str); 5] = [
    (
        READ,
        "are browse check compare count describe did display does download export fetch find get getme giveme has howlong howmany howmuch howoften info \
         inspect is list look lookup query read retrieve search see show status summarize tell tellme view what when where \
         which who whose why",
    ),
    (MAKE, "build compose create draft draw generate make new setup spinup write"),
    (MAKE | CHANGE, "add append assign attach insert put save set store upload"),
    (CHANGE, "change correct edit fix give mark modify move patch rename replace turn update"),
    (REMOVE, "cancel clean clear delete drop erase forget getrid purge remove throwaway uninstall unset"),
];

impl SearchIntent {
    /// The kind of the first of `words`, in lower case, that has one.
    pub(super) fn of(words: &[String]) -> Self {
        let pairs = words.windows(2).map(<[String]>::concat).chain([String::new()]);
        let kinds = words.iter().zip(pairs).map(|(word, pair)| match Self::of_word(&pair) {
            0 => Self::of_word(word),
            kinds => kinds,
        });
        Self(kinds.into_iter().find(|kinds| *kinds != 0).unwrap_or_default())
    }

    fn of_word(word: &str) -> u8 {
        let kinds = WORDS.iter().filter(|(_, words)| words.split(' ').any(|known| known == word));
        kinds.fold(0, |all, (kinds, _)| all | kinds)
    }

    /// Whether the two have kinds, and none in common.
    pub(super) fn contradicts(self, other: Self) -> bool {
        self.0 != 0 && other.0 != 0 && self.0 & other.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::spelled;
    use super::*;

    #[track_caller]
    fn check(request: &str, name: &str, contradicts: bool) {
        let (request, tool) = (SearchIntent::of(&spelled(request)), SearchIntent::of(&spelled(name)));
        assert_eq!(request.contradicts(tool), contradicts, "{request:?} {name}: {tool:?}");
    }

    #[test]
    fn only_other_kinds_contradict() {
        check("which branches are there", "create_branch", true);
        check("which branches are there", "listBranches", false);
        check("get rid of a branch", "get_branch", true);
        check("get rid of a branch", "delete_branch", false);
        check("put a row into the table", "update_rows", false);
        check("branches", "delete_branch", false);
        check("delete a branch", "branches", false);
    }
}
