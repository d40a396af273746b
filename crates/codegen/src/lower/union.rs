//! `anyOf` and `oneOf`.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Lowering, SchemaSpot, TOO_LARGE, validating};
use crate::document::Schema;
use crate::merge::merge;
use crate::model::{ClassBody, ModelField, PythonType};

impl Lowering<'_> {
    /// Reads a union; the keywords beside it hold for every branch.
    pub(super) fn union(
        &mut self,
        keyword: &str,
        branches: &[Value],
        schema: &Schema,
        spot: SchemaSpot<'_>,
    ) -> PythonType {
        let mut shared = validating(schema);
        shared.shift_remove(keyword);
        shared.shift_remove("unevaluatedProperties");
        if shared.keys().all(|keyword| keyword == "type")
            && let Some(ty) = self.union_of_constants(branches, schema, spot)
        {
            return ty;
        }
        // The branches share the name as it is, even where it is that of a list.
        let spot = SchemaSpot { is_item: false, ..spot };
        let is_null = |branch: &&Value| branch.get("type") == Some(&Value::from("null"));
        // Null needs no name: a single other branch is what the name belongs to.
        let is_alone = branches.len() - branches.iter().filter(is_null).count() == 1;
        let part = SchemaSpot { slot: spot.slot.filter(|_| is_alone), ..spot.part() };
        let mut members = Vec::with_capacity(branches.len());
        for branch in branches {
            let is_plain = shared.is_empty() || self.repeats_type(branch, &shared);
            let member = match branch {
                _ if is_plain => self.lower(branch, part),
                Value::Bool(true) => self.lower(&Value::Object(shared.clone()), part),
                Value::Object(branch) => {
                    let branch = self.dereference(branch, super::MAX_DEPTH);
                    match merge(&shared, &branch) {
                        Some(both) if !self.affords(&both) => self.give_up(TOO_LARGE),
                        Some(both) => self.lower(&Value::Object(both), part),
                        None => PythonType::Never,
                    }
                }
                _ => PythonType::Never,
            };
            members.push(member);
        }
        let named = schema.get("discriminator").and_then(|of| of.get("propertyName")).and_then(Value::as_str);
        if let Some(wire) = self.tag(&members, named) {
            members.iter().for_each(|member| self.mark_tag(member, &wire));
            return PythonType::Tagged { members, wire };
        }
        PythonType::union(members)
    }

    /// Whether `branch` is a `$ref` beside which only its type is repeated: it can keep its class then.
    fn repeats_type(&self, branch: &Value, shared: &Schema) -> bool {
        let target = branch.get("$ref").and_then(Value::as_str).and_then(|r| self.document.resolve(r));
        let (Some(target), Some(ty), 1) = (target, shared.get("type"), shared.len()) else { return false };
        match target.schema.get("type") {
            Some(own) => own == ty,
            None => ty == "object" && target.schema.as_object().is_some_and(|t| !validating(t).is_empty()),
        }
    }

    /// A union of nothing but constants, and perhaps `null`, is an enum.
    fn union_of_constants(
        &mut self,
        branches: &[Value],
        schema: &Schema,
        spot: SchemaSpot<'_>,
    ) -> Option<PythonType> {
        let (nulls, others): (Vec<_>, Vec<_>) =
            branches.iter().partition(|branch| branch.get("type") == Some(&Value::from("null")));
        let constant = |branch: &Value| {
            let object = branch
                .as_object()
                .filter(|object| !object.contains_key("$ref") && !object.contains_key("allOf"));
            object?
                .get("const")
                .filter(|value| value.is_string() || value.is_i64() || value.is_u64())
                .cloned()
        };
        let values =
            others.into_iter().map(constant).collect::<Option<Vec<Value>>>().filter(|v| !v.is_empty())?;
        let of_kind = Schema::from_iter([(
            "type".to_owned(),
            json!(if values[0].is_string() { "string" } else { "integer" }),
        )]);
        let kind =
            if schema.contains_key("type") || values.iter().any(|v| v.is_string() != values[0].is_string()) {
                schema
            } else {
                &of_kind
            };
        if nulls.is_empty() {
            return Some(self.enumeration(&values, kind, spot));
        }
        // The name itself belongs to the enum or null, in code that datamodel-code-generator writes.
        let name = format!("{}_Enum", spot.name);
        Some(PythonType::union([
            self.enumeration(&values, kind, SchemaSpot { name: &name, ..spot }),
            PythonType::Null,
        ]))
    }

    /// The property that distinguishes the members of a union: required in each of them, or with a default if the
    /// schema has `named` it, with a text that none of the others admits.
    fn tag(&self, members: &[PythonType], named: Option<&str>) -> Option<String> {
        let constants: Vec<Vec<(&str, &str)>> =
            members.iter().map(|member| self.constants(member, named)).collect();
        let (first, _) = constants.split_first().filter(|(_, others)| !others.is_empty())?;
        let distinguishes = |wire: &str| {
            let mut texts = HashSet::new();
            constants.iter().all(|of| of.iter().any(|(name, text)| *name == wire && texts.insert(*text)))
        };
        first.iter().map(|(wire, _)| *wire).find(|wire| distinguishes(wire)).map(str::to_owned)
    }

    /// Has the property `wire` of a union's member sent even where it is only a default: servers choose by it.
    fn mark_tag(&mut self, member: &PythonType, wire: &str) {
        let PythonType::Class(id) = member else { return };
        let ClassBody::Model(model) = &mut self.classes.0[id.0].body else { return };
        model
            .fields
            .iter_mut()
            .filter(|field| field.wire == wire)
            .for_each(|field| field.is_tag = !field.is_required);
    }

    /// The properties of a model that admit a single text, and could be a tag.
    fn constants(&self, member: &PythonType, named: Option<&str>) -> Vec<(&str, &str)> {
        let PythonType::Class(id) = member else { return Vec::new() };
        let ClassBody::Model(model) = &self.classes.get(*id).body else { return Vec::new() };
        // pydantic finds no tag in a field that may be `None`, as one without a default may.
        let is_candidate = |field: &&ModelField| {
            let has_default = field.default.as_ref().is_some_and(Value::is_string);
            field.is_required || has_default && named == Some(field.wire.as_str())
        };
        model
            .fields
            .iter()
            .filter(is_candidate)
            .filter_map(|field| Some((field.wire.as_str(), constant(&field.ty)?)))
            .collect()
    }
}

/// The one text that a type admits, if it admits nothing else.
fn constant(ty: &PythonType) -> Option<&str> {
    match ty {
        PythonType::Literal(values) if values.len() == 1 => values[0].as_str(),
        _ => None,
    }
}
