//! Numbers, strings, and values that are listed one by one.

use serde_json::Value;

use super::object::length_checks;
use super::{ClassKind, Lowering, SchemaSpot};
use crate::document::Schema;
use crate::identifier;
use crate::merge::{equal, is_of_type, type_names};
use crate::model::{ClassBody, EnumMember, PythonType, ValueCheck};
use crate::scope::{NameNumbering, NameScope};

impl Lowering<'_> {
    /// Reads a schema of type `integer` or `number`; `ty` is which.
    pub(super) fn number(&mut self, ty: PythonType, schema: &Schema) -> PythonType {
        let number = |keyword: &str| match schema.get(keyword) {
            Some(Value::Number(number)) => Some(number.clone()),
            _ => None,
        };
        // draft-04: `exclusiveMinimum: true` makes `minimum` exclusive.
        let is_exclusive = |keyword: &str| schema.get(keyword) == Some(&Value::Bool(true));
        let mut checks = Vec::new();
        if let Some(bound) = number("minimum") {
            let check = if is_exclusive("exclusiveMinimum") {
                ValueCheck::ExclusiveMinimum
            } else {
                ValueCheck::Minimum
            };
            checks.push(check(bound));
        }
        checks.extend(number("exclusiveMinimum").map(ValueCheck::ExclusiveMinimum));
        if let Some(bound) = number("maximum") {
            let check = if is_exclusive("exclusiveMaximum") {
                ValueCheck::ExclusiveMaximum
            } else {
                ValueCheck::Maximum
            };
            checks.push(check(bound));
        }
        checks.extend(number("exclusiveMaximum").map(ValueCheck::ExclusiveMaximum));
        checks.extend(
            number("multipleOf").filter(|number| number.as_f64() > Some(0.0)).map(ValueCheck::MultipleOf),
        );
        ty.checked(checks)
    }

    /// Reads a schema of type `string`. Formats do not change the type: what is sent is what was given.
    pub(super) fn string(&mut self, schema: &Schema) -> PythonType {
        let mut checks = length_checks(schema, "minLength", "maxLength");
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && let PythonType::Checked(_, pattern) = self.patterned(pattern)
        {
            checks.extend(pattern);
        }
        PythonType::Str.checked(checks)
    }

    /// Reads `const` and `enum`. What else the schema demands of the values is left to a check.
    pub(super) fn listed(&mut self, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        let ty = match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
            (Some(value), None) if !admits(schema, value) => return PythonType::Never,
            (Some(value), None) => self.constant(value),
            (_, values) => self.enumeration(values.map_or(&[], Vec::as_slice), schema, spot),
        };
        let mut others = super::validating(schema);
        others.retain(|keyword, _| !matches!(keyword.as_str(), "const" | "enum" | "type"));
        match self.rule(&others) {
            Some(rule) => self.with_rule(ty, rule, spot),
            None => ty,
        }
    }

    /// Reads `const`.
    fn constant(&mut self, value: &Value) -> PythonType {
        match value {
            Value::Null => PythonType::Null,
            Value::String(_) => PythonType::Literal(vec![value.clone()]),
            // `Literal[True]` would take 1 for True.
            Value::Bool(_) => PythonType::Bool.checked(vec![one_of(vec![value.clone()])]),
            Value::Number(number) if !number.is_f64() => {
                PythonType::Int.checked(vec![one_of(vec![value.clone()])])
            }
            other => PythonType::Any.checked(vec![one_of(vec![other.clone()])]),
        }
    }

    /// Reads `enum`: a class with a member for each value, where Python's enums can hold the values.
    pub(super) fn enumeration(
        &mut self,
        values: &[Value],
        schema: &Schema,
        spot: SchemaSpot<'_>,
    ) -> PythonType {
        let types = schema.get("type").map(type_names).unwrap_or_default();
        let mut admitted: Vec<&Value> = values.iter().filter(|value| admits(schema, value)).collect();
        if let Some(constant) = schema.get("const") {
            admitted.retain(|value| equal(value, constant));
        }
        let is_nullable = admitted.iter().any(|value| value.is_null());
        admitted.retain(|value| !value.is_null());
        let null = is_nullable.then_some(PythonType::Null);
        if admitted.is_empty() {
            return PythonType::union(null);
        }
        // pydantic does not know greater integers among the values of an enum.
        let scalar = |value: &&Value| value.is_string() || value.is_boolean() || value.is_i64();
        if !admitted.iter().all(scalar) || has_python_equals(&admitted) {
            let admitted = admitted.into_iter().cloned().chain(is_nullable.then_some(Value::Null));
            return PythonType::Any.checked(vec![one_of(admitted.collect())]);
        }
        let id = self.claim(spot, ClassKind::Enum);
        self.classes.0[id.0].body = ClassBody::Enum(members(&admitted, &types));
        PythonType::union([PythonType::Class(id)].into_iter().chain(null))
    }
}

/// One of `values`, compared as JSON: for those that Python's own types cannot distinguish.
fn one_of(values: Vec<Value>) -> ValueCheck {
    ValueCheck::Rule(Schema::from_iter([("enum".to_owned(), Value::Array(values))]))
}

/// The members of an enum, named after their values: `stars`, and `integer_1` for a number of type integer.
fn members(values: &[&Value], types: &[&str]) -> Vec<EnumMember> {
    let mut names = NameScope::default();
    let mut seen = std::collections::HashSet::new();
    let mut members = Vec::with_capacity(values.len());
    for value in values {
        if !seen.insert(*value) {
            continue;
        }
        let name = match (value, types) {
            (Value::String(text), _) => identifier::member(text),
            (Value::Bool(flag), [] | [_, _, ..]) => format!("bool_{}", if *flag { "True" } else { "False" }),
            (Value::Bool(flag), [name]) => format!("{name}_{}", if *flag { "True" } else { "False" }),
            (other, [name]) if *name != "string" => identifier::member(&format!("{name}_{other}")),
            (other, _) => identifier::member(&format!("int_{other}")),
        };
        let name = names.take(name, NameNumbering::Underscore);
        members.push(EnumMember { name, value: (*value).clone() });
    }
    members
}

/// Whether two of the values are equal in Python but not in JSON, as `1` and `True` are: an enum would make them one.
fn has_python_equals(values: &[&Value]) -> bool {
    let holds = |wanted: Value| values.contains(&&wanted);
    holds(Value::Bool(true)) && holds(Value::from(1)) || holds(Value::Bool(false)) && holds(Value::from(0))
}

/// Whether `value` is of the schema's type.
fn admits(schema: &Schema, value: &Value) -> bool {
    let types = schema.get("type").map(type_names).unwrap_or_default();
    types.is_empty() || types.iter().any(|name| is_of_type(value, name))
}
