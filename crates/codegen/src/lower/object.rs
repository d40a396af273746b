//! Objects: models where properties are declared, dictionaries where not.

use indexmap::IndexSet;
use serde_json::{Value, json};

use super::combine::FoldedSchema;
use super::{ClassKind, Lowering, MAX_DEPTH, SchemaSide, SchemaSpot};
use crate::document::{ALSO, Schema};
use crate::identifier;
use crate::merge::type_names;
use crate::model::{ClassBody, ClassId, ClassModel, ExtraProperties, ModelField, PythonType, ValueCheck};
use crate::regex;
use crate::scope::{NameNumbering, NameScope};

impl Lowering<'_> {
    /// The root schema as one object, if it is to become a model: always for arguments, which are passed by name.
    pub(super) fn root_object(&mut self, root: &Value, side: SchemaSide) -> Option<Schema> {
        let mut object = match root {
            Value::Object(object) => object.clone(),
            _ => Schema::new(),
        };
        if object.contains_key("$ref") {
            object = self.dereference(&object, MAX_DEPTH);
        }
        if let Some(FoldedSchema::Schema(whole)) = self.fold_all_of(&object) {
            object = whole;
        }
        let is_listed = object.contains_key("const") || object.contains_key("enum");
        let is_object = match object.get("type") {
            Some(names) => type_names(names) == ["object"],
            None => super::implied_type(&object).is_none_or(|name| name == "object"),
        };
        let is_union = object.contains_key("anyOf") || object.contains_key("oneOf");
        let is_map =
            properties(&object).is_none() && object.get("additionalProperties").is_some_and(Value::is_object);
        match side {
            // An empty schema admits everything, also other values than objects.
            SchemaSide::Arguments if super::validating(&object).is_empty() => None,
            SchemaSide::Arguments if is_union => Some(self.join_branches(object)),
            SchemaSide::Arguments => Some(object),
            SchemaSide::Output => (is_object && !is_listed && !is_union && !is_map).then_some(object),
        }
    }

    /// An object that admits what any branch of its union admits: arguments are one model, whichever branch they take.
    fn join_branches(&mut self, mut object: Schema) -> Schema {
        let mut branches = Vec::new();
        let mut which = Schema::new();
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(items)) = object.shift_remove(keyword) {
                let items: Vec<_> = items.into_iter().map(|branch| self.dereferenced(branch)).collect();
                branches.extend(items.iter().cloned());
                which.insert(keyword.to_owned(), Value::Array(items));
            }
        }
        let declared = properties(&object).cloned().unwrap_or_default();
        let mut joined = declared.clone();
        let mut required_by_all: Option<Vec<Value>> = None;
        for branch in &branches {
            let Value::Object(branch) = branch else { continue };
            for (name, schema) in branch.get("properties").and_then(Value::as_object).into_iter().flatten() {
                match joined.get_mut(name) {
                    // Whatever the branches say of it, this holds.
                    _ if declared.contains_key(name) => {}
                    Some(known) if known == schema => {}
                    Some(known) => *known = json!({"anyOf": [known.take(), schema]}),
                    None => drop(joined.insert(name.clone(), schema.clone())),
                }
            }
            let required = branch.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            required_by_all = Some(match required_by_all {
                Some(so_far) => so_far.into_iter().filter(|name| required.contains(name)).collect(),
                None => required,
            });
        }
        match self.rule(&which) {
            Some(_) => drop(object.insert(ALSO.to_owned(), Value::Array(vec![Value::Object(which)]))),
            None => self.degrade("which properties go together is not checked".to_owned()),
        }
        let own = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        object.insert("properties".to_owned(), Value::Object(joined));
        object.insert(
            "required".to_owned(),
            own.into_iter().chain(required_by_all.unwrap_or_default()).collect(),
        );
        object
    }

    fn dereferenced(&self, schema: Value) -> Value {
        match schema {
            Value::Object(schema) => Value::Object(self.dereference(&schema, MAX_DEPTH)),
            other => other,
        }
    }

    /// Reads a schema of type `object`.
    pub(super) fn object_type(&mut self, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        // A definition that only says `object` is a class all the same, because it has a name.
        let is_named =
            spot.slot.is_some() && !schema.contains_key("additionalProperties") && patterns(schema).is_none();
        if properties(schema).is_some() || is_named {
            self.model(schema, spot)
        } else {
            self.dictionary(schema, spot)
        }
    }

    /// An object with declared properties, or the root.
    pub(super) fn model(&mut self, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        let id = self.claim(spot, ClassKind::Model);
        let declared = properties(schema).cloned().unwrap_or_default();
        let required = required_names(schema);
        let undeclared = required.iter().filter(|name| !declared.contains_key(**name));
        let undeclared: Schema = undeclared.map(|name| ((*name).to_owned(), Value::Bool(true))).collect();
        let all: Vec<(&String, &Value)> = declared.iter().chain(&undeclared).collect();
        let names = field_names(all.iter().map(|(wire, _)| wire.as_str()));

        let mut fields = Vec::with_capacity(all.len());
        let mut forbidden = Schema::new();
        for ((wire, property), name) in all.into_iter().zip(names) {
            self.trail.push(wire.clone());
            let noted = self.degraded.len();
            let ty = self.lower(property, spot.child(&name));
            let mut doc = self.doc(property);
            doc.notes.extend(self.noted_here(noted));
            self.trail.pop();
            let is_required = required.contains(wire.as_str());
            if ty == PythonType::Never && !is_required {
                // Such a property may only be absent; left undeclared it is not suggested either.
                forbidden.insert(wire.clone(), Value::Bool(false));
                continue;
            }
            let default = property.get("default").cloned();
            fields.push(ModelField {
                name,
                wire: wire.clone(),
                ty,
                is_required,
                is_tag: false,
                is_nullable: false,
                default,
                doc,
            });
        }
        let extra = self.extra(schema, id, spot);
        let mut rules = self.object_rules(schema);
        if !forbidden.is_empty() && !rules.contains_key("properties") {
            rules.insert("properties".to_owned(), Value::Object(forbidden));
        }
        self.classes.0[id.0].body = ClassBody::Model(ClassModel { fields, extra, rules });
        PythonType::Class(id)
    }

    /// The degradations after the first `noted` ones that concern this property itself.
    fn noted_here(&self, noted: usize) -> impl Iterator<Item = String> {
        let here = self.location();
        self.degraded[noted..].iter().filter_map(move |spot| {
            let below = spot.path.strip_prefix(&here)?;
            below.split('/').all(|step| matches!(step, "" | "[]" | "*")).then(|| spot.what.clone())
        })
    }

    /// The treatment of properties that a model does not declare.
    fn extra(&mut self, schema: &Schema, id: ClassId, spot: SchemaSpot<'_>) -> ExtraProperties {
        if patterns(schema).is_some() {
            return ExtraProperties::Typed(PythonType::Any);
        }
        match schema.get("additionalProperties").or_else(|| schema.get("unevaluatedProperties")) {
            Some(Value::Bool(false)) => ExtraProperties::Refused,
            Some(value @ Value::Object(_)) => {
                let name = format!("{}AdditionalProperty", self.classes.get(id).name);
                self.trail.push("*".to_owned());
                let ty = self.lower(value, spot.child(&name));
                self.trail.pop();
                ExtraProperties::Typed(ty)
            }
            _ => ExtraProperties::Allowed,
        }
    }

    /// The rules about an object that a model's fields do not express.
    fn object_rules(&mut self, schema: &Schema) -> Schema {
        let mut about = Schema::new();
        for keyword in ["minProperties", "maxProperties", "propertyNames"] {
            if let Some(value) = schema.get(keyword) {
                about.insert(keyword.to_owned(), value.clone());
            }
        }
        if let Some(patterns) = patterns(schema) {
            let others = schema.get("additionalProperties").filter(|others| **others != Value::Bool(true));
            let declared = schema.get("properties").and_then(Value::as_object).filter(|_| others.is_some());
            let declared = declared.into_iter().flat_map(|declared| declared.keys());
            let declared: Schema = declared.map(|name| (name.clone(), Value::Bool(true))).collect();
            about.extend((!declared.is_empty()).then(|| ("properties".to_owned(), Value::Object(declared))));
            about.insert("patternProperties".to_owned(), Value::Object(patterns.clone()));
            about.extend(others.map(|others| ("additionalProperties".to_owned(), others.clone())));
        }
        self.rule(&about).unwrap_or_else(|| {
            self.degrade("names of further properties are not checked".to_owned());
            Schema::new()
        })
    }

    /// An object without declared properties.
    fn dictionary(&mut self, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        let others = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let mut values: Vec<PythonType> = Vec::new();
        self.trail.push("*".to_owned());
        for value in patterns(schema).into_iter().flat_map(|patterns| patterns.values()) {
            values.push(self.lower(value, spot.part()));
        }
        let is_open = *others != Value::Bool(false);
        if is_open {
            values.push(self.lower(others, spot.part()));
        }
        self.trail.pop();

        let mut checks = length_checks(schema, "minProperties", "maxProperties");
        let mut key = PythonType::Str;
        let only_pattern = patterns(schema).filter(|patterns| patterns.len() == 1 && !is_open);
        if let Some(pattern) = only_pattern.and_then(|patterns| patterns.keys().next()) {
            key = self.patterned(pattern);
        } else if let Some(names) = schema.get("propertyNames") {
            key = match self.lower(names, spot.part()) {
                PythonType::Any => PythonType::Str,
                key => key,
            };
        } else if patterns(schema).is_some() {
            let rule = self.object_rules(schema);
            checks.extend((!rule.is_empty()).then_some(ValueCheck::Rule(rule)));
        }
        let names: Vec<_> = required_names(schema).into_iter().collect();
        if !names.is_empty() {
            checks.push(ValueCheck::Rule(Schema::from_iter([("required".to_owned(), json!(names))])));
        }
        let value = match PythonType::union(values) {
            PythonType::Never => {
                checks = vec![ValueCheck::MaxLength(0)];
                PythonType::Any
            }
            value => value,
        };
        PythonType::Dict { key: Box::new(key), value: Box::new(value) }.checked(checks)
    }

    /// A string that matches `pattern`, as far as Python can express it.
    pub(super) fn patterned(&mut self, pattern: &str) -> PythonType {
        match regex::to_python(pattern) {
            Ok(python) => PythonType::Str.checked(vec![ValueCheck::Pattern(python)]),
            Err(reason) => {
                self.degrade(format!("pattern `{pattern}` is not checked: {reason}"));
                PythonType::Str
            }
        }
    }
}

/// The declared properties of an object, if there are any.
pub(super) fn properties(schema: &Schema) -> Option<&Schema> {
    schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty())
}

/// The schemas for properties whose names match a pattern, if there are any.
fn patterns(schema: &Schema) -> Option<&Schema> {
    schema.get("patternProperties").and_then(Value::as_object).filter(|patterns| !patterns.is_empty())
}

/// The required properties of an object, each once.
pub(super) fn required_names(schema: &Schema) -> IndexSet<&str> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

/// Bounds on how many characters, items or properties there are.
pub(super) fn length_checks(schema: &Schema, minimum: &str, maximum: &str) -> Vec<ValueCheck> {
    // Some write lengths as floats, `1.0`.
    let bound =
        |keyword: &str| schema.get(keyword)?.as_f64().filter(|n| *n >= 0.0 && *n < 1e15).map(|n| n as u64);
    let least = bound(minimum).filter(|least| *least > 0).map(ValueCheck::MinLength);
    least.into_iter().chain(bound(maximum).map(ValueCheck::MaxLength)).collect()
}

/// A name for each property. A repaired name gives way to properties that are really called so, because a field can be
/// given under its own name as well as under the wire's.
fn field_names<'w>(wires: impl Iterator<Item = &'w str> + Clone) -> Vec<String> {
    let mut scope = NameScope::with(wires.clone().filter(|wire| identifier::field(wire) == *wire));
    wires
        .map(|wire| {
            let name = identifier::field(wire);
            if name == wire { name } else { scope.take(name, NameNumbering::Underscore) }
        })
        .collect()
}
