//! Texts as the words by which they are found: in lower case, without endings. Pure.

/// The longest word that counts, in bytes: longer ones are data.
const WORD_BYTES: usize = 40;
/// The shortest word that is made of two.
const JOINED_BYTES: usize = 4;
const ARTICLES: [&str; 4] = ["a", "an", "i", "the"];

/// Words that say nothing about a tool.
const FILLERS: [&str; 65] = [
    "a", "all", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does", "each", "for",
    "from", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "need", "not",
    "of", "on", "one", "only", "or", "our", "please", "should", "so", "some", "such", "that", "the", "their",
    "them", "these", "this", "those", "to", "tool", "tools", "up", "use", "used", "using", "want", "was",
    "we", "what", "when", "which", "will", "with", "you", "your",
];

/// A word of a query.
pub(super) struct AskedWord {
    /// As the query has it, in lower case.
    pub(super) spelled: String,
    pub(super) stem: String,
    /// Two words of the query written as one: `to-do` asks for `todo` too. It counts only if a tool has it.
    pub(super) is_joined: bool,
}

/// The words of a text or a name. Names are split: `listPullRequests` and `list_pull_requests` are three words.
pub(super) fn words(text: &str) -> Vec<String> {
    spelled(text).into_iter().filter(|word| says_something(word)).map(stem).collect()
}

/// The words of a query, and the pairs of words that may be one.
pub(super) fn asked(query: &str) -> Vec<AskedWord> {
    let spelled = spelled(query);
    let joined: Vec<String> = spelled
        .windows(2)
        .filter(|pair| !ARTICLES.contains(&pair[0].as_str()))
        .map(|pair| pair.concat())
        .filter(|word| (JOINED_BYTES..=WORD_BYTES).contains(&word.len()))
        .collect();
    let single = spelled.into_iter().filter(|word| says_something(word)).map(|word| (word, false));
    let all = single.chain(joined.into_iter().map(|word| (word, true)));
    all.map(|(word, is_joined)| AskedWord { stem: stem(word.clone()), spelled: word, is_joined }).collect()
}

pub(super) fn spelled(text: &str) -> Vec<String> {
    let runs = text.split(|character: char| !character.is_alphanumeric());
    runs.flat_map(parts).map(|part| part.to_lowercase()).collect()
}

fn says_something(word: &str) -> bool {
    FILLERS.binary_search(&word).is_err() && word.len() <= WORD_BYTES
}

/// Splits a run of letters and digits where a capital begins a word, and text without spaces into pairs of characters.
fn parts(run: &str) -> Vec<String> {
    let characters: Vec<char> = run.chars().collect();
    if characters.iter().copied().any(has_no_spaces) {
        return characters.windows(characters.len().min(2)).map(|pair| pair.iter().collect()).collect();
    }
    let mut parts = Vec::new();
    let mut part = String::new();
    for (at, &character) in characters.iter().enumerate() {
        let was_lower = at > 0 && !characters[at - 1].is_uppercase();
        let is_before_lower = characters.get(at + 1).is_some_and(|next| next.is_lowercase());
        // `getURLs` and `HTTPServer`: the last capital of several begins a word, unless only a plural follows.
        let is_plural = characters.get(at + 1) == Some(&'s') && at + 2 == characters.len();
        let begins = character.is_uppercase() && (was_lower || (is_before_lower && !is_plural));
        if begins && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        part.push(character);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// Whether this is a letter of a script that puts no spaces between words: Chinese and Japanese.
fn has_no_spaces(character: char) -> bool {
    matches!(character, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

/// A word without the endings of plurals and verbs. What remains need not be a word, only the same for all of its forms.
pub(super) fn stem(mut word: String) -> String {
    if !word.is_ascii() || word.len() < 3 {
        return word;
    }
    if let Some(root) = word.strip_suffix("ies").filter(|root| root.len() > 1) {
        word = format!("{root}y");
    } else if ["sses", "ches", "shes", "xes"].iter().any(|ending| word.ends_with(ending)) {
        word.truncate(word.len() - 2);
    } else if word.ends_with('s') && !["ss", "us", "is"].iter().any(|ending| word.ends_with(ending)) {
        word.pop();
    }
    for ending in ["ing", "ed", "ion", "or", "er"] {
        let root = word.strip_suffix(ending).filter(|root| is_root(root, ending));
        if let Some(length) = root.map(str::len) {
            word.truncate(length);
            break;
        }
    }
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    let bytes = word.as_bytes();
    // `commit` and `committed`, but also `add` and `adding`.
    if bytes.len() > 2 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2] {
        word.pop();
    }
    word
}

fn is_root(root: &str, ending: &str) -> bool {
    let has_vowel = root.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    match ending {
        "ion" => root.len() >= 4 && root.ends_with(['t', 's']),
        // Only for what `-ate`, `-ute`, `-ct` or `-ch` does: `editor`, `number` and `user` are no forms of a verb.
        "or" | "er" => root.len() >= 5 && ["at", "ut", "ct", "ch"].iter().any(|end| root.ends_with(end)),
        _ => root.len() >= 3 && has_vowel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(words(text), expected, "{text}");
    }

    #[test]
    fn names_are_split_into_words() {
        check("list_pull_requests", &["list", "pul", "request"]);
        check("listPullRequests", &["list", "pul", "request"]);
        check("HTTPServer", &["http", "server"]);
        check("getURLs", &["get", "url"]);
        check("API-get-user", &["api", "get", "user"]);
        check("s3.bucket v2", &["s3", "bucket", "v2"]);
        check("", &[]);
    }

    #[test]
    fn the_forms_of_a_word_are_one() {
        for forms in [
            &["create", "creates", "created", "creating", "creation", "creator"][..],
            &["commit", "commits", "committed", "committing"],
            &["query", "queries"],
            &["search", "searches", "searching", "searcher"],
            &["repository", "repositories"],
            &["box", "boxes"],
            &["file", "files", "filed"],
            &["address", "addresses"],
            &["add", "adds", "adding", "added"],
        ] {
            let stems: Vec<_> = forms.iter().map(|form| stem((*form).to_owned())).collect();
            assert!(stems.iter().all(|stem| *stem == stems[0]), "{forms:?}: {stems:?}");
        }
        for word in ["string", "status", "this", "need", "s3", "css", "números"] {
            assert!(word.starts_with(&stem(word.to_owned())) && stem(word.to_owned()).len() > 1, "{word}");
        }
    }

    #[test]
    fn words_that_say_nothing_do_not_count() {
        check("What is the weather in Paris?", &["weather", "paris"]);
        check("how do I use this", &[]);
        assert!(FILLERS.is_sorted());
    }

    #[test]
    fn text_without_spaces_is_found_by_pairs() {
        check("搜索文件", &["搜索", "索文", "文件"]);
        check("東", &["東"]);
        check("naïve Über", &["naïve", "über"]);
    }

    #[test]
    fn two_words_of_a_query_may_be_one() {
        let joined = |query: &str| -> Vec<String> {
            asked(query).into_iter().filter(|word| word.is_joined).map(|word| word.stem).collect()
        };
        assert_eq!(joined("my to-do"), ["myto", "todo"]);
        assert_eq!(joined("a time zone"), ["timezon"]);
    }

    #[test]
    fn data_is_no_word() {
        check(&"x".repeat(41), &[]);
    }
}
