//! The rows of a table that a person names.

use std::collections::BTreeSet;

use crate::ground::text::visible::line;

/// The rows in a text such as `1-3, 7`, of a table with `count` rows.
///
/// # Errors
/// It is not clear which ones are meant; the text is for the person.
pub fn named_rows(text: &str, count: usize) -> Result<BTreeSet<usize>, String> {
    let unclear = |part: &str| {
        let part = crate::ground::text::shortened(&line(part), 100);
        format!(
            "Which rows are to be allowed? `{part}` names none of 1 to {count}. Write them as in `1-3, 7`."
        )
    };
    let mut named = BTreeSet::new();
    for part in text.split([',', ';']).map(str::trim) {
        let number = |digits: &str| {
            let digits = digits.trim();
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<usize>().ok().filter(|row| is_number && (1..=count).contains(row))
        };
        let (first, last) = part.split_once(['-', '–']).unwrap_or((part, part));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => named.extend(first..=last),
            _ => return Err(unclear(part)),
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_numbers_and_ranges_and_nothing_else() {
        let named = |text: &str| named_rows(text, 12).map(|rows| rows.into_iter().collect::<Vec<_>>());
        assert_eq!(named("1-3, 7; 12"), Ok(vec![1, 2, 3, 7, 12]));
        assert_eq!(named("3 – 4"), Ok(vec![3, 4]));
        for wrong in ["", "0", "13", "3-1", "-3", "1-", "all", "1 2", "1,,2", "+1-2", "1-2-3", "\u{661}"] {
            assert!(named(wrong).is_err_and(|why| why.contains("1 to 12")), "{wrong}");
        }
    }
}
