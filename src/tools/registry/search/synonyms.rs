//! Words that mean about the same: a request says `folder`, and a tool `directory`. Pure.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::words::words;

/// Groups of words, one on each line; a line with `>` has words of requests, then words of tools.
const GROUPS: &str = include_str!("synonyms.txt");

/// The words without endings, each with the others of its groups.
static SYNONYMS: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut synonyms: HashMap<String, Vec<String>> = HashMap::new();
    for line in GROUPS.lines().filter(|line| !line.starts_with('#')) {
        let (asked, found) = line.split_once('>').unwrap_or((line, line));
        let found = words(found);
        for word in words(asked) {
            let known = synonyms.entry(word.clone()).or_default();
            for other in &found {
                if *other != word && !known.contains(other) {
                    known.push(other.clone());
                }
            }
        }
    }
    synonyms
});

/// The synonyms of a word without its endings, without theirs.
pub(super) fn of(stem: &str) -> &'static [String] {
    SYNONYMS.get(stem).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_others_of_all_their_groups() {
        let of = |word: &str| of(&words(word)[0]);
        assert!(of("folders").contains(&"directory".to_owned()), "{:?}", of("folders"));
        assert!(of("issue").contains(&"bug".to_owned()) && of("issue").contains(&"ticket".to_owned()));
        assert!(of("tokyo").is_empty());
    }

    #[test]
    fn a_line_with_a_direction_works_in_it_only() {
        let of = |word: &str| of(&words(word)[0]);
        assert!(of("gitlab").is_empty() && of("destroy").contains(&words("delete")[0]));
        assert!(!of("gmail").contains(&words("google")[0]) && of("google").contains(&words("gmail")[0]));
    }

    #[test]
    fn each_line_is_a_group_of_single_words() {
        for line in GROUPS.lines().filter(|line| !line.starts_with('#')) {
            let count = line.split_whitespace().filter(|word| *word != ">").count();
            assert!((2..=30).contains(&count), "{line}");
            let is_plain = |character: char| {
                character.is_ascii_lowercase() || character == ' ' || character.is_ascii_digit()
            };
            let sides: Vec<&str> = line.split(" > ").collect();
            assert!(sides.len() <= 2 && sides.concat().chars().all(is_plain), "{line}");
        }
    }
}
