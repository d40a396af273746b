//! Types as annotations, and which names they need imported.

use std::collections::BTreeSet;

use serde_json::Value;

use super::literal;
use crate::tools::codegen::classes::Classes;
use crate::tools::codegen::model::{Check, ClassBody, Type};
use crate::tools::codegen::names;

/// The names that a module imports, by where they come from.
#[derive(Default)]
pub(super) struct Imports {
    pub(super) typing: BTreeSet<&'static str>,
    pub(super) pydantic: BTreeSet<&'static str>,
    pub(super) base: BTreeSet<&'static str>,
}

impl Imports {
    /// The annotation for `ty`, where `classes` are those it may name.
    pub(super) fn annotation(&mut self, ty: &Type, classes: &Classes) -> String {
        match ty {
            Type::Any => self.typing("Any").to_owned(),
            // A required property that nothing satisfies: any value is refused.
            Type::Never => {
                format!(
                    "{}[{}, {}({{\"enum\": []}})]",
                    self.typing("Annotated"),
                    self.typing("Any"),
                    self.base("Rule")
                )
            }
            Type::Null => "None".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Int => self.base("Int").to_owned(),
            Type::Float => self.base("Float").to_owned(),
            Type::Str => "str".to_owned(),
            Type::Literal(values) => {
                let values: Vec<_> = values.iter().map(literal::value).collect();
                format!("{}[{}]", self.typing("Literal"), values.join(", "))
            }
            Type::List(item) => format!("list[{}]", self.annotation(item, classes)),
            Type::Tuple(items) => {
                let items: Vec<_> = items.iter().map(|item| self.annotation(item, classes)).collect();
                let items = if items.is_empty() { "()".to_owned() } else { items.join(", ") };
                format!("{}[tuple[{items}], {}]", self.typing("Annotated"), self.base("FromList"))
            }
            Type::Dict { key, value } => {
                let key = self.annotation(key, classes);
                format!("dict[{key}, {}]", self.annotation(value, classes))
            }
            Type::Class(id) => classes.get(*id).name.clone(),
            Type::Union(members) => self.union(members, classes),
            Type::Tagged { members, wire } => {
                let union = self.union(members, classes);
                match discriminator(members, wire, classes) {
                    Some(name) => {
                        let (annotated, field) = (self.typing("Annotated"), self.pydantic("Field"));
                        format!("{annotated}[{union}, {field}(discriminator={})]", literal::string(name))
                    }
                    None => union,
                }
            }
            Type::Checked(inner, checks) => self.checked(inner, checks, classes),
        }
    }

    fn union(&mut self, members: &[Type], classes: &Classes) -> String {
        // `null` last, as Python's readers expect it.
        let (nulls, others): (Vec<_>, Vec<_>) = members.iter().partition(|member| **member == Type::Null);
        let members: Vec<_> =
            others.into_iter().chain(nulls).map(|member| self.annotation(member, classes)).collect();
        members.join(" | ")
    }

    fn checked(&mut self, inner: &Type, checks: &[Check], classes: &Classes) -> String {
        let mut constraints = Vec::new();
        let mut marks = Vec::new();
        for check in checks {
            match check {
                Check::Minimum(bound) => constraints.push(format!("ge={bound}")),
                Check::ExclusiveMinimum(bound) => constraints.push(format!("gt={bound}")),
                Check::Maximum(bound) => constraints.push(format!("le={bound}")),
                Check::ExclusiveMaximum(bound) => constraints.push(format!("lt={bound}")),
                Check::MultipleOf(unit) if !unit.is_f64() && *inner == Type::Int => {
                    constraints.push(format!("multiple_of={unit}"));
                }
                Check::MultipleOf(unit) => {
                    marks.push(format!("{}({{\"multipleOf\": {unit}}})", self.base("Rule")))
                }
                Check::MinLength(length) => constraints.push(format!("min_length={length}")),
                Check::MaxLength(length) => constraints.push(format!("max_length={length}")),
                Check::Pattern(pattern) => {
                    constraints.push(format!("pattern={}", literal::raw_string(pattern)))
                }
                Check::Rule(rule) => marks.push(format!("{}({})", self.base("Rule"), literal::object(rule))),
            }
        }
        if !constraints.is_empty() {
            marks.insert(0, format!("{}({})", self.pydantic("Field"), constraints.join(", ")));
        }
        let inner = self.annotation(inner, classes);
        format!("{}[{inner}, {}]", self.typing("Annotated"), marks.join(", "))
    }

    pub(super) fn typing(&mut self, name: &'static str) -> &'static str {
        debug_assert!(names::is_taken(name), "{name}");
        self.typing.insert(name);
        name
    }

    pub(super) fn pydantic(&mut self, name: &'static str) -> &'static str {
        debug_assert!(names::is_taken(name), "{name}");
        self.pydantic.insert(name);
        name
    }

    pub(super) fn base(&mut self, name: &'static str) -> &'static str {
        debug_assert!(names::is_taken(name), "{name}");
        self.base.insert(name);
        name
    }
}

/// The field that holds the property `wire` in all of the models, if it is called the same in all of them.
fn discriminator<'c>(members: &[Type], wire: &str, classes: &'c Classes) -> Option<&'c str> {
    let mut names = members.iter().map(|member| {
        let Type::Class(id) = member else { return None };
        let ClassBody::Model(model) = &classes.get(*id).body else { return None };
        model.fields.iter().find(|field| field.wire == wire).map(|field| field.name.as_str())
    });
    let first = names.next()??;
    names.all(|name| name == Some(first)).then_some(first)
}

/// Whether a type checker takes `value` for a `ty`, so that it can stand as a default just so.
pub(super) fn is_literally(value: &Value, ty: &Type) -> bool {
    match (ty, value) {
        // A mutable default belongs to a factory.
        (_, Value::Array(_) | Value::Object(_)) => false,
        (Type::Any, _) => true,
        (Type::Null, Value::Null) | (Type::Bool, Value::Bool(_)) | (Type::Str, Value::String(_)) => true,
        (Type::Int, Value::Number(number)) => !number.is_f64(),
        (Type::Float, Value::Number(_)) => true,
        (Type::Literal(values), value) => values.contains(value),
        (Type::Union(members), value) => members.iter().any(|member| is_literally(value, member)),
        (Type::Checked(inner, _), value) => is_literally(value, inner),
        _ => false,
    }
}
