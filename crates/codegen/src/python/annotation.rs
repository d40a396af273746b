//! Types as annotations, and which names they need imported.

use std::collections::BTreeSet;

use serde_json::Value;

use super::literal;
use crate::classes::SchemaClasses;
use crate::model::{ClassBody, PythonType, ValueCheck};
use crate::reserved;

/// The names that a module imports, by where they come from.
#[derive(Default)]
pub(super) struct ModuleImports {
    pub(super) typing: BTreeSet<&'static str>,
    pub(super) pydantic: BTreeSet<&'static str>,
    pub(super) base: BTreeSet<&'static str>,
}

impl ModuleImports {
    /// The annotation for `ty`, where `classes` are those it may name.
    pub(super) fn annotation(&mut self, ty: &PythonType, classes: &SchemaClasses) -> String {
        match ty {
            PythonType::Any => self.typing("Any").to_owned(),
            // A required property that nothing satisfies: any value is refused.
            PythonType::Never => {
                format!(
                    "{}[{}, {}({{\"enum\": []}})]",
                    self.typing("Annotated"),
                    self.typing("Any"),
                    self.base("Rule")
                )
            }
            PythonType::Null => "None".to_owned(),
            PythonType::Bool => "bool".to_owned(),
            PythonType::Int => self.base("Int").to_owned(),
            PythonType::Float => self.base("Float").to_owned(),
            PythonType::Str => "str".to_owned(),
            PythonType::Literal(values) => {
                let values: Vec<_> = values.iter().map(literal::value).collect();
                format!("{}[{}]", self.typing("Literal"), values.join(", "))
            }
            PythonType::List(item) => format!("list[{}]", self.annotation(item, classes)),
            PythonType::Tuple(items) => {
                let items: Vec<_> = items.iter().map(|item| self.annotation(item, classes)).collect();
                let items = if items.is_empty() { "()".to_owned() } else { items.join(", ") };
                format!("{}[tuple[{items}], {}]", self.typing("Annotated"), self.base("FromList"))
            }
            PythonType::Dict { key, value } => {
                let key = self.annotation(key, classes);
                format!("dict[{key}, {}]", self.annotation(value, classes))
            }
            PythonType::Class(id) => classes.get(*id).name.clone(),
            PythonType::Union(members) => self.union(members, classes),
            PythonType::Tagged { members, wire } => {
                let union = self.union(members, classes);
                match discriminator(members, wire, classes) {
                    Some(name) => {
                        let annotated = self.typing("Annotated");
                        let field = self.pydantic("Field");
                        format!("{annotated}[{union}, {field}(discriminator={})]", literal::string(name))
                    }
                    None => union,
                }
            }
            PythonType::Checked(inner, checks) => self.checked(inner, checks, classes),
        }
    }

    fn union(&mut self, members: &[PythonType], classes: &SchemaClasses) -> String {
        // `null` last, as Python's readers expect it.
        let (nulls, others): (Vec<_>, Vec<_>) =
            members.iter().partition(|member| **member == PythonType::Null);
        let members: Vec<_> =
            others.into_iter().chain(nulls).map(|member| self.annotation(member, classes)).collect();
        members.join(" | ")
    }

    fn checked(&mut self, inner: &PythonType, checks: &[ValueCheck], classes: &SchemaClasses) -> String {
        let mut constraints = Vec::new();
        let mut marks = Vec::new();
        for check in checks {
            match check {
                ValueCheck::Minimum(bound) => constraints.push(format!("ge={bound}")),
                ValueCheck::ExclusiveMinimum(bound) => constraints.push(format!("gt={bound}")),
                ValueCheck::Maximum(bound) => constraints.push(format!("le={bound}")),
                ValueCheck::ExclusiveMaximum(bound) => constraints.push(format!("lt={bound}")),
                ValueCheck::MultipleOf(unit) if !unit.is_f64() && *inner == PythonType::Int => {
                    constraints.push(format!("multiple_of={unit}"));
                }
                ValueCheck::MultipleOf(unit) => {
                    marks.push(format!("{}({{\"multipleOf\": {unit}}})", self.base("Rule")))
                }
                ValueCheck::MinLength(length) => constraints.push(format!("min_length={length}")),
                ValueCheck::MaxLength(length) => constraints.push(format!("max_length={length}")),
                ValueCheck::Pattern(pattern) => {
                    constraints.push(format!("pattern={}", literal::raw_string(pattern)))
                }
                ValueCheck::Rule(rule) => {
                    marks.push(format!("{}({})", self.base("Rule"), literal::object(rule)))
                }
            }
        }
        if !constraints.is_empty() {
            marks.insert(0, format!("{}({})", self.pydantic("Field"), constraints.join(", ")));
        }
        let inner = self.annotation(inner, classes);
        format!("{}[{inner}, {}]", self.typing("Annotated"), marks.join(", "))
    }

    pub(super) fn typing(&mut self, name: &'static str) -> &'static str {
        debug_assert!(reserved::is_taken(name), "{name}");
        self.typing.insert(name);
        name
    }

    pub(super) fn pydantic(&mut self, name: &'static str) -> &'static str {
        debug_assert!(reserved::is_taken(name), "{name}");
        self.pydantic.insert(name);
        name
    }

    pub(super) fn base(&mut self, name: &'static str) -> &'static str {
        debug_assert!(reserved::is_taken(name), "{name}");
        self.base.insert(name);
        name
    }
}

/// The field that holds the property `wire` in all of the models, if it is called the same in all of them.
fn discriminator<'c>(members: &[PythonType], wire: &str, classes: &'c SchemaClasses) -> Option<&'c str> {
    let mut names = members.iter().map(|member| {
        let PythonType::Class(id) = member else { return None };
        let ClassBody::Model(model) = &classes.get(*id).body else { return None };
        model.fields.iter().find(|field| field.wire == wire).map(|field| field.name.as_str())
    });
    let first = names.next()??;
    names.all(|name| name == Some(first)).then_some(first)
}

/// Whether a type checker takes `value` for a `ty`, so that it can stand as a default just so.
pub(super) fn is_literally(value: &Value, ty: &PythonType) -> bool {
    match (ty, value) {
        // A mutable default belongs to a factory.
        (_, Value::Array(_) | Value::Object(_)) => false,
        (PythonType::Any, _) => true,
        (PythonType::Null, Value::Null)
        | (PythonType::Bool, Value::Bool(_))
        | (PythonType::Str, Value::String(_)) => true,
        (PythonType::Int, Value::Number(number)) => !number.is_f64(),
        (PythonType::Float, Value::Number(_)) => true,
        (PythonType::Literal(values), value) => values.contains(value),
        (PythonType::Union(members), value) => members.iter().any(|member| is_literally(value, member)),
        (PythonType::Checked(inner, _), value) => is_literally(value, inner),
        _ => false,
    }
}
