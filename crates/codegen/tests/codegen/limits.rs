//! Schemas that no reasonable server sends.

use serde_json::{Value, json};

use crate::support::{package, taking, text};

/// An object of these members. (`json!` would copy them, and copying is recursive.)
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Dropping a deep value recurses as deep as it is, so it is taken apart level by level.
fn take_apart(mut value: Value) {
    let mut rest = vec![value.take()];
    while let Some(mut value) = rest.pop() {
        match &mut value {
            Value::Object(members) => rest.extend(members.values_mut().map(Value::take)),
            Value::Array(items) => rest.extend(items.iter_mut().map(Value::take)),
            _ => {}
        }
    }
}

#[test]
fn deep_nesting_ends() {
    let wraps: [fn(Value) -> Value; 4] = [
        |inner| object([("type", json!("object")), ("properties", object([("a", inner)]))]),
        |inner| object([("items", inner)]),
        |inner| object([("anyOf", Value::Array(vec![inner, json!({"type": "null"})]))]),
        |inner| object([("allOf", Value::Array(vec![inner])), ("not", json!({"type": "null"}))]),
    ];
    for wrap in wraps {
        let mut tool = taking("deep", json!({"type": "object"}));
        let deep = (0..10_000).fold(json!({"type": "string"}), |inner, _| wrap(inner));
        tool.input_schema.insert("properties".to_owned(), object([("deep", deep)]));
        let package = package(std::slice::from_ref(&tool));
        assert!(!package.modules[0].degraded.is_empty());
        take_apart(Value::Object(tool.input_schema));
    }
}

#[test]
fn huge_enums_end() {
    let values: Vec<_> = (0..100_000).map(|number| format!("!{}", "?".repeat(number % 7))).collect();
    let distinct: Vec<_> = (0..100_000).map(|number| format!("value {number}")).collect();
    let schema =
        json!({"type": "object", "properties": {"same": {"enum": values}, "other": {"enum": distinct}}});
    let package = package(&[taking("huge", schema)]);
    assert!(text(&package, "huge.py").contains("value_99999 = \"value 99999\""));
}

#[test]
fn references_in_circles_end() {
    let schema = json!({
        "type": "object",
        "properties": {
            "loop": {"$ref": "#/$defs/loop"},
            "ping": {"$ref": "#/$defs/ping"},
            "self": {"$ref": "#"},
            "tree": {"$ref": "#/$defs/tree", "minProperties": 1},
            "all": {"$ref": "#/$defs/all"},
        },
        "$defs": {
            "loop": {"$ref": "#/$defs/loop"},
            "ping": {"$ref": "#/$defs/pong"},
            "pong": {"$ref": "#/$defs/ping"},
            "tree": {"properties": {"left": {"$ref": "#/$defs/tree", "minProperties": 1}, "right": {"$ref": "#/$defs/tree"}}},
            "all": {"allOf": [{"$ref": "#/$defs/all"}, {"properties": {"more": {"allOf": [{"$ref": "#/$defs/all"}, {"minProperties": 1}]}}}]},
        },
    });
    let package = package(&[taking("circles", schema)]);
    assert!(text(&package, "circles.py").contains("class Params("));
}

#[test]
fn unions_of_unions_end() {
    let union = |of: &Value| json!({"anyOf": [of, {"type": "object", "properties": {"x": of}}, {"type": "null"}], "allOf": [{"anyOf": [of, of]}]});
    let schema = (0..6).fold(json!({"type": "string"}), |inner, _| union(&inner));
    let package = package(&[taking("unions", json!({"type": "object", "properties": {"u": schema}}))]);
    assert_eq!(package.modules.len(), 1);
}

#[test]
fn definitions_that_share_definitions_end() {
    let of = |number: usize| json!({"$ref": format!("#/$defs/d{number}")});
    let mut defs = serde_json::Map::new();
    for number in 0..60 {
        defs.insert(
            format!("d{number}"),
            json!({"anyOf": [of(number + 1), {"type": "array", "items": of(number + 1)}, of(number + 2)]}),
        );
    }
    defs.insert("d60".to_owned(), json!({"type": "string"}));
    defs.insert("d61".to_owned(), json!({"type": "integer"}));
    let package =
        package(&[taking("shared", json!({"type": "object", "properties": {"d": of(0)}, "$defs": defs}))]);
    assert!(text(&package, "shared.py").contains("class D0("));
}
