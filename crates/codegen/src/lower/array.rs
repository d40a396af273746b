//! Arrays: lists, and tuples where every position has a schema of its own.

use serde_json::Value;

use super::object::length_checks;
use super::{ClassKind, Lowering, SchemaSpot};
use crate::document::Schema;
use crate::model::{PythonType, ValueCheck};

impl Lowering<'_> {
    /// Reads a schema of type `array`.
    pub(super) fn array(&mut self, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        // Up to 2019-09 `items` with a list was what `prefixItems` is since, and `additionalItems` what `items` is.
        let (prefix, rest) = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(Value::Array(prefix)), rest) => (prefix.as_slice(), rest),
            (_, Some(Value::Array(prefix))) => (prefix.as_slice(), schema.get("additionalItems")),
            (_, rest) => (&[][..], rest),
        };
        self.trail.push("[]".to_owned());
        let positions: Vec<PythonType> = prefix.iter().map(|item| self.lower(item, spot.item())).collect();
        let others = rest.unwrap_or(&Value::Bool(true));
        let rest = self.lower(others, spot.item());
        self.trail.pop();

        let mut checks = length_checks(schema, "minItems", "maxItems");
        let rest = if checks.is_empty() { rest } else { self.named_item(rest, spot) };
        if prefix.is_empty() && rest != PythonType::Never {
            return PythonType::List(Box::new(rest)).checked(checks);
        }
        let room = prefix.len() as u64;
        let least = checks.iter().find_map(|check| match check {
            ValueCheck::MinLength(least) => Some(*least),
            _ => None,
        });
        let mut most = checks.iter().find_map(|check| match check {
            ValueCheck::MaxLength(most) => Some(*most),
            _ => None,
        });
        if rest == PythonType::Never && most.is_none_or(|most| most > room) {
            checks.retain(|check| !matches!(check, ValueCheck::MaxLength(_)));
            checks.push(ValueCheck::MaxLength(room));
            most = Some(room);
        }
        if least == Some(room) && most == Some(room) {
            return PythonType::Tuple(positions);
        }
        let is_closed = most.is_some_and(|most| most <= room);
        let mut by_position = Schema::from_iter([("prefixItems".to_owned(), Value::Array(prefix.to_vec()))]);
        if !is_closed && rest != PythonType::Any {
            by_position.insert("items".to_owned(), others.clone());
        }
        match self.rule(&by_position) {
            Some(rule) => checks.push(ValueCheck::Rule(rule)),
            None => self.degrade("which item stands where is not checked".to_owned()),
        }
        let rest = if is_closed { PythonType::Never } else { rest };
        let item = match PythonType::union(positions.into_iter().chain([rest])) {
            PythonType::Never => PythonType::Any,
            item => item,
        };
        PythonType::List(Box::new(item)).checked(checks)
    }

    /// In a list with bounds, items with bounds have a name of their own, as datamodel-code-generator has it.
    fn named_item(&mut self, item: PythonType, spot: SchemaSpot<'_>) -> PythonType {
        match &item {
            PythonType::Checked(inner, _)
                if matches!(
                    **inner,
                    PythonType::Str | PythonType::Int | PythonType::Float | PythonType::List(_)
                ) =>
            {
                let id = self.claim(spot.item(), ClassKind::Model);
                self.fill(id, item);
                PythonType::Class(id)
            }
            _ => item,
        }
    }
}
