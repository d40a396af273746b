//! Schemas of bounded depth. Everything after this walks schemas by recursion, so a server's schemas are cut
//! here.

use serde_json::{Map, Value};

/// JSON nested deeper than this is cut off. A thread's stack holds many times the recursion that this allows, and a
/// schema that means something is never near it: its objects and arrays are `MAX_DEPTH` levels at most in `lower`.
const MAX_JSON_DEPTH: usize = 160;

/// A JSON value that is no deeper than recursion can go.
pub(super) struct BoundedValue {
    pub(super) value: Value,
    /// The number of JSON values in it.
    pub(super) nodes: usize,
    /// Whether something was cut off.
    pub(super) is_cut: bool,
}

/// A copy of `schema`, with `true`, the schema that admits everything, in place of too deep parts.
pub(super) fn bounded(schema: &Map<String, Value>) -> BoundedValue {
    let mut copy = BoundedValue { value: Value::Null, nodes: 1, is_cut: false };
    copy.value = copy.members(schema, MAX_JSON_DEPTH);
    copy
}

impl BoundedValue {
    fn copied(&mut self, value: &Value, depth_left: usize) -> Value {
        self.nodes += 1;
        match value {
            Value::Array(_) | Value::Object(_) if depth_left == 0 => {
                self.is_cut = true;
                Value::Bool(true)
            }
            Value::Array(items) => items.iter().map(|item| self.copied(item, depth_left - 1)).collect(),
            Value::Object(members) => self.members(members, depth_left),
            scalar => scalar.clone(),
        }
    }

    fn members(&mut self, members: &Map<String, Value>, depth_left: usize) -> Value {
        members.iter().map(|(name, member)| (name.clone(), self.copied(member, depth_left - 1))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_lies_too_deep_is_cut_off() {
        let mut deep = json!({"type": "string"});
        for _ in 0..1_000 {
            deep = json!({ "items": deep });
        }
        let copy = bounded(deep.as_object().unwrap());
        assert!(copy.is_cut);
        assert_eq!(copy.nodes, MAX_JSON_DEPTH + 1);
    }

    #[test]
    fn the_rest_is_copied() {
        let schema = json!({"type": "object", "properties": {"a": {"enum": [1, null]}}});
        let copy = bounded(schema.as_object().unwrap());
        assert_eq!((copy.value, copy.nodes, copy.is_cut), (schema, 7, false));
    }
}
