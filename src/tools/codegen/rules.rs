//! What of a schema has no counterpart in Python's types, and is checked as a schema when a value is validated.

use serde_json::{Map, Value};

use super::document::{ALSO, Schema};
use super::regex;

/// Keywords that only a check at run time can enforce.
#[rustfmt::skip]
const KEYWORDS: [&str; 12] = [
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired",
    "dependentSchemas", "dependencies", "$also", "uniqueItems",
];

/// Keywords of rules whose value is a schema.
#[rustfmt::skip]
const WITH_SCHEMA: [&str; 10] = [
    "not", "if", "then", "else", "contains", "items", "additionalProperties", "additionalItems",
    "propertyNames", "unevaluatedItems",
];

/// Keywords of rules whose value is a list of schemas.
const WITH_SCHEMAS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];

/// Keywords of rules whose values are schemas by name.
const WITH_NAMED_SCHEMAS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Keywords of rules whose value is data.
#[rustfmt::skip]
const WITH_DATA: [&str; 19] = [
    "type", "enum", "const", "required", "dependentRequired", "uniqueItems", "minContains", "maxContains",
    "minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
];

/// Takes out of `schema` the keywords that are left to rules; `keep` is what types say of the rest.
pub(super) fn split(schema: &Schema) -> (Schema, Schema) {
    schema.clone().into_iter().partition(|(keyword, _)| !KEYWORDS.contains(&keyword.as_str()))
}

/// Whether `schema` has keywords that are left to rules.
pub(super) fn any(schema: &Schema) -> bool {
    KEYWORDS.iter().any(|keyword| schema.contains_key(*keyword))
}

/// `schema` as a rule: only what is enforced, patterns in Python's syntax. `None` if it refers to other schemas, or
/// says something that rules cannot express.
pub(super) fn rule(schema: &Schema) -> Option<Schema> {
    let mut rule = Map::new();
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef" | "unevaluatedProperties", _) => return None,
            ("pattern", Value::String(pattern)) => {
                rule.insert(keyword.clone(), regex::to_python(pattern).ok()?.into());
            }
            ("dependencies", Value::Object(dependencies)) => add_dependencies(dependencies, &mut rule)?,
            (ALSO, Value::Array(parts)) => {
                rule.insert("allOf".to_owned(), rules(parts)?);
            }
            ("patternProperties", Value::Object(schemas)) => {
                let pairs = schemas
                    .iter()
                    .map(|(pattern, schema)| Some((regex::to_python(pattern).ok()?, value_rule(schema)?)));
                rule.insert(keyword.clone(), Value::Object(pairs.collect::<Option<_>>()?));
            }
            (name, Value::Array(parts)) if WITH_SCHEMAS.contains(&name) => {
                rule.insert(keyword.clone(), rules(parts)?);
            }
            (name, Value::Object(schemas)) if WITH_NAMED_SCHEMAS.contains(&name) => {
                let pairs = schemas.iter().map(|(name, schema)| Some((name.clone(), value_rule(schema)?)));
                rule.insert(keyword.clone(), Value::Object(pairs.collect::<Option<_>>()?));
            }
            (name, _) if WITH_SCHEMA.contains(&name) => {
                rule.insert(keyword.clone(), value_rule(value)?);
            }
            (name, _) if WITH_DATA.contains(&name) => {
                rule.insert(keyword.clone(), value.clone());
            }
            _ => {}
        }
    }
    Some(rule)
}

fn rules(schemas: &[Value]) -> Option<Value> {
    schemas.iter().map(value_rule).collect::<Option<Vec<_>>>().map(Value::Array)
}

fn value_rule(schema: &Value) -> Option<Value> {
    match schema {
        Value::Object(schema) => rule(schema).map(Value::Object),
        Value::Bool(_) => Some(schema.clone()),
        _ => None,
    }
}

/// Up to draft-07 one keyword stood for both of today's.
fn add_dependencies(dependencies: &Schema, rule: &mut Schema) -> Option<()> {
    for (name, dependency) in dependencies {
        let (keyword, value) = match dependency {
            Value::Array(_) => ("dependentRequired", dependency.clone()),
            schema => ("dependentSchemas", value_rule(schema)?),
        };
        let all = rule.entry(keyword).or_insert_with(|| Value::Object(Map::new()));
        all.as_object_mut()?.insert(name.clone(), value);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rule_keeps_what_is_enforced() {
        let schema = json!({
            "if": {"properties": {"a": {"const": 1, "description": "x"}}},
            "then": {"required": ["b"]},
            "dependencies": {"c": ["d"], "e": {"minProperties": 2}},
            "propertyNames": {"pattern": "^\\d$"},
        });
        let expected = json!({
            "if": {"properties": {"a": {"const": 1}}},
            "then": {"required": ["b"]},
            "dependentRequired": {"c": ["d"]},
            "dependentSchemas": {"e": {"minProperties": 2}},
            "propertyNames": {"pattern": "^[0-9]\\Z"},
        });
        assert_eq!(value_rule(&schema), Some(expected));
    }

    #[test]
    fn what_refers_to_another_place_is_no_rule() {
        assert_eq!(value_rule(&json!({"not": {"$ref": "#/$defs/a"}})), None);
    }
}
