//! Parts of a schema that have no counterpart in Python's types, and are checked as a schema when a value is validated.

use serde_json::{Map, Value};

use super::document::{ALSO, Schema, SchemaDocument};
use super::regex;

/// Keywords that only a check at run time can enforce.
#[rustfmt::skip]
const KEYWORDS: [&str; 12] = [
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired",
    "dependentSchemas", "dependencies", ALSO, "uniqueItems",
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

/// The most schemas of a rule: references to the same place are written out each time.
const MAX_SCHEMAS: usize = 500;

/// `schema` as a rule: only what is enforced, patterns in Python's syntax, and what `document` has at the places that it
/// refers to. `None` if that is without end, or if it says something that rules cannot express.
pub(super) fn rule(schema: &Schema, document: &SchemaDocument<'_>) -> Option<Schema> {
    RuleReader { document, open: Vec::new(), schemas_left: MAX_SCHEMAS }.rule(schema)
}

struct RuleReader<'d> {
    document: &'d SchemaDocument<'d>,
    /// The places that are being read.
    open: Vec<String>,
    schemas_left: usize,
}

impl RuleReader<'_> {
    fn rule(&mut self, schema: &Schema) -> Option<Schema> {
        self.schemas_left = self.schemas_left.checked_sub(1)?;
        let mut rule = Map::new();
        let mut also = Vec::new();
        for (keyword, value) in schema {
            match (keyword.as_str(), value) {
                ("$ref", Value::String(reference)) => also.push(self.referred(reference)?),
                ("$ref" | "$dynamicRef" | "$recursiveRef" | "unevaluatedProperties", _) => return None,
                ("pattern", Value::String(pattern)) => {
                    rule.insert(keyword.clone(), regex::to_python(pattern).ok()?.into());
                }
                ("dependencies", Value::Object(dependencies)) => {
                    self.add_dependencies(dependencies, &mut rule)?;
                }
                (ALSO | "allOf", Value::Array(parts)) => also.extend(self.rules(parts)?),
                ("patternProperties", Value::Object(schemas)) => {
                    let pairs = schemas.iter().map(|(pattern, schema)| {
                        Some((regex::to_python(pattern).ok()?, self.value_rule(schema)?))
                    });
                    let pairs = pairs.collect::<Option<_>>()?;
                    rule.insert(keyword.clone(), Value::Object(pairs));
                }
                (name, Value::Array(parts)) if WITH_SCHEMAS.contains(&name) => {
                    rule.insert(keyword.clone(), Value::Array(self.rules(parts)?));
                }
                (name, Value::Object(schemas)) if WITH_NAMED_SCHEMAS.contains(&name) => {
                    let pairs =
                        schemas.iter().map(|(name, schema)| Some((name.clone(), self.value_rule(schema)?)));
                    let pairs = pairs.collect::<Option<_>>()?;
                    rule.insert(keyword.clone(), Value::Object(pairs));
                }
                (name, _) if WITH_SCHEMA.contains(&name) => {
                    rule.insert(keyword.clone(), self.value_rule(value)?);
                }
                (name, _) if WITH_DATA.contains(&name) && is_of_its_kind(name, value) => {
                    rule.insert(keyword.clone(), value.clone());
                }
                _ => {}
            }
        }
        if !also.is_empty() {
            rule.insert("allOf".to_owned(), Value::Array(also));
        }
        Some(rule)
    }

    fn rules(&mut self, schemas: &[Value]) -> Option<Vec<Value>> {
        schemas.iter().map(|schema| self.value_rule(schema)).collect()
    }

    fn value_rule(&mut self, schema: &Value) -> Option<Value> {
        match schema {
            Value::Object(schema) => self.rule(schema).map(Value::Object),
            Value::Bool(_) => Some(schema.clone()),
            _ => None,
        }
    }

    /// The rule for the place that a `$ref` names.
    fn referred(&mut self, reference: &str) -> Option<Value> {
        let target = self.document.resolve(reference).filter(|target| !self.open.contains(&target.key))?;
        self.open.push(target.key);
        let rule = self.value_rule(target.schema);
        self.open.pop();
        rule
    }

    /// Up to draft-07 one keyword meant both of today's.
    fn add_dependencies(&mut self, dependencies: &Schema, rule: &mut Schema) -> Option<()> {
        for (name, dependency) in dependencies {
            let (keyword, value) = match dependency {
                names @ Value::Array(_) if is_of_its_kind("required", names) => {
                    ("dependentRequired", names.clone())
                }
                schema => ("dependentSchemas", self.value_rule(schema)?),
            };
            let all = rule.entry(keyword).or_insert_with(|| Value::Object(Map::new()));
            all.as_object_mut()?.insert(name.clone(), value);
        }
        Some(())
    }
}

/// Whether the data of a keyword is such that it can be checked.
fn is_of_its_kind(keyword: &str, value: &Value) -> bool {
    let are_names = |value: &Value| value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    match keyword {
        "const" | "uniqueItems" => true,
        "enum" => value.is_array(),
        "type" => value.is_string() || are_names(value),
        "required" => are_names(value),
        "dependentRequired" => value.as_object().is_some_and(|lists| lists.values().all(are_names)),
        "multipleOf" => value.as_f64() > Some(0.0),
        _ => value.is_number(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, expected: Option<Value>) {
        let document = SchemaDocument::new(schema);
        assert_eq!(rule(schema.as_object().unwrap(), &document).map(Value::Object), expected, "{schema}");
    }

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
        check(&schema, Some(expected));
    }

    #[test]
    fn what_it_refers_to_is_part_of_a_rule_if_it_ends() {
        let definitions = json!({"a": {"const": 1}, "b": {"items": {"$ref": "#/$defs/b"}}});
        check(
            &json!({"not": {"$ref": "#/$defs/a", "type": "integer"}, "$defs": definitions}),
            Some(json!({"not": {"type": "integer", "allOf": [{"const": 1}]}})),
        );
        check(&json!({"not": {"$ref": "#/$defs/b"}, "$defs": definitions}), None);
        check(&json!({"not": {"$ref": "#/$defs/nowhere"}, "$defs": definitions}), None);
    }
}
