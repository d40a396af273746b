//! Proposes a grant: what was constant in some calls is fixed, and what varied has the tightest pattern that fits all of it.
//! Pure.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Number, Value};

use super::address::{domain_of, is_everybodys, origin_of};
use super::path::PlainPath;
use super::pattern::GrantPattern;
use super::{Grant, MOST_ARGUMENTS};
use crate::approval::action::Action;

/// The number of calls that a proposed grant allows, that of the question among them.
const COUNT: u32 = 50;

/// The greatest length of a proposal in a question, in characters.
pub(super) const SHOWN_CHARS: usize = 4_000;

/// The shortest prefix that is proposed, in characters.
const LEAST_PREFIX: usize = 3;

/// Texts that are longer than this are no part of a list of addresses or names, in characters.
const MOST_TEXT: usize = 10_000;

/// The ends of prefixes.
const BOUNDARIES: [char; 6] = ['-', '_', '/', '.', ':', '#'];

/// Words in the names of arguments that decide what is done or to whom: a grant of any text would be too much there.
#[rustfmt::skip]
const DECISIVE: [&str; 56] = [
    "account", "address", "args", "arguments", "bash", "bcc", "branch", "cc", "cmd", "code", "command",
    "commands", "destination", "dir", "directory", "email", "eval", "exec", "expr", "expression", "file",
    "filename", "filter", "folder", "from", "host", "id", "javascript", "js", "key", "link", "name",
    "operation", "options", "owner", "path", "program", "python", "query", "recipient", "recipients",
    "ref", "repo", "script", "shell", "source", "sql", "statement", "table", "target", "to", "token",
    "uri", "url", "user", "where",
];

/// Words in the names of arguments by which even a tool that only reads sends data to a place of its caller's choice.
const PLACES: [&str; 5] = ["address", "host", "link", "uri", "url"];

/// Whether code may announce an argument with such values: it is no wider than what would be proposed after some calls, or it
/// cannot matter much.
pub(super) fn may_be_announced(name: &str, pattern: &GrantPattern, is_read_only: bool) -> bool {
    match pattern {
        GrantPattern::Equal(_) | GrantPattern::Between { .. } | GrantPattern::Origin(_) => true,
        GrantPattern::Domain(domain) => !is_everybodys(domain),
        GrantPattern::Prefix(text) => prefix(&[text]).as_ref() == Some(text),
        GrantPattern::Within(directory) => {
            let below = format!("{directory}/x");
            let read = PlainPath::read(&below).map(|path| PlainPath::common_directory(&[path]));
            read.flatten().as_ref() == Some(directory)
        }
        GrantPattern::Any {} => !has_word(name, &PLACES) && (is_read_only || !has_word(name, &DECISIVE)),
        GrantPattern::Text { .. } | GrantPattern::Each { .. } => false,
    }
}

/// A grant for calls of one tool, in the order in which they were made; the last is the one that is asked about. `None` if
/// they have too little in common.
pub(super) fn propose(calls: &[&Action]) -> Option<Grant> {
    let last = *calls.last()?;
    if last.tool_args.len() > MOST_ARGUMENTS
        || calls.iter().any(|call| call.tool_args.len() != last.tool_args.len())
    {
        return None;
    }
    let mut arguments = BTreeMap::new();
    for name in last.tool_args.keys() {
        let values: Vec<&Value> = calls.iter().map(|call| call.tool_args.get(name)).collect::<Option<_>>()?;
        arguments.insert(name.clone(), of_values(name, &values)?);
    }
    let grant = Grant::new(last, arguments, COUNT);
    let fits = calls.iter().all(|call| grant.check(call).is_ok());
    (fits && grant.to_string().chars().count() <= SHOWN_CHARS).then_some(grant)
}

/// A pattern for all of the values.
fn of_values(name: &str, values: &[&Value]) -> Option<GrantPattern> {
    let first = *values.first()?;
    if values.iter().all(|value| *value == first) {
        return Some(GrantPattern::Equal(first.clone()));
    }
    if let Some(numbers) = values.iter().map(|value| value.as_number()).collect::<Option<Vec<_>>>() {
        return of_numbers(&numbers);
    }
    if let Some(texts) = values.iter().map(|value| value.as_str()).collect::<Option<Vec<_>>>() {
        return of_texts(name, &texts);
    }
    let lists = values.iter().map(|value| value.as_array()).collect::<Option<Vec<_>>>()?;
    let max_items = lists.iter().map(|list| list.len()).max()?;
    let items: Vec<&Value> = lists.iter().copied().flatten().collect();
    match of_values(name, &items)? {
        GrantPattern::Text { .. } | GrantPattern::Each { .. } => None,
        pattern => Some(GrantPattern::Each { pattern: Box::new(pattern), max_items }),
    }
}

fn of_numbers(numbers: &[&Number]) -> Option<GrantPattern> {
    if let Some(counted) = numbers.iter().map(|number| number.as_i64()).collect::<Option<Vec<_>>>()
        && let Some(range) = counter(&counted)
    {
        return Some(GrantPattern::Between { min: (*range.start()).into(), max: (*range.end()).into() });
    }
    let by_value = |one: &&&Number, other: &&&Number| {
        crate::approval::policy::compare_numbers(one, other).unwrap_or(std::cmp::Ordering::Equal)
    };
    let min = numbers.iter().min_by(by_value)?;
    let max = numbers.iter().max_by(by_value)?;
    Some(GrantPattern::Between { min: (*min).clone(), max: (*max).clone() })
}

/// The numbers that a loop goes on to which counts up or down by one.
fn counter(numbers: &[i64]) -> Option<RangeInclusive<i64>> {
    let first = *numbers.first()?;
    let last = *numbers.last()?;
    let rest = i64::from(COUNT) - 1;
    let steps_by = |step: i64| numbers.windows(2).all(|pair| pair[0].checked_add(step) == Some(pair[1]));
    if steps_by(1) {
        return Some(first..=last.checked_add(rest)?);
    }
    if steps_by(-1) {
        return Some(last.checked_sub(rest)?..=first);
    }
    None
}

/// A pattern of texts that lead to one place, begin in one way, or are prose.
fn of_texts(name: &str, texts: &[&str]) -> Option<GrantPattern> {
    if texts.iter().any(|text| text.contains('\0')) {
        return None;
    }
    if let Some(domains) = texts.iter().map(|text| domain_of(text)).collect::<Option<Vec<_>>>() {
        let domain = only(domains)?;
        return (!is_everybodys(&domain)).then_some(GrantPattern::Domain(domain));
    }
    if let Some(origins) = texts.iter().map(|text| origin_of(text)).collect::<Option<Vec<_>>>() {
        return Some(GrantPattern::Origin(only(origins)?));
    }
    let is_path =
        |text: &&str| text.starts_with('/') || text.contains('/') && !text.contains(char::is_whitespace);
    if texts.iter().all(is_path) {
        let paths: Vec<_> = texts.iter().map(|text| PlainPath::read(text)).collect::<Option<_>>()?;
        return PlainPath::common_directory(&paths).map(GrantPattern::Within);
    }
    if texts.iter().all(|text| is_prose(text)) && !has_word(name, &DECISIVE) {
        let longest = texts.iter().map(|text| text.chars().count()).max()?;
        return (longest > 0 && longest <= MOST_TEXT)
            .then_some(GrantPattern::Text { max_chars: 2 * longest });
    }
    prefix(texts).map(GrantPattern::Prefix)
}

fn only(values: Vec<String>) -> Option<String> {
    let mut values = values.into_iter();
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// Whether a text is made of words, and is neither a path nor the beginning of an option.
fn is_prose(text: &str) -> bool {
    text.is_empty() || text.contains(char::is_whitespace) && !text.starts_with(['/', '~', '-', '\\'])
}

/// Whether the name of an argument has one of these words.
fn has_word(name: &str, listed: &[&str]) -> bool {
    let mut words = String::new();
    let mut was_small = false;
    for c in name.chars() {
        if c.is_uppercase() && was_small {
            words.push(' ');
        }
        was_small = c.is_lowercase();
        words.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    }
    words.split(' ').any(|word| listed.contains(&word))
}

/// The common beginning of all texts, up to a boundary.
fn prefix(texts: &[&str]) -> Option<String> {
    let (first, others) = texts.split_first()?;
    if texts.iter().any(|text| text.contains(char::is_whitespace) || text.contains("://")) {
        return None;
    }
    let mut length = first.len();
    for text in others {
        let alike = first.bytes().zip(text.bytes()).take_while(|(one, other)| one == other);
        length = length.min(alike.count());
    }
    // In ASCII alone bytes are characters.
    let common = first.get(..length).filter(|common| common.is_ascii())?;
    let prefix = &common[..=common.rfind(BOUNDARIES)?];
    let has_letters = prefix.chars().filter(char::is_ascii_alphanumeric).count() >= LEAST_PREFIX;
    has_letters.then(|| prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::action;
    use super::*;

    /// The proposal for one argument with these values.
    #[track_caller]
    fn check(name: &str, values: Value, expected: Value) {
        let Value::Array(values) = values else { panic!("a list") };
        let calls: Vec<_> = values.iter().map(|value| action("send", json!({name: value}))).collect();
        let proposed = propose(&calls.iter().collect::<Vec<_>>());
        let pattern = proposed.map_or(Value::Null, |grant| json!(grant.arguments()[name]));
        assert_eq!(pattern, expected, "{name}: {values:?}");
    }

    #[test]
    fn what_is_constant_is_fixed() {
        for value in [json!("Hi"), json!(""), json!(true), json!(null), json!({"a": [1]}), json!(["x", 1])] {
            check("x", json!([value, value]), json!({"equal": value}));
        }
    }

    #[test]
    fn addresses_share_a_domain() {
        check("to", json!(["a@x.org", "b@X.org"]), json!({"domain": "x.org"}));
        check("to", json!(["a@x.org", "b@y.org"]), json!(null));
        check("to", json!(["a@x.org", "b@mail.x.org"]), json!(null));
        check("to", json!(["a@gmail.com", "b@gmail.com"]), json!(null));
        check("to", json!(["a@x.org", "b@x.org, c@y.org"]), json!(null));
        check("body", json!(["a@x.org", "b@x.org, c@y.org"]), json!(null));
        check(
            "to",
            json!([["a@x.org"], ["b@x.org", "c@x.org"]]),
            json!({"each": {"pattern": {"domain": "x.org"}, "max_items": 2}}),
        );
        check("to", json!([["a@x.org"], ["b@y.org"]]), json!(null));
        check("to", json!([[], []]), json!({"equal": []}));
        check("to", json!([["a@x.org"], []]), json!(null));
    }

    #[test]
    fn urls_share_an_origin() {
        check("url", json!(["https://x.org/a", "https://x.org/b"]), json!({"origin": "https://x.org"}));
        check("url", json!(["https://x.org/a", "https://y.org/b"]), json!(null));
        check("url", json!(["https://x.org/a", "http://x.org/b"]), json!(null));
        check("url", json!(["https://x.org/a", "https://x.org@y.org/b"]), json!(null));
        check("url", json!(["s3://x/a-1", "s3://x/a-2"]), json!(null));
    }

    #[test]
    fn paths_share_a_directory() {
        check("path", json!(["/work/out/a", "/work/out/b c"]), json!({"within": "/work/out"}));
        check("path", json!(["out/a", "out/b"]), json!({"within": "out"}));
        check("path", json!(["/a", "/b"]), json!(null));
        check("path", json!(["/home/me/a", "/home/me/b"]), json!(null));
        check("path", json!(["/work/out/a", "/work/out/../b"]), json!(null));
        check("path", json!(["/work/out/a", "work/out/b"]), json!(null));
        check("path", json!(["a.txt", "b.txt"]), json!(null));
    }

    #[test]
    fn numbers_have_bounds_and_counters_go_on() {
        check("amount", json!([5, 7, 3, 9]), json!({"between": {"min": 3, "max": 9}}));
        check("amount", json!([0.5, 2, 1.5]), json!({"between": {"min": 0.5, "max": 2}}));
        check("id", json!([1, 2, 3, 4]), json!({"between": {"min": 1, "max": 53}}));
        check("id", json!([4, 3, 2]), json!({"between": {"min": -47, "max": 4}}));
        check("id", json!([1, 3, 5]), json!({"between": {"min": 1, "max": 5}}));
        check(
            "id",
            json!([i64::MAX - 1, i64::MAX]),
            json!({"between": {"min": i64::MAX - 1, "max": i64::MAX}}),
        );
        check("id", json!([1, true]), json!(null));
        check("id", json!([1, "2"]), json!(null));
        check("on", json!([true, false]), json!(null));
        check("on", json!([null, 1]), json!(null));
        check("on", json!([{"a": 1}, {"a": 2}]), json!(null));
    }

    #[test]
    fn prose_has_a_length() {
        check("body", json!(["Dear Ann", "Dear Bo, hi"]), json!({"text": {"max_chars": 22}}));
        check("body", json!(["", "Dear Bo"]), json!({"text": {"max_chars": 14}}));
        check("body", json!(["and/or this", "see https://x.org"]), json!({"text": {"max_chars": 34}}));
        for name in ["command", "sqlQuery", "shell-script", "userId", "to", "filePath"] {
            check(name, json!(["echo one", "echo two"]), json!(null));
        }
        check("body", json!(["/bin/rm x", "echo a b"]), json!(null));
        check("body", json!(["one", "two"]), json!(null));
        check("body", json!([["one two"], ["three four"]]), json!(null));
        check("body", json!(["x ".repeat(5_001), "y"]), json!(null));
    }

    #[test]
    fn names_share_a_prefix_up_to_a_boundary() {
        check("branch", json!(["issue-12", "issue-13"]), json!({"prefix": "issue-"}));
        check("key", json!(["logs.2024-01", "logs.2024-02"]), json!({"prefix": "logs.2024-"}));
        check("name", json!(["ab-1", "ab-2"]), json!(null));
        check("name", json!(["task1", "task2"]), json!(null));
        check("name", json!(["ann", "bob"]), json!(null));
        check("name", json!(["issue-", "issue-1"]), json!(null));
        check("name", json!(["issue-1;ls", "issue-2"]), json!(null));
        check("name", json!(["--x-a", "--y-a"]), json!(null));
        check("name", json!(["\u{456}ssue-1", "\u{456}ssue-2"]), json!(null));
    }

    #[test]
    fn calls_with_other_arguments_have_nothing_in_common() {
        let calls = [action("send", json!({"a": 1})), action("send", json!({"b": 1}))];
        assert_eq!(propose(&calls.iter().collect::<Vec<_>>()), None);
        let calls = [action("send", json!({"a": 1})), action("send", json!({"a": 1, "b": 1}))];
        assert_eq!(propose(&calls.iter().collect::<Vec<_>>()), None);
    }

    #[test]
    fn what_is_ipyboxs_own_is_never_proposed() {
        let call =
            Action { server_name: "ipybox".to_owned(), ..action("install_package", json!({"package": "x"})) };
        assert_eq!(propose(&[&call, &call, &call, &call]), None);
    }

    #[test]
    fn a_proposal_that_nobody_would_read_is_none() {
        let many: serde_json::Map<_, _> =
            (0..190).map(|number| (format!("argument_{number}"), json!("x".repeat(50)))).collect();
        let call = action("send", Value::Object(many));
        assert_eq!(propose(&[&call, &call]), None);
    }
}
