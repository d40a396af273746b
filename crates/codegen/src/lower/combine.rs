//! Schemas that refer to others or must hold together with others: `$ref` and `allOf`.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Lowering, SchemaSpot, TOO_LARGE, awaited, validating};
use crate::document::{RefTarget, Schema};
use crate::identifier;
use crate::merge::{merge, merge_values};
use crate::model::{ClassBody, PythonType};

/// The result of `allOf` and the keywords around it.
pub(super) enum FoldedSchema {
    /// A `$ref` and nothing else.
    Reference(String),
    Schema(Schema),
    /// No value can satisfy all the parts.
    Contradiction,
}

impl Lowering<'_> {
    /// Counts a schema put together from others as read, as large as it is. Whether there is enough left for it.
    pub(super) fn affords(&mut self, schema: &Schema) -> bool {
        self.readings_left = self.readings_left.saturating_sub(schema.values().map(nodes).sum());
        self.readings_left > 0
    }

    /// Follows a `$ref`; keywords beside it must hold as well.
    pub(super) fn reference(&mut self, reference: &str, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        let Some(target) = self.document.resolve(reference) else {
            return self.give_up(&format!("`$ref` to `{reference}`, which is not here"));
        };
        let siblings = validating(schema);
        if siblings.is_empty() {
            if self.leads_in_a_circle(&target) {
                return self.give_up(&format!("`$ref` to `{reference}`, which leads in a circle"));
            }
            if let Some(known) = self.known.get(&target.key) {
                return known.clone();
            }
            let name = identifier::class(&target.name);
            let slot = self.new_class(name.clone());
            self.known.insert(target.key.clone(), awaited(slot, target.schema));
            let inner = SchemaSpot { name: &name, is_item: false, slot: Some(slot), depth: spot.depth + 1 };
            let ty = self.lower(target.schema, inner);
            self.classes.0[slot.0].description = self.doc(target.schema).description;
            if matches!(self.classes.get(slot).body, ClassBody::Vacant) {
                self.fill(slot, ty);
                return PythonType::Class(slot);
            }
            // The class is perhaps not all of it: a list of values may have `null` among them.
            self.known.insert(target.key, ty.clone());
            return ty;
        }
        // Where the same combination stands below itself it is left to the plain reference.
        let key = format!("{} & {}", target.key, Value::Object(siblings.clone()));
        let whole = merge_values(target.schema, &Value::Object(siblings));
        match whole {
            None => PythonType::Never,
            Some(_) if self.active.contains(&key) => self.reference(reference, &Schema::new(), spot),
            Some(whole) if !whole.as_object().is_none_or(|whole| self.affords(whole)) => {
                self.give_up(TOO_LARGE)
            }
            Some(whole) => {
                self.active.insert(key.clone());
                let ty = self.lower(&whole, SchemaSpot { depth: spot.depth + 1, ..spot });
                self.active.remove(&key);
                ty
            }
        }
    }

    /// Whether nothing but `$ref`s comes after this one, round and round.
    fn leads_in_a_circle(&self, target: &RefTarget<'_>) -> bool {
        let mut seen = HashSet::from([target.key.clone()]);
        let mut schema = target.schema;
        while let Some(object) = schema.as_object().filter(|object| validating(object).is_empty())
            && let Some(next) =
                object.get("$ref").and_then(Value::as_str).and_then(|r| self.document.resolve(r))
        {
            if !seen.insert(next.key) {
                return true;
            }
            schema = next.schema;
        }
        false
    }

    /// Merges the parts of `allOf` into the schema around them, as far as they go into one.
    pub(super) fn fold_all_of(&mut self, schema: &Schema) -> Option<FoldedSchema> {
        let parts = schema.get("allOf")?.as_array()?;
        let mut whole = schema.clone();
        whole.shift_remove("allOf");
        if let ([Value::Object(only)], true) = (parts.as_slice(), validating(&whole).is_empty())
            && let Some(reference) = only.get("$ref").and_then(Value::as_str)
            && validating(only).is_empty()
        {
            return Some(FoldedSchema::Reference(reference.to_owned()));
        }
        let Some(mut parts) = self.flatten(parts) else { return Some(FoldedSchema::Contradiction) };
        let is_union = |of: &Schema| of.contains_key("anyOf") || of.contains_key("oneOf");
        if is_union(&whole) && !parts.is_empty() && parts.iter().all(is_union) {
            // Nothing to fold: the union is read first, and takes these parts into each of its branches.
            return None;
        }
        // Once the parts are one, nothing says any more what was evaluated in one of them and not in another.
        parts.iter_mut().for_each(|part| drop(part.shift_remove("unevaluatedProperties")));
        parts.push(whole);
        let mut whole = Schema::new();
        let mut left_over = Vec::new();
        for part in parts {
            if is_union(&whole) && is_union(&part) {
                left_over.push(Value::Object(part));
                continue;
            }
            match merge(&whole, &part) {
                Some(merged) => whole = merged,
                None => return Some(FoldedSchema::Contradiction),
            }
        }
        if !left_over.is_empty() {
            whole.insert("allOf".to_owned(), Value::Array(left_over));
        }
        Some(if self.affords(&whole) {
            FoldedSchema::Schema(whole)
        } else {
            FoldedSchema::Schema(Schema::new())
        })
    }

    /// The schemas that must hold together, `$ref` and `allOf` within them resolved. `None` if one of them is `false`.
    pub(super) fn flatten(&self, parts: &[Value]) -> Option<Vec<Schema>> {
        let mut flat = Vec::new();
        let mut seen = HashSet::new();
        let mut waiting: Vec<Value> = parts.iter().rev().cloned().collect();
        while let Some(part) = waiting.pop() {
            let part = match part {
                Value::Object(part) => part,
                Value::Bool(false) => return None,
                _ => continue,
            };
            let mut own = validating(&part);
            own.shift_remove("allOf");
            if !own.is_empty() {
                flat.push(own);
            }
            waiting.extend(part.get("allOf").and_then(Value::as_array).into_iter().flatten().rev().cloned());
            // What holds once need not be said twice, and may lead back here.
            let target = part.get("$ref").and_then(Value::as_str).and_then(|r| self.document.resolve(r));
            waiting.extend(target.filter(|target| seen.insert(target.key.clone())).map(|t| t.schema.clone()));
        }
        Some(flat)
    }

    /// `schema` with what its `$ref` points at merged in, so that it can be merged with others.
    pub(super) fn dereference(&self, schema: &Schema, steps: usize) -> Schema {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|r| self.document.resolve(r));
        match target.map(|target| target.schema) {
            Some(Value::Object(target)) if steps > 0 => {
                let target = self.dereference(target, steps - 1);
                merge(&target, &validating(schema)).unwrap_or_else(json_false)
            }
            Some(Value::Bool(false)) => json_false(),
            _ => validating(schema),
        }
    }
}

/// The number of JSON values in `value`.
fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

/// A schema that no value satisfies, in the form of an object.
fn json_false() -> Schema {
    Schema::from_iter([("not".to_owned(), json!({})), ("enum".to_owned(), json!([]))])
}
