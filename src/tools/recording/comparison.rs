//! Compares what a recording has with what a replay has given, by named rules for what no run gives twice. Pure.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::line::{CellItem, RecordedFailure};
use crate::ground::text::line_diff;

/// The lines of a difference that are shown.
const DIFF_LINES: usize = 20;

/// A rule by which two texts can be the same. Its name is in reports.
struct ComparisonRule {
    name: &'static str,
    /// Its effect, for people.
    words: &'static str,
    pattern: &'static str,
    replacement: &'static str,
}

/// The rules, in the order in which they are tried.
const RULES: [ComparisonRule; 6] = [
    ComparisonRule {
        name: "temporary",
        words: "names of directories for temporary files, as `ipybox-…` and `/tmp…`, are the same",
        pattern: "ipybox-[0-9A-Za-z]{8}|/tmp[0-9a-z_]{8}",
        replacement: "/tmp…",
    },
    ComparisonRule {
        name: "addresses",
        words: "addresses of objects, as `0x7f…`, are the same",
        pattern: "0x[0-9a-fA-F]{6,16}",
        replacement: "0x…",
    },
    ComparisonRule {
        name: "uuids",
        words: "UUIDs are the same",
        pattern: "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
        replacement: "<uuid>",
    },
    ComparisonRule {
        name: "times",
        words: "times of day, with or without a date, and seconds since 1970 with a fraction are the same",
        pattern: r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ])?[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?|1[0-9]{9}\.[0-9]+",
        replacement: "<time>",
    },
    ComparisonRule {
        name: "durations",
        words: "numbers before `ns`, `µs`, `us` and `ms`, and those with a fraction before `s`, are the same",
        pattern: r"[0-9]+(\.[0-9]+)? ?(ns|µs|us|ms)|[0-9]+\.[0-9]+ ?(seconds|sec|s)",
        replacement: "<duration>",
    },
    ComparisonRule {
        name: "sets",
        words: "the items of a set, as `{a, b}`, have no order",
        pattern: "",
        replacement: "",
    },
];

/// The names of the rules, with what they do.
pub(crate) fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    RULES.iter().map(|rule| (rule.name, rule.words))
}

static PATTERNS: LazyLock<Vec<Option<Regex>>> = LazyLock::new(|| {
    let compiled =
        |rule: &ComparisonRule| (!rule.pattern.is_empty()).then(|| Regex::new(rule.pattern).ok()).flatten();
    RULES.iter().map(compiled).collect()
});

static SETS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{([^{}:]*, [^{}:]*)\}").ok());

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OutputLikeness {
    Same,
    /// By these rules.
    ByRules(BTreeSet<&'static str>),
    Different,
}

impl OutputLikeness {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Different, _) | (_, Self::Different) => Self::Different,
            (Self::Same, other) | (other, Self::Same) => other,
            (Self::ByRules(mut rules), Self::ByRules(others)) => {
                rules.extend(others);
                Self::ByRules(rules)
            }
        }
    }

    pub(super) fn all(parts: impl Iterator<Item = Self>) -> Self {
        parts.fold(Self::Same, Self::and)
    }
}

/// Compares two texts.
pub(crate) fn texts(recorded: &str, given: &str) -> OutputLikeness {
    if recorded == given {
        return OutputLikeness::Same;
    }
    let mut recorded = Cow::Borrowed(recorded);
    let mut given = Cow::Borrowed(given);
    let mut rules = BTreeSet::new();
    for (rule, pattern) in RULES.iter().zip(PATTERNS.iter()) {
        let applied = |text: &str| match pattern {
            Some(pattern) => pattern.replace_all(text, rule.replacement).into_owned(),
            None => sorted_sets(text),
        };
        let of_recorded = applied(&recorded);
        let of_given = applied(&given);
        if (of_recorded != recorded || of_given != given) && recorded != given {
            // It counts if it brings the two nearer.
            if of_recorded == of_given || distance(&of_recorded, &of_given) < distance(&recorded, &given) {
                rules.insert(rule.name);
            }
            (recorded, given) = (Cow::Owned(of_recorded), Cow::Owned(of_given));
        }
    }
    if recorded == given { OutputLikeness::ByRules(rules) } else { OutputLikeness::Different }
}

/// The number of bytes after those that two texts begin with alike.
fn distance(one: &str, other: &str) -> usize {
    let alike = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    one.len().max(other.len()) - alike
}

fn sorted_sets(text: &str) -> String {
    let Some(pattern) = SETS.as_ref() else { return text.to_owned() };
    let sorted = pattern.replace_all(text, |found: &regex::Captures<'_>| {
        let mut items: Vec<&str> = found[1].split(", ").collect();
        items.sort_unstable();
        format!("{{{}}}", items.join(", "))
    });
    sorted.into_owned()
}

/// Compares two values of JSON.
pub(crate) fn values(recorded: &Value, given: &Value) -> OutputLikeness {
    match (recorded, given) {
        (Value::String(recorded), Value::String(given)) => texts(recorded, given),
        (Value::Array(recorded), Value::Array(given)) if recorded.len() == given.len() => {
            OutputLikeness::all(recorded.iter().zip(given).map(|(recorded, given)| values(recorded, given)))
        }
        (Value::Object(recorded), Value::Object(given)) if recorded.len() == given.len() => {
            let member = |(name, recorded): (&String, &Value)| match given.get(name) {
                Some(given) => values(recorded, given),
                None => OutputLikeness::Different,
            };
            OutputLikeness::all(recorded.iter().map(member))
        }
        (recorded, given) if recorded == given => OutputLikeness::Same,
        _ => OutputLikeness::Different,
    }
}

/// Compares the outputs of a cell.
pub(crate) fn outputs(recorded: &[CellItem], given: &[CellItem]) -> OutputLikeness {
    if recorded.len() != given.len() {
        return OutputLikeness::Different;
    }
    OutputLikeness::all(recorded.iter().zip(given).map(|pair| match pair {
        (CellItem::Text(recorded), CellItem::Text(given)) => texts(recorded, given),
        (CellItem::Data(recorded), CellItem::Data(given)) => {
            if recorded.keys().eq(given.keys()) {
                let pairs = recorded.iter().zip(given.values());
                OutputLikeness::all(
                    pairs.map(|((kind, recorded), given)| representations(kind, recorded, given)),
                )
            } else {
                OutputLikeness::Different
            }
        }
        (CellItem::Error(recorded), CellItem::Error(given)) => failures(recorded, given),
        _ => OutputLikeness::Different,
    }))
}

/// Compares two representations of a kind: those of JSON by their values.
fn representations(kind: &str, recorded: &Value, given: &Value) -> OutputLikeness {
    let is_json = kind == "application/json" || kind.ends_with("+json");
    let parsed = |value: &Value| serde_json::from_str::<Value>(value.as_str().filter(|_| is_json)?).ok();
    match (parsed(recorded), parsed(given)) {
        (Some(recorded), Some(given)) => values(&recorded, &given),
        _ => values(recorded, given),
    }
}

fn failures(recorded: &RecordedFailure, given: &RecordedFailure) -> OutputLikeness {
    if recorded.name != given.name {
        return OutputLikeness::Different;
    }
    let value = texts(&recorded.value, &given.value);
    value.and(texts(&recorded.traceback.join("\n"), &given.traceback.join("\n")))
}

/// The lines in which two texts differ, shortened, with `-` before those of the recording and `+` before the new ones.
pub(crate) fn diff(recorded: &str, given: &str) -> Vec<String> {
    line_diff(recorded, given, DIFF_LINES)
}

/// Outputs as a text to be compared by people.
pub(crate) fn shown(outputs: &[CellItem]) -> String {
    let item = |item: &CellItem| match item {
        CellItem::Text(text) => format!("{}\n", text.trim_end_matches('\n')),
        CellItem::Data(data) => {
            let lines = data.iter().map(|(kind, value)| match value {
                Value::String(text) => format!("{kind}: {text}\n"),
                value => format!("{kind}: {value}\n"),
            });
            lines.collect()
        }
        CellItem::Error(RecordedFailure { traceback, .. }) => format!("{}\n", traceback.join("\n")),
    };
    outputs.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(recorded: &str, given: &str, expected: &[&'static str]) {
        assert_eq!(
            texts(recorded, given),
            OutputLikeness::ByRules(expected.iter().copied().collect()),
            "{recorded} {given}"
        );
    }

    #[track_caller]
    fn check_different(recorded: &str, given: &str) {
        assert_eq!(texts(recorded, given), OutputLikeness::Different, "{recorded} {given}");
    }

    #[test]
    fn all_patterns_are_valid() {
        let patterns = PATTERNS.iter().filter(|pattern| pattern.is_some()).count();
        assert!(patterns == RULES.len() - 1 && SETS.is_some());
    }

    #[test]
    fn what_no_run_gives_twice_is_the_same_by_rules_that_are_named() {
        assert_eq!(texts("a", "a"), OutputLikeness::Same);
        check("in /t/ipybox-UnJPRQUq/w", "in /t/ipybox-EY0DDKRP/w", &["temporary"]);
        check("<A at 0x7f12ab34cd56>", "<A at 0x7f98ab34cd00>", &["addresses"]);
        check("at 2026-01-02T03:04:05.678Z", "at 2027-01-02T03:04:06Z", &["times"]);
        check("1767323045.123", "1767323046.5", &["times"]);
        check("Wall time: 13.2 ms", "Wall time: 2 ms", &["durations"]);
        check("took 1.25 s", "took 0.5 s", &["durations"]);
        check("{<A>, 'b', 1}", "{1, <A>, 'b'}", &["sets"]);
        check(
            "0d9a2d3a-1111-4222-8333-444455556666 in 3 ms",
            "ffffffff-1111-4222-8333-444455556666 in 5 ms",
            &["durations", "uuids"],
        );
    }

    #[test]
    fn what_differs_differs() {
        check_different("total 5", "total 6");
        check_different("slept 2 s", "slept 3 s");
        check_different("{1, 2}", "{1, 3}");
        check_different("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}");
        check_different("0x1f", "0x2f");
        check_different("at 10:00:00 one", "at 10:00:01 two");
        assert_eq!(
            values(&json!({"a": [1, "10:00:00"]}), &json!({"a": [1, "11:00:00"]})),
            OutputLikeness::ByRules(["times"].into())
        );
        assert_eq!(values(&json!({"a": 1}), &json!({"a": 1, "b": 2})), OutputLikeness::Different);
    }

    #[test]
    fn differences_are_shown_in_short_lines_without_escapes() {
        let many: String = (0..100).map(|number| format!("{number}\n")).collect();
        let shown = diff("same\n\u{1b}[31mold\n", &format!("same\n{many}"));
        assert!(shown[0].starts_with("- ") && !shown.concat().contains('\u{1b}'), "{shown:?}");
        assert!(shown.len() == DIFF_LINES + 1, "{shown:?}");
    }
}
