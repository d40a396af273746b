//! Rewrites what JSON Schema does not have, or does not mean as authors do: `nullable` of OpenAPI 3.0, and listed values
//! that are not of the type beside them.

use serde_json::{Value, json};

use super::document::{DATA_KEYWORDS, Schema};
use super::lower::implied_type;
use super::merge::{is_of_type, type_names};

/// Keywords that say that a value may be null, in OpenAPI 3.0 and in Swagger 2.
const NULLABLE: [&str; 2] = ["nullable", "x-nullable"];

/// Keywords whose value has names of its authors, and schemas by these names.
#[rustfmt::skip]
const NAMED_SCHEMAS: [&str; 6] = [
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies",
];

/// Keywords that stay where they are when the rest of a schema becomes a branch.
const ABOUT: [&str; 5] = ["title", "description", "default", "examples", "deprecated"];

/// Rewrites `schema` and all schemas in it.
pub(super) fn rewrite(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for (keyword, inner) in object.iter_mut() {
                match inner {
                    Value::Object(named) if NAMED_SCHEMAS.contains(&keyword.as_str()) => {
                        named.values_mut().for_each(rewrite);
                    }
                    _ if DATA_KEYWORDS.contains(&keyword.as_str()) => {}
                    _ => rewrite(inner),
                }
            }
            admit_listed(object);
            let marks = NULLABLE.map(|keyword| object.shift_remove(keyword));
            if marks.contains(&Some(Value::Bool(true))) {
                admit_null(object);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite),
        _ => {}
    }
}

/// Adds the types of listed values that are not of the type beside them: whoever lists a value means it.
fn admit_listed(schema: &mut Schema) {
    let listed = schema.get("enum").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let values = schema.get("const").map_or(listed, std::slice::from_ref);
    let names = schema.get("type").map(type_names).unwrap_or_default();
    let mut types = names.clone();
    for value in values {
        if !types.iter().any(|name| is_of_type(value, name)) {
            types.push(type_of(value));
        }
    }
    if !names.is_empty() && types.len() > names.len() {
        let types = json!(types);
        schema.insert("type".to_owned(), types);
    }
}

/// Makes null one of the values of a schema.
fn admit_null(schema: &mut Schema) {
    if schema.get("enum").or_else(|| schema.get("const")).is_some() {
        list_null(schema);
    }
    if is_reference(schema) {
        let is_about =
            |keyword: &str| ABOUT.contains(&keyword) || keyword.starts_with('$') && keyword != "$ref";
        let (mut about, whole): (Schema, Schema) =
            std::mem::take(schema).into_iter().partition(|(keyword, _)| is_about(keyword));
        about.insert("anyOf".to_owned(), json!([whole, {"type": "null"}]));
        *schema = about;
        return;
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(Value::Array(branches)) = schema.get_mut(keyword) {
            branches.push(json!({"type": "null"}));
        }
    }
    let named = schema.get("type").map(type_names).unwrap_or_default();
    let mut types: Vec<&str> =
        if named.is_empty() { implied_type(schema).into_iter().collect() } else { named };
    if !types.is_empty() && !types.contains(&"null") {
        types.push("null");
        let types = json!(types);
        schema.insert("type".to_owned(), types);
    }
}

/// Adds null to the listed values.
fn list_null(schema: &mut Schema) {
    if let Some(constant) = schema.shift_remove("const") {
        schema.insert("enum".to_owned(), json!([constant]));
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

/// Whether other schemas say what the values are, which do not admit null.
fn is_reference(schema: &Schema) -> bool {
    ["$ref", "$dynamicRef", "$recursiveRef", "allOf"].iter().any(|keyword| schema.contains_key(*keyword))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_of_type(value, "integer") => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mut schema: Value, expected: Value) {
        rewrite(&mut schema);
        assert_eq!(schema, expected);
    }

    #[test]
    fn nullable_adds_null_to_the_type() {
        check(json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]}));
        check(json!({"type": "string", "x-nullable": true}), json!({"type": ["string", "null"]}));
        check(json!({"type": "string", "nullable": false}), json!({"type": "string"}));
        check(json!({"type": ["string", "null"], "nullable": true}), json!({"type": ["string", "null"]}));
        check(json!({"items": {"type": "integer", "nullable": true}, "nullable": true}), {
            json!({"items": {"type": ["integer", "null"]}, "type": ["array", "null"]})
        });
        check(json!({"description": "anything", "nullable": true}), json!({"description": "anything"}));
    }

    #[test]
    fn nullable_adds_null_to_listed_values_and_branches() {
        check(
            json!({"type": "string", "enum": ["a"], "nullable": true}),
            json!({"type": ["string", "null"], "enum": ["a", null]}),
        );
        check(json!({"const": 1, "nullable": true}), json!({"enum": [1, null]}));
        check(
            json!({"oneOf": [{"type": "string"}], "nullable": true}),
            json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
        );
        check(
            json!({"$ref": "#/$defs/a", "description": "A.", "nullable": true}),
            json!({"description": "A.", "anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}),
        );
        check(
            json!({"type": "object", "allOf": [{"$ref": "#/$defs/a"}], "nullable": true}),
            json!({"anyOf": [{"type": "object", "allOf": [{"$ref": "#/$defs/a"}]}, {"type": "null"}]}),
        );
    }

    #[test]
    fn listed_values_are_admitted_whatever_their_type() {
        check(
            json!({"type": "integer", "enum": ["1"]}),
            json!({"type": ["integer", "string"], "enum": ["1"]}),
        );
        check(json!({"type": "string", "const": 1.5}), json!({"type": ["string", "number"], "const": 1.5}));
        check(
            json!({"type": "string", "enum": ["a", null, 1]}),
            json!({"type": ["string", "null", "integer"], "enum": ["a", null, 1]}),
        );
        for kept in [json!({"type": "number", "enum": [1, 2.5]}), json!({"type": "string", "enum": ["a"]})] {
            check(kept.clone(), kept);
        }
    }

    #[test]
    fn names_and_data_are_no_keywords() {
        for kept in [
            json!({"properties": {"nullable": true, "enum": {"type": "string"}}, "type": "object"}),
            json!({"default": {"type": "string", "nullable": true}}),
        ] {
            check(kept.clone(), kept);
        }
        check(
            json!({"properties": {"default": {"type": "string", "nullable": true}}}),
            json!({"properties": {"default": {"type": ["string", "null"]}}}),
        );
    }
}
