//! Which known word a misspelt one is likely meant to be; pure.

/// The word of `known` that is nearest to `word`, if any is near: a third of its letters may be wrong, in any case.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let limit = (word.chars().count() / 3).max(1);
    known
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters have to be put in, left out or replaced.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<&str>) {
        let known = ["allowWrite", "denyWrite", "denyRead", "git"];
        assert_eq!(nearest(word, known.into_iter()), expected, "{word}");
    }

    #[test]
    fn the_nearest_word_is_found_in_any_case() {
        check("allowwrite", Some("allowWrite"));
        check("allow_write", Some("allowWrite"));
        check("denyWrites", Some("denyWrite"));
        check("denyReed", Some("denyRead"));
        check("gx", None);
        check("gt", Some("git"));
        check("", None);
        check("proxy", None);
    }
}
