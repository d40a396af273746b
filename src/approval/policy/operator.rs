//! Operators that compare an argument with values.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::glob::RuleGlobs;
use super::verdict::RuleVerdict;
use super::{number, text};

/// A comparison with a value that exists.
#[derive(Debug, Clone)]
pub(super) enum ValueOperator {
    /// It is one of these.
    OneOf(Vec<Value>),
    /// It is a text that one of the globs matches.
    Glob(RuleGlobs),
    /// It is a number in this order to the limit.
    Number(LimitOrder, Number),
}

/// The order of a number to a limit.
#[derive(Debug, Clone, Copy)]
pub(super) enum LimitOrder {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// The program that interprets a text that a glob is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextReader {
    /// A shell, which may expand the text.
    Shell,
    /// A tool, for which it may be a path or a URL.
    Tool,
}

impl ValueOperator {
    /// Whether the operator holds for `value`. A value of another type, such as a text for a number, leaves
    /// doubt, since the tool may convert it; `null` never does.
    pub(super) fn judge(&self, value: &Value, reader: TextReader) -> RuleVerdict {
        match (self, value) {
            (Self::OneOf(allowed), _) => is_one_of(value, allowed),
            (_, Value::Null) => RuleVerdict::Fails,
            (Self::Glob(globs), Value::String(text)) => is_like(text, globs, reader),
            (Self::Number(order, limit), Value::Number(number)) => number::compare(number, limit)
                .map_or(RuleVerdict::InDoubt, |ordering| RuleVerdict::of(order.holds(ordering))),
            _ => RuleVerdict::InDoubt,
        }
    }
}

impl LimitOrder {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::AtMost => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::AtLeast => ordering.is_ge(),
        }
    }
}

fn is_one_of(value: &Value, allowed: &[Value]) -> RuleVerdict {
    if allowed.iter().any(|allowed| is_same(value, allowed)) {
        return RuleVerdict::Holds;
    }
    let is_comparable = value.is_null() || allowed.iter().any(|allowed| is_same_type(value, allowed));
    if is_comparable { RuleVerdict::Fails } else { RuleVerdict::InDoubt }
}

fn is_like(value: &str, globs: &RuleGlobs, reader: TextReader) -> RuleVerdict {
    match reader {
        TextReader::Shell if text::is_plain_command(value) => RuleVerdict::of(globs.is_match(value)),
        TextReader::Shell => RuleVerdict::InDoubt,
        TextReader::Tool => {
            text::plain(value).map_or(RuleVerdict::InDoubt, |plain| RuleVerdict::of(globs.is_match(&plain)))
        }
    }
}

fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => number::compare(left, right) == Some(Ordering::Equal),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let has_same =
                |(key, left): (&String, &Value)| right.get(key).is_some_and(|right| is_same(left, right));
            left.len() == right.len() && left.iter().all(has_same)
        }
        _ => left == right,
    }
}

fn is_same_type(left: &Value, right: &Value) -> bool {
    std::mem::discriminant(left) == std::mem::discriminant(right)
}
