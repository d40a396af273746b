//! Patterns of argument values. What a pattern does not surely cover is outside of it.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::address::{domain_of, is_domain, origin_of};
use super::path::PlainPath;
use crate::approval::action::as_python;
use crate::approval::policy::compare_numbers;
use crate::ground::text::visible::{PythonLiteral, TextUse};

/// The most characters that may follow a prefix.
const AFTER_PREFIX: usize = 100;

/// The greatest length of texts that a pattern shows or covers, in characters.
const MOST_CHARS: usize = 1_000_000;

/// The number of characters of a fixed text that are shown.
const SHOWN_CHARS: usize = 200;

/// The number of characters that are shown of a fixed value, which may be a long list.
const MOST_SHOWN: usize = 5_000;

/// The values that an argument may have in the calls of a [`Grant`](crate::Grant).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum GrantPattern {
    /// This value alone. Numbers are equal if they are written in the same way: `1` is not `1.0`.
    Equal(Value),
    /// Texts that begin so, and end with at least one and at most 100 ASCII letters, digits, `-`, `_`, `.`, `:` or `#`, the
    /// first of them no `.`, and without `..`.
    Prefix(String),
    /// Mail addresses at exactly this domain: one address, without a name, comments or quotes, in ASCII.
    Domain(String),
    /// `http` or `https` URLs with exactly this scheme, host and port: `https://example.com`. The rest may be anything.
    Origin(String),
    /// Paths below this directory, by their text: absolute ones below an absolute one, relative ones below a relative one.
    /// Paths with `..`, `.`, empty components, backslashes, and all that a shell or a URL gives a meaning are not. The
    /// server resolves links.
    Within(String),
    /// Numbers from `min` to `max`, compared by value.
    Between {
        /// The least.
        min: Number,
        /// The largest.
        max: Number,
    },
    /// Any text of at most so many characters.
    Text {
        /// The most characters that a text may have.
        max_chars: usize,
    },
    /// Any value at all.
    Any {},
    /// Lists of one to `max_items` items, all of which `pattern` covers. It is no `Each` itself.
    Each {
        /// The pattern of the items.
        pattern: Box<GrantPattern>,
        /// The most items that there may be.
        max_items: usize,
    },
}

impl GrantPattern {
    /// Why this is no pattern.
    pub(super) fn fault(&self) -> Option<String> {
        let fault = match self {
            Self::Prefix(prefix) => match prefix.split_once("://") {
                _ if prefix.is_empty() => "a prefix is empty",
                _ if prefix.contains(['@', '\\', '\0']) || prefix.contains("..") => {
                    "a prefix has `@`, a backslash or `..`"
                }
                // `https://a.org` would be a prefix of `https://a.org-b.net`.
                Some((_, rest)) if !rest.contains('/') => "a prefix ends within the host of a URL",
                _ => return None,
            },
            Self::Domain(domain) if !is_domain(domain) => "a domain is none",
            Self::Origin(origin) if origin_of(origin).as_ref() != Some(origin) => {
                "an origin is none, or not written as `https://example.com`"
            }
            Self::Within(directory) if PlainPath::read(directory).is_none() => {
                "a directory is none, is `/`, ends with a slash, or has components that are not plain"
            }
            Self::Between { min, max } => match compare_numbers(min, max) {
                Some(Ordering::Less | Ordering::Equal) => return None,
                _ => "the least number is larger than the largest",
            },
            Self::Text { max_chars } if *max_chars > MOST_CHARS => "a text is longer than 1000000 characters",
            Self::Each { pattern, .. } if matches!(**pattern, Self::Each { .. }) => "a list is in a list",
            Self::Each { max_items: 0, .. } => "a list has no items",
            Self::Each { pattern, .. } => return pattern.fault(),
            _ => return None,
        };
        Some(fault.to_owned())
    }

    /// Whether this covers `value`.
    pub(super) fn covers(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Equal(fixed), _) => fixed == value,
            (Self::Any {}, _) => true,
            (Self::Prefix(prefix), Value::String(text)) => {
                text.strip_prefix(prefix.as_str()).is_some_and(may_follow_prefix)
            }
            (Self::Domain(domain), Value::String(text)) => {
                domain_of(text).is_some_and(|found| found.eq_ignore_ascii_case(domain))
            }
            (Self::Origin(origin), Value::String(text)) => {
                origin_of(text).is_some_and(|found| found == *origin)
            }
            (Self::Within(directory), Value::String(text)) => {
                match (PlainPath::read(directory), PlainPath::read(text)) {
                    (Some(directory), Some(path)) => path.is_below(&directory),
                    _ => false,
                }
            }
            (Self::Between { min, max }, Value::Number(number)) => {
                let is_in_order = |less, more| {
                    matches!(compare_numbers(less, more), Some(Ordering::Less | Ordering::Equal))
                };
                is_in_order(min, number) && is_in_order(number, max)
            }
            (Self::Text { max_chars }, Value::String(text)) => text.chars().nth(*max_chars).is_none(),
            (Self::Each { pattern, max_items }, Value::Array(items)) => {
                (1..=*max_items).contains(&items.len()) && items.iter().all(|item| pattern.covers(item))
            }
            _ => false,
        }
    }
}

/// The values as a question shows them: a fixed value as in a call, or words in `<>`, which no value is shown in.
impl std::fmt::Display for GrantPattern {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal(value) => formatter.write_str(&as_python::value(value, SHOWN_CHARS, MOST_SHOWN)),
            _ => write!(formatter, "<{}>", self.words()),
        }
    }
}

impl GrantPattern {
    /// Whether its words show all of a fixed value.
    pub(super) fn is_shown_whole(&self) -> bool {
        match self {
            Self::Equal(value) => as_python::value(value, usize::MAX, MOST_SHOWN) == self.words(),
            _ => true,
        }
    }

    /// The values in words.
    pub(super) fn words(&self) -> String {
        let literal = |text: &str| PythonLiteral(text, TextUse::Code).to_string();
        match self {
            Self::Equal(value) => as_python::value(value, SHOWN_CHARS, MOST_SHOWN),
            Self::Prefix(prefix) => format!("{} and up to {AFTER_PREFIX} letters or digits", literal(prefix)),
            Self::Domain(domain) => format!("an address at {domain}"),
            Self::Origin(origin) => format!("a URL at {origin}"),
            Self::Within(directory) => format!("a path within {}", literal(directory)),
            Self::Between { min, max } => format!("a number from {min} to {max}"),
            Self::Any {} => "any value".to_owned(),
            Self::Text { max_chars } => format!("any text of up to {max_chars} characters"),
            Self::Each { pattern, max_items } => format!("up to {max_items} times {}", pattern.words()),
        }
    }
}

fn may_follow_prefix(rest: &str) -> bool {
    (1..=AFTER_PREFIX).contains(&rest.len())
        && rest.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:#".contains(c))
        && !rest.starts_with('.')
        && !rest.contains("..")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `values` are JSON texts, since their spelling matters.
    #[track_caller]
    fn check(pattern: &Value, covered: &[&str], outside: &[&str]) {
        let pattern: GrantPattern = serde_json::from_value(pattern.clone()).unwrap();
        assert_eq!(pattern.fault(), None);
        for (texts, expected) in [(covered, true), (outside, false)] {
            for text in texts {
                let value: Value = serde_json::from_str(text).unwrap();
                assert_eq!(pattern.covers(&value), expected, "{pattern} {text}");
            }
        }
    }

    #[test]
    fn a_fixed_value_is_that_value() {
        check(&json!({"equal": "a"}), &[r#""a""#, r#""\u0061""#], &[r#""A""#, r#""a ""#, r#"["a"]"#, "null"]);
        check(&json!({"equal": 1}), &["1"], &["1.0", "1e0", "true", r#""1""#, "-1"]);
        check(&json!({"equal": "é"}), &[r#""\u00e9""#], &[r#""e\u0301""#]);
        check(
            &json!({"equal": {"a": {"b": 1}, "c": 2}}),
            &[r#"{"c": 2, "a": {"b": 1}}"#],
            &[
                r#"{"a": {"b": 1}}"#,
                r#"{"a": {"b": 1}, "c": 2, "d": 3}"#,
                r#"{"a": {"b": 2}, "c": 2}"#,
                r#"{"a": {"b": 1}, "c": 2, "c": 3}"#,
            ],
        );
        check(&json!({"equal": null}), &["null"], &["false", "0", r#""""#, "[]"]);
    }

    #[test]
    fn a_prefix_has_few_words_behind_it() {
        check(
            &json!({"prefix": "issue-"}),
            &[r#""issue-1""#, r#""issue-a_b.c:d#e""#],
            &[
                r#""issue-""#,
                r#""issue""#,
                r#""Issue-1""#,
                r#""issue-1 2""#,
                r#""issue-1/2""#,
                r#""issue-1;ls""#,
                r#""issue-..""#,
                r#""issue-.a""#,
                r#""issue-a..b""#,
                r#""issue-1\n""#,
                r#""issue-\u0430""#,
                r#""issue-%2e""#,
                r#"["issue-1"]"#,
            ],
        );
        check(
            &json!({"prefix": "s3://a/b/"}),
            &[r#""s3://a/b/c.txt""#],
            &[r#""s3://a/b/../c""#, r#""s3://a/c""#],
        );
    }

    #[test]
    fn addresses_are_at_one_domain() {
        check(
            &json!({"domain": "example.com"}),
            &[r#""a@example.com""#, r#""a@EXAMPLE.com""#],
            &[
                r#""a@mail.example.com""#,
                r#""a@example.com.evil.org""#,
                r#""a@notexample.com""#,
                r#""a@example.com,b@evil.org""#,
                r#"["a@example.com"]"#,
                r#"{"email": "a@example.com"}"#,
            ],
        );
        check(
            &json!({"origin": "https://example.com"}),
            &[r#""https://example.com/a""#],
            &[
                r#""https://example.com:8443/a""#,
                r#""http://example.com/a""#,
                r#""https://www.example.com/a""#,
                r#""https://example.com.evil.org/a""#,
            ],
        );
    }

    #[test]
    fn paths_are_within_a_directory() {
        check(
            &json!({"within": "/work/out"}),
            &[r#""/work/out/a.txt""#, r#""\/work\/out\/a""#],
            &[
                r#""/work/out2/a""#,
                r#""/work/out/../a""#,
                r#""\/work\/out\/\u002e\u002e\/a""#,
                r#"["/work/out/a"]"#,
            ],
        );
    }

    #[test]
    fn numbers_are_within_bounds() {
        check(
            &json!({"between": {"min": 1, "max": 10}}),
            &["1", "10", "1.0", "1e1", "9.99", "5"],
            &["0", "11", "0.999", "10.000001", "1e2", "true", r#""5""#, "[5]", "null", "-5"],
        );
        check(
            &json!({"between": {"min": 0, "max": 9_007_199_254_740_992u64}}),
            &["9007199254740992"],
            &["9007199254740993", "18446744073709551616"],
        );
    }

    #[test]
    fn texts_have_a_length() {
        check(
            &json!({"text": {"max_chars": 3}}),
            &[r#""""#, r#""äöü""#, r#""a\nb""#],
            &[r#""abcd""#, "1", "null"],
        );
    }

    #[test]
    fn all_items_of_a_list_are_covered() {
        let pattern = json!({"each": {"pattern": {"domain": "a.org"}, "max_items": 2}});
        check(
            &pattern,
            &[r#"["x@a.org"]"#, r#"["x@a.org", "y@a.org"]"#],
            &[
                "[]",
                r#""x@a.org""#,
                r#"["x@a.org", "y@b.org"]"#,
                r#"["x@a.org", ["y@a.org"]]"#,
                r#"["x@a.org", "y@a.org", "z@a.org"]"#,
                r#"{"0": "x@a.org"}"#,
            ],
        );
    }

    #[test]
    fn what_has_no_meaning_is_no_pattern() {
        for pattern in [
            json!({"prefix": ""}),
            json!({"prefix": "https://a.org"}),
            json!({"prefix": "a@"}),
            json!({"prefix": "a/../"}),
            json!({"domain": "org"}),
            json!({"domain": "a@b.org"}),
            json!({"domain": "*.b.org"}),
            json!({"origin": "https://a.org/"}),
            json!({"origin": "https://A.org"}),
            json!({"origin": "https://a.org:443"}),
            json!({"within": "/"}),
            json!({"within": ""}),
            json!({"within": "/a/"}),
            json!({"within": "/a/../b"}),
            json!({"between": {"min": 2, "max": 1}}),
            json!({"text": {"max_chars": 1_000_001}}),
            json!({"each": {"pattern": {"equal": 1}, "max_items": 0}}),
            json!({"each": {"pattern": {"domain": ""}, "max_items": 1}}),
            json!({"each": {"pattern": {"each": {"pattern": {"equal": 1}, "max_items": 1}}, "max_items": 1}}),
        ] {
            let read: GrantPattern = serde_json::from_value(pattern.clone()).unwrap();
            assert!(read.fault().is_some(), "{pattern}");
        }
        for json in
            [json!({"between": {"min": 1}}), json!({"text": {"max_chars": 1, "x": 2}}), json!({"any": 1})]
        {
            assert!(serde_json::from_value::<GrantPattern>(json.clone()).is_err(), "{json}");
        }
    }
}
