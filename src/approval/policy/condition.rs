//! A condition on one argument of an action.

use serde::Deserialize;
use serde_json::{Map, Number, Value};

use super::glob::{self, RuleGlobs};
use super::operator::{LimitOrder, TextReader, ValueOperator};
use super::verdict::RuleVerdict;

/// A path in the arguments and a condition on the value there.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "ConditionEntry")]
pub(super) struct RuleCondition {
    place: Vec<String>,
    test: ValueTest,
}

#[derive(Debug, Clone)]
enum ValueTest {
    /// Whether a value exists there.
    Present(bool),
    /// A value exists for which the operator holds.
    Is(ValueOperator),
    /// A value exists for which the operator fails.
    IsNot(ValueOperator),
}

/// A condition as the file contains it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionEntry {
    pointer: String,
    #[serde(default)]
    not: bool,
    equals: Option<toml::Value>,
    one_of: Option<Vec<toml::Value>>,
    #[serde(default, deserialize_with = "glob::arguments")]
    glob: Option<RuleGlobs>,
    less_than: Option<toml::Value>,
    at_most: Option<toml::Value>,
    greater_than: Option<toml::Value>,
    at_least: Option<toml::Value>,
    present: Option<bool>,
}

/// Why an entry is no condition.
#[derive(Debug, thiserror::Error)]
enum ConditionError {
    #[error(
        "`pointer = {0:?}` is no JSON pointer to an argument: it begins with `/`, and `~` is written `~0`, `/` in a name `~1`"
    )]
    Pointer(String),
    #[error("the condition on `{0}` has no operator; give one of {OPERATORS}")]
    NoOperator(String),
    #[error("the condition on `{0}` has more than one operator; write a condition for each")]
    Operators(String),
    #[error(
        "the condition on `{0}` has `not` beside `present`; write `present = true` or `present = false` alone"
    )]
    NotPresent(String),
    #[error("`one_of` is empty and matches nothing")]
    NoChoice,
    #[error("`{key} = {value}` is no number")]
    NoNumber { key: &'static str, value: String },
    #[error("{0} has no counterpart in JSON; write what the tool is given")]
    NotInJson(String),
}

const OPERATORS: &str =
    "`equals`, `one_of`, `glob`, `less_than`, `at_most`, `greater_than`, `at_least` and `present`";

impl RuleCondition {
    /// Whether the condition holds for `arguments`. A missing value fails it, negated or not, except for
    /// `present = false`.
    pub(super) fn judge(&self, arguments: &Map<String, Value>, reader: TextReader) -> RuleVerdict {
        match (find(&self.place, arguments), &self.test) {
            (found, ValueTest::Present(present)) => RuleVerdict::of(found.is_some() == *present),
            (None, _) => RuleVerdict::Fails,
            (Some(value), ValueTest::Is(operator)) => operator.judge(value, reader),
            (Some(value), ValueTest::IsNot(operator)) => operator.judge(value, reader).negated(),
        }
    }
}

impl TryFrom<ConditionEntry> for RuleCondition {
    type Error = ConditionError;

    fn try_from(entry: ConditionEntry) -> Result<Self, ConditionError> {
        let ConditionEntry {
            pointer,
            not,
            equals,
            one_of,
            glob,
            less_than,
            at_most,
            greater_than,
            at_least,
            present,
        } = entry;
        let place = place(&pointer).ok_or_else(|| ConditionError::Pointer(pointer.clone()))?;
        let limit = |key, order, value: Option<toml::Value>| {
            value
                .map(|value| number(key, &value).map(|number| ValueOperator::Number(order, number)))
                .transpose()
        };
        let given = [
            equals.map(|value| Ok(ValueOperator::OneOf(vec![json(value)?]))).transpose()?,
            one_of.map(choice).transpose()?,
            glob.map(ValueOperator::Glob),
            limit("less_than", LimitOrder::Less, less_than)?,
            limit("at_most", LimitOrder::AtMost, at_most)?,
            limit("greater_than", LimitOrder::Greater, greater_than)?,
            limit("at_least", LimitOrder::AtLeast, at_least)?,
        ];
        let mut operators = given.into_iter().flatten();
        let test = match (operators.next(), present) {
            (None, None) => return Err(ConditionError::NoOperator(pointer)),
            (Some(_), Some(_)) => return Err(ConditionError::Operators(pointer)),
            (None, Some(_)) if not => return Err(ConditionError::NotPresent(pointer)),
            (None, Some(present)) => ValueTest::Present(present),
            (Some(operator), None) if not => ValueTest::IsNot(operator),
            (Some(operator), None) => ValueTest::Is(operator),
        };
        if operators.next().is_some() {
            return Err(ConditionError::Operators(pointer));
        }
        Ok(Self { place, test })
    }
}

/// The segments of a JSON `pointer` (RFC 6901). `""`, all arguments together, is refused.
fn place(pointer: &str) -> Option<Vec<String>> {
    let is_escaped = |name: &str| name.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    let names = pointer.strip_prefix('/')?.split('/');
    names.map(|name| is_escaped(name).then(|| name.replace("~1", "/").replace("~0", "~"))).collect()
}

fn find<'a>(place: &[String], arguments: &'a Map<String, Value>) -> Option<&'a Value> {
    let (first, rest) = place.split_first()?;
    rest.iter().try_fold(arguments.get(first)?, |value, name| match value {
        Value::Object(members) => members.get(name),
        Value::Array(items) => items.get(index(name)?),
        _ => None,
    })
}

/// RFC 6901 knows no leading zeros and no signs.
fn index(name: &str) -> Option<usize> {
    let is_index = name == "0" || (!name.starts_with(['0', '+']) && !name.is_empty());
    if is_index { name.parse().ok() } else { None }
}

fn choice(values: Vec<toml::Value>) -> Result<ValueOperator, ConditionError> {
    if values.is_empty() {
        return Err(ConditionError::NoChoice);
    }
    values.into_iter().map(json).collect::<Result<_, _>>().map(ValueOperator::OneOf)
}

fn number(key: &'static str, value: &toml::Value) -> Result<Number, ConditionError> {
    match value {
        toml::Value::Integer(integer) => Some(Number::from(*integer)),
        toml::Value::Float(float) => Number::from_f64(*float),
        _ => None,
    }
    .ok_or_else(|| ConditionError::NoNumber { key, value: written(value) })
}

fn json(value: toml::Value) -> Result<Value, ConditionError> {
    Ok(match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(integer) => Value::from(integer),
        toml::Value::Boolean(boolean) => Value::Bool(boolean),
        toml::Value::Array(items) => Value::Array(items.into_iter().map(json).collect::<Result<_, _>>()?),
        toml::Value::Table(members) => {
            let members = members.into_iter().map(|(key, value)| Ok((key, json(value)?)));
            Value::Object(members.collect::<Result<_, ConditionError>>()?)
        }
        toml::Value::Float(float) => {
            let number = Number::from_f64(float)
                .ok_or_else(|| ConditionError::NotInJson(format!("the number `{float}`")))?;
            Value::Number(number)
        }
        toml::Value::Datetime(time) => {
            return Err(ConditionError::NotInJson(format!("the date or time `{time}`")));
        }
    })
}

/// A scalar as the file may contain it; of other values, their type.
fn written(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Float(float) => float.to_string(),
        toml::Value::Boolean(boolean) => boolean.to_string(),
        other => format!("({})", other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::verdict::RuleVerdict::{self, Fails, Holds, InDoubt};
    use super::*;

    #[track_caller]
    fn judged(condition: &str, arguments: &Value, reader: TextReader, expected: RuleVerdict) {
        let condition: RuleCondition = toml::from_str(condition).unwrap();
        let verdict = condition.judge(arguments.as_object().unwrap(), reader);
        assert_eq!(verdict, expected, "{arguments}");
    }

    #[track_caller]
    fn check(condition: &str, value: Value, expected: RuleVerdict) {
        judged(&format!("pointer = '/a'\n{condition}"), &json!({"a": value}), TextReader::Tool, expected);
    }

    #[track_caller]
    fn found(pointer: &str, expected: Option<i64>) {
        let arguments = json!({"a": {"b": [10, 11], "": 3, "x/y": 4, "m~n": 5, "0": 6}, "c": null});
        let place = place(pointer).unwrap();
        let found = find(&place, arguments.as_object().unwrap());
        assert_eq!(found.and_then(Value::as_i64), expected, "{pointer}");
    }

    #[track_caller]
    fn refused(condition: &str, expected: &str) {
        let error = toml::from_str::<RuleCondition>(condition).unwrap_err();
        assert!(error.message().contains(expected), "{error}");
    }

    #[test]
    fn equals_compares_values() {
        check("equals = 'x'", json!("x"), Holds);
        check("equals = 'x'", json!("X"), Fails);
        check("equals = 1", json!(1.0), Holds);
        check("equals = 1.5", json!(1.5), Holds);
        check("equals = true", json!(false), Fails);
        check("equals = [1, 'a']", json!([1.0, "a"]), Holds);
        check("equals = [1, 'a']", json!([1]), Fails);
        check("equals = { k = 1 }", json!({"k": 1.0}), Holds);
        check("equals = { k = 1 }", json!({"k": 1, "l": 2}), Fails);
    }

    #[test]
    fn one_of_compares_with_each() {
        check("one_of = ['a', 'b']", json!("b"), Holds);
        check("one_of = ['a', 'b']", json!("c"), Fails);
        check("one_of = [1, 'b']", json!("c"), Fails);
    }

    #[test]
    fn limits_are_strict_or_not() {
        check("less_than = 5", json!(4.9), Holds);
        check("less_than = 5", json!(5), Fails);
        check("at_most = 5", json!(5.0), Holds);
        check("at_most = 5.5", json!(6), Fails);
        check("greater_than = -1", json!(0), Holds);
        check("greater_than = -1", json!(-1), Fails);
        check("at_least = -1", json!(-1), Holds);
        check("at_least = -1", json!(-1.5), Fails);
    }

    #[test]
    fn globs_see_the_plain_form() {
        check("glob = '/tmp/**'", json!("/tmp//./a"), Holds);
        check("glob = '/tmp/**'", json!("/tmpx/a"), Fails);
        check("glob = '/tmp/**'", json!("/tmp/../etc/passwd"), InDoubt);
        check("glob = '/tmp/**'", json!("/tmp/a/../b"), InDoubt);
        check("glob = ['a*', 'b*']", json!("bc"), Holds);
        check("glob = 'https://*.a.org/**'", json!("https://x.a.org/y"), Holds);
        check("glob = 'https://*.a.org/**'", json!("https://b.org?.a.org/y"), InDoubt);
    }

    #[test]
    fn shells_read_more_than_words() {
        let check = |command: &str, expected| {
            judged(
                "pointer = '/cmd'\nglob = 'git **'",
                &json!({"cmd": command}),
                TextReader::Shell,
                expected,
            );
        };
        check("git diff a/b", Holds);
        check("ls", Fails);
        check("git log; reboot", InDoubt);
        check("ls $(git log)", InDoubt);
    }

    #[test]
    fn another_type_leaves_doubt() {
        check("equals = true", json!("true"), InDoubt);
        check("one_of = [1, 2]", json!("1"), InDoubt);
        check("at_most = 5", json!("4"), InDoubt);
        check("at_most = 5\nnot = true", json!("4"), InDoubt);
        check("glob = '**'", json!(["a"]), InDoubt);
        check("equals = 1", json!([1]), InDoubt);
    }

    #[test]
    fn null_is_there_and_equals_nothing() {
        check("present = true", json!(null), Holds);
        check("equals = 1", json!(null), Fails);
        check("at_least = 0", json!(null), Fails);
        check("glob = '**'", json!(null), Fails);
        check("equals = 1\nnot = true", json!(null), Holds);
    }

    #[test]
    fn what_is_missing_fails_either_way() {
        let check = |condition: &str, expected| {
            judged(&format!("pointer = '/b'\n{condition}"), &json!({"a": 1}), TextReader::Tool, expected);
        };
        check("equals = 1", Fails);
        check("equals = 1\nnot = true", Fails);
        check("glob = '**'\nnot = true", Fails);
        check("present = true", Fails);
        check("present = false", Holds);
    }

    #[test]
    fn not_turns_the_answer() {
        check("not = true\nequals = 1", json!(2), Holds);
        check("not = true\nequals = 1", json!(1), Fails);
        check("not = false\nequals = 1", json!(1), Holds);
    }

    #[test]
    fn pointers_point_as_rfc_6901_says() {
        found("/a/b/0", Some(10));
        found("/a/b/1", Some(11));
        found("/a/b/2", None);
        found("/a/b/01", None);
        found("/a/b/+1", None);
        found("/a/b/-", None);
        found("/a/", Some(3));
        found("/a/x~1y", Some(4));
        found("/a/m~0n", Some(5));
        found("/a/0", Some(6));
        found("/c/d", None);
        found("/", None);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        refused("pointer = 'a'\nequals = 1", "`pointer = \"a\"` is no JSON pointer");
        refused("pointer = ''\nequals = 1", "begins with `/`");
        refused("pointer = '/a~2'\nequals = 1", "`~` is written `~0`");
        refused("pointer = '/a'", "has no operator; give one of `equals`");
        refused("pointer = '/a'\nequals = 1\nat_most = 2", "more than one operator");
        refused("pointer = '/a'\nequals = 1\npresent = true", "more than one operator");
        refused("pointer = '/a'\nnot = true\npresent = true", "`not` beside `present`");
        refused("pointer = '/a'\none_of = []", "`one_of` is empty");
        refused("pointer = '/a'\nat_most = '5'", "`at_most = \"5\"` is no number");
        refused("pointer = '/a'\nat_most = nan", "`at_most = NaN` is no number");
        refused("pointer = '/a'\nequals = 2026-01-01", "`2026-01-01` has no counterpart in JSON");
        refused("pointer = '/a'\nequal = 1", "unknown field `equal`, expected one of");
        refused("equals = 1", "missing field `pointer`");
    }
}
