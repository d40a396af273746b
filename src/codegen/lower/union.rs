//! `anyOf` and `oneOf`.

use serde_json::Value;

use super::{Lowering, Site, validating};
use crate::codegen::document::Schema;
use crate::codegen::merge::merge;
use crate::codegen::model::{Body, Type};

impl Lowering<'_> {
    /// Reads a union; the keywords beside it hold for every branch.
    pub(super) fn union(
        &mut self,
        keyword: &str,
        branches: &[Value],
        schema: &Schema,
        site: Site<'_>,
    ) -> Type {
        let mut shared = validating(schema);
        shared.remove(keyword);
        let mut members = Vec::with_capacity(branches.len());
        for branch in branches {
            let is_plain = shared.is_empty() || is_object_reference(branch, &shared);
            let member = match branch {
                _ if is_plain => self.lower(branch, site.part()),
                Value::Bool(true) => self.lower(&Value::Object(shared.clone()), site.part()),
                Value::Object(branch) => {
                    let branch = self.dereference(branch, super::MAX_DEPTH);
                    match merge(&shared, &branch) {
                        Some(both) => self.lower(&Value::Object(both), site.part()),
                        None => Type::Never,
                    }
                }
                _ => Type::Never,
            };
            members.push(member);
        }
        if let Some(wire) = self.tag(&members) {
            return Type::Tagged { members, wire };
        }
        Type::union(members)
    }

    /// The property by which the members of a union can be told apart: required in each of them, with a text that none
    /// of the others admits.
    fn tag(&self, members: &[Type]) -> Option<String> {
        let constants: Vec<Vec<(&str, &str)>> = members.iter().map(|member| self.constants(member)).collect();
        let (first, _) = constants.split_first().filter(|(_, others)| !others.is_empty())?;
        let tells_apart = |wire: &str| {
            let mut texts = std::collections::HashSet::new();
            constants.iter().all(|of| of.iter().any(|(name, text)| *name == wire && texts.insert(*text)))
        };
        first.iter().map(|(wire, _)| *wire).find(|wire| tells_apart(wire)).map(str::to_owned)
    }

    /// The required properties of a model that admit a single text.
    fn constants(&self, member: &Type) -> Vec<(&str, &str)> {
        let Type::Class(id) = member else { return Vec::new() };
        let Body::Model(model) = &self.classes.get(*id).body else { return Vec::new() };
        let required = model.fields.iter().filter(|field| field.is_required);
        required.filter_map(|field| Some((field.wire.as_str(), constant(&field.ty)?))).collect()
    }
}

/// Whether `branch` is a `$ref` beside which only the type is repeated: it can keep its class then.
fn is_object_reference(branch: &Value, shared: &Schema) -> bool {
    branch.get("$ref").is_some() && shared.len() == 1 && shared.contains_key("type")
}

/// The one text that a type admits, if it admits nothing else.
fn constant(ty: &Type) -> Option<&str> {
    match ty {
        Type::Literal(values) if values.len() == 1 => values[0].as_str(),
        _ => None,
    }
}
