//! Saved actions as tools of MCP. Pure.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use crate::faces::detached_actions::ShelvedAction;

/// The name of the only member of results that are no objects.
pub(super) const RESULT: &str = "result";

/// The tool of an action.
pub(super) fn tool(shelved: &ShelvedAction) -> Tool {
    let action = &shelved.action;
    let mut input = action.input_schema.clone();
    // MCP wants it.
    input.entry("type").or_insert_with(|| "object".into());
    let mut tool = Tool::new(action.name.clone(), action.description.clone(), Arc::new(input));
    if let Some(schema) = &action.output_schema {
        tool = tool.with_raw_output_schema(Arc::new(output_schema(schema)));
    }
    // Others stay unknown: what it calls depends on its arguments.
    if shelved.only_reads { tool.with_annotations(ToolAnnotations::new().read_only(true)) } else { tool }
}

/// Whether results are members of an object, since MCP has objects alone.
pub(super) fn is_wrapped(schema: Option<&JsonObject>, result: &Value) -> bool {
    match schema {
        Some(schema) => !is_object(schema),
        None => !result.is_object(),
    }
}

fn is_object(schema: &JsonObject) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}

/// The schema of results as objects.
fn output_schema(schema: &JsonObject) -> JsonObject {
    if is_object(schema) {
        return schema.clone();
    }
    let mut inner = schema.clone();
    // References begin at the root.
    let definitions = inner.remove("$defs");
    let mut outer = Map::from_iter([
        ("type".to_owned(), "object".into()),
        ("properties".to_owned(), json!({RESULT: inner})),
        ("required".to_owned(), json!([RESULT])),
    ]);
    outer.extend(definitions.map(|definitions| ("$defs".to_owned(), definitions)));
    outer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_are_no_objects_are_members_of_one() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let check = |schema: Value, expected: Value| {
            assert_eq!(Value::Object(output_schema(&object(schema))), expected);
        };
        let known = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        check(known.clone(), known);
        let list =
            json!({"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"type": "integer"}}});
        check(
            list,
            json!({
                "type": "object",
                "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
                "required": ["result"],
                "$defs": {"A": {"type": "integer"}},
            }),
        );
        assert!(is_wrapped(None, &json!(1)) && !is_wrapped(None, &json!({})));
        assert!(is_wrapped(Some(&object(json!({"anyOf": []}))), &json!({})));
    }
}
