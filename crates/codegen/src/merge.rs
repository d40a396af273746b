//! Two schemas that must both hold, as one: how `allOf`, and keywords beside `$ref` or `anyOf`, are read.

use std::cmp::Ordering;

use indexmap::IndexSet;
use serde_json::{Value, json};

use super::document::{ALSO, Schema};
use super::rules;

/// The schema that both `left` and `right` describe. Annotations (`description`, `default` …) are `right`'s where
/// both have them. `None` if no value could satisfy both.
///
/// `additionalProperties: false` in one of two parts is taken to speak of the properties of both, as authors mean it;
/// to the letter it would forbid what the other part declares.
pub(super) fn merge(left: &Schema, right: &Schema) -> Option<Schema> {
    if rules::any(left) && rules::any(right) {
        // `if` belongs to its own `then`: the rules of both stand side by side.
        let (right, apart) = rules::split(right);
        let mut merged = merge(left, &right)?;
        push(&mut merged, ALSO, Value::Object(apart));
        return Some(merged);
    }
    let mut merged = left.clone();
    for (keyword, value) in right {
        let Some(old) = merged.get(keyword) else {
            merged.insert(keyword.clone(), value.clone());
            continue;
        };
        let both = match keyword.as_str() {
            "properties" | "patternProperties" => merge_properties(old, value)?,
            "items" | "additionalProperties" | "additionalItems" | "propertyNames" => {
                merge_values(old, value)?
            }
            "required" => union(old, value),
            "type" => intersect_types(old, value)?,
            "enum" => intersect(old, value)?,
            "const" if !equal(old, value) => return None,
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                extreme(old, value, Ordering::Greater)
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                extreme(old, value, Ordering::Less)
            }
            "anyOf" | "oneOf" if old != value => {
                // Two unions cannot be one: the second is kept as a part that must hold as well.
                push(&mut merged, "allOf", json!({ keyword: value }));
                continue;
            }
            "pattern" | "multipleOf" if old != value => {
                push(&mut merged, ALSO, json!({ keyword: value }));
                continue;
            }
            ALSO | "allOf" => {
                let parts = value.as_array().cloned().unwrap_or_default();
                parts.into_iter().for_each(|part| push(&mut merged, keyword, part));
                continue;
            }
            _ => value.clone(),
        };
        merged.insert(keyword.clone(), both);
    }
    Some(merged)
}

/// [`merge`] for places that hold any schema, boolean ones included.
pub(super) fn merge_values(left: &Value, right: &Value) -> Option<Value> {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => merge(left, right).map(Value::Object),
        (Value::Bool(false), _) | (_, Value::Bool(false)) => Some(Value::Bool(false)),
        (Value::Bool(true), other) => Some(other.clone()),
        (other, _) => Some(other.clone()),
    }
}

/// JSON equality: `1` and `1.0` are equal, `1` and `true` are not.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, left)| right.get(key).is_some_and(|right| equal(left, right)))
        }
        _ => left == right,
    }
}

/// Adds `part` to the list of schemas under `keyword`.
fn push(merged: &mut Schema, keyword: &str, part: Value) {
    match merged.get_mut(keyword) {
        Some(Value::Array(parts)) => parts.push(part),
        _ => {
            merged.insert(keyword.to_owned(), Value::Array(vec![part]));
        }
    }
}

fn merge_properties(left: &Value, right: &Value) -> Option<Value> {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return Some(right.clone()) };
    let mut merged = left.clone();
    for (name, schema) in right {
        let both = match left.get(name) {
            // A property that cannot hold may still be absent.
            Some(old) => merge_values(old, schema).unwrap_or(Value::Bool(false)),
            None => schema.clone(),
        };
        merged.insert(name.clone(), both);
    }
    Some(Value::Object(merged))
}

fn union(left: &Value, right: &Value) -> Value {
    let mut names = left.as_array().cloned().unwrap_or_default();
    for name in right.as_array().into_iter().flatten() {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Value::Array(names)
}

fn intersect(left: &Value, right: &Value) -> Option<Value> {
    let (Value::Array(left), Value::Array(right)) = (left, right) else { return Some(right.clone()) };
    let both: Vec<_> =
        left.iter().filter(|value| right.iter().any(|other| equal(value, other))).cloned().collect();
    (!both.is_empty()).then_some(Value::Array(both))
}

/// `number` and `integer` have `integer` in common.
fn intersect_types(left: &Value, right: &Value) -> Option<Value> {
    let left = type_names(left);
    let right = type_names(right);
    let has =
        |names: &[&str], name: &str| names.contains(&name) || name == "integer" && names.contains(&"number");
    let mut both: IndexSet<&str> = left.iter().copied().filter(|name| has(&right, name)).collect();
    both.extend(right.iter().copied().filter(|name| has(&left, name)));
    match both.len() {
        0 => None,
        1 => Some(json!(both[0])),
        _ => Some(both.into_iter().collect()),
    }
}

/// The names that the value of `type` lists.
pub(super) fn type_names(value: &Value) -> Vec<&str> {
    match value {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Whether `value` is of the JSON Schema type `name`.
pub(super) fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

/// The greater or the lesser of two bounds. (draft-04 has booleans for `exclusiveMinimum`; `right` wins then.)
fn extreme(left: &Value, right: &Value, wanted: Ordering) -> Value {
    match (left.as_f64(), right.as_f64()) {
        (Some(l), Some(r)) if l.partial_cmp(&r) == Some(wanted) => left.clone(),
        (Some(_), None) => left.clone(),
        _ => right.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: Value, right: Value, expected: Option<Value>) {
        assert_eq!(merge_values(&left, &right), expected, "{left} and {right}");
    }

    #[test]
    fn bounds_become_the_tighter_ones() {
        check(
            json!({"minimum": 1, "maximum": 5}),
            json!({"minimum": 2, "maximum": 9}),
            Some(json!({"minimum": 2, "maximum": 5})),
        );
    }

    #[test]
    fn types_and_enums_are_intersected() {
        check(
            json!({"type": ["number", "string"]}),
            json!({"type": "integer"}),
            Some(json!({"type": "integer"})),
        );
        check(json!({"enum": [1, 2]}), json!({"enum": [2.0, 3]}), Some(json!({"enum": [2]})));
        check(json!({"type": "string"}), json!({"type": "object"}), None);
    }

    #[test]
    fn properties_are_merged_one_by_one() {
        check(
            json!({"properties": {"a": {"type": "string"}}, "required": ["a"]}),
            json!({"properties": {"a": {"minLength": 1}, "b": true}, "required": ["b", "a"]}),
            Some(
                json!({"properties": {"a": {"type": "string", "minLength": 1}, "b": true}, "required": ["a", "b"]}),
            ),
        );
    }

    #[test]
    fn a_second_union_stays_a_part() {
        check(
            json!({"anyOf": [true]}),
            json!({"anyOf": [false]}),
            Some(json!({"anyOf": [true], "allOf": [{"anyOf": [false]}]})),
        );
    }
}
