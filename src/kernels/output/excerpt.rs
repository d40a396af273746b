//! The beginning and the end of a text that comes in pieces: pure.

/// Keeps as many characters of a text as it is allowed to.
#[derive(Debug)]
pub(crate) struct Excerpt {
    limit: usize,
    /// The first `limit` characters: all, until there are more.
    head: String,
    head_chars: usize,
    /// The newest characters after the head; at least half of `limit`, if there were so many.
    rest: String,
    chars: usize,
}

/// The beginning and the end of a text, together at most `limit` characters.
pub(crate) fn excerpt(text: &str, limit: usize) -> String {
    let mut excerpt = Excerpt::new(limit);
    excerpt.push(text);
    excerpt.into_string()
}

impl Excerpt {
    /// Keeps `limit` characters.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, head: String::new(), head_chars: 0, rest: String::new(), chars: 0 }
    }

    /// The number of characters that were pushed.
    pub(crate) fn chars(&self) -> usize {
        self.chars
    }

    /// Whether `text` fits too.
    pub(crate) fn has_room_for(&self, text: &str) -> bool {
        self.chars.saturating_add(text.chars().count()) <= self.limit
    }

    /// Whether a part is missing.
    pub(crate) fn is_cut(&self) -> bool {
        self.chars > self.limit
    }

    /// The whole text, as long as nothing is missing.
    pub(crate) fn whole(&self) -> &str {
        &self.head
    }

    /// Appends text.
    pub(crate) fn push(&mut self, text: &str) {
        let chars = text.chars().count();
        self.chars += chars;
        let room = self.limit - self.head_chars;
        let end = text.char_indices().nth(room).map_or(text.len(), |(end, _)| end);
        self.head.push_str(&text[..end]);
        self.head_chars += chars.min(room);
        self.rest.push_str(last_chars(&text[end..], self.tail_chars()));
        // Seldom, so that small pieces do not move the text each time.
        if self.rest.len() / 16 > self.tail_chars() {
            self.rest = last_chars(&self.rest, self.tail_chars()).to_owned();
        }
    }

    /// The text, or its beginning and end around a mark.
    pub(crate) fn into_string(self) -> String {
        if !self.is_cut() {
            return self.head;
        }
        let tail = last_chars(&self.rest, self.tail_chars());
        let missing = self.tail_chars() - tail.chars().count();
        let begin = first_chars(&self.head, self.limit - self.tail_chars());
        let bridge = last_chars(&self.head, missing);
        let left_out = self.chars - self.limit;
        format!("{begin}\n\n[… {left_out} characters left out …]\n\n{bridge}{tail}")
    }

    fn tail_chars(&self) -> usize {
        self.limit / 2
    }
}

fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn last_chars(text: &str, count: usize) -> &str {
    match count {
        0 => "",
        _ => text.char_indices().nth_back(count - 1).map_or(text, |(begin, _)| &text[begin..]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(limit: usize, pieces: &[&str], expected: &str) {
        let mut excerpt = Excerpt::new(limit);
        pieces.iter().for_each(|piece| excerpt.push(piece));
        assert_eq!(excerpt.into_string(), expected);
    }

    #[test]
    fn text_that_fits_is_whole() {
        check(5, &["ab", "", "cdé"], "abcdé");
        check(0, &[""], "");
        check(usize::MAX, &["a", "b"], "ab");
    }

    #[test]
    fn text_that_does_not_fit_keeps_both_ends() {
        check(4, &["abc", "defgh"], "ab\n\n[… 4 characters left out …]\n\ngh");
        check(5, &["éééééé"], "ééé\n\n[… 1 characters left out …]\n\néé");
        check(4, &["ab", "cd", "e"], "ab\n\n[… 1 characters left out …]\n\nde");
        check(0, &["abc"], "\n\n[… 3 characters left out …]\n\n");
    }

    #[test]
    fn memory_stays_bounded() {
        let mut excerpt = Excerpt::new(10);
        for _ in 0..100_000 {
            excerpt.push("é\n");
        }
        assert!(excerpt.rest.capacity() < 1_000 && excerpt.head.capacity() < 100);
        assert_eq!(excerpt.chars(), 200_000);
    }

    proptest! {
        #[test]
        fn both_ends_are_those_of_the_text(limit in 0..30_usize, pieces in prop::collection::vec("[aé\n]{0,9}", 0..9)) {
            let text: Vec<char> = pieces.concat().chars().collect();
            let mut excerpt = Excerpt::new(limit);
            for piece in &pieces {
                prop_assert_eq!(excerpt.has_room_for(piece), excerpt.chars() + piece.chars().count() <= limit);
                excerpt.push(piece);
            }
            let kept = excerpt.into_string();
            if text.len() <= limit {
                prop_assert_eq!(kept, String::from_iter(text));
            } else {
                let (begin, end) = kept.split_once("\n\n[… ").unwrap();
                let end = end.split_once(" …]\n\n").unwrap().1;
                prop_assert!(text.starts_with(&Vec::from_iter(begin.chars())));
                prop_assert!(text.ends_with(&Vec::from_iter(end.chars())));
                prop_assert_eq!(begin.chars().count() + end.chars().count(), limit);
            }
        }
    }
}
