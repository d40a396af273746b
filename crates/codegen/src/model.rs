//! The model of a tool's schemas: types, classes and fields for Python, not yet as text.

use std::collections::HashMap;

use serde_json::{Number, Value};

use super::document::Schema;

/// A class among the [`PythonClass`]es of one schema, by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ClassId(pub(super) usize);

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PythonType {
    Any,
    /// No value at all: the schema `false`.
    Never,
    Null,
    Bool,
    Int,
    Float,
    Str,
    /// One of these strings.
    Literal(Vec<Value>),
    List(Box<PythonType>),
    /// Exactly these items, in this order.
    Tuple(Vec<PythonType>),
    Dict {
        key: Box<PythonType>,
        value: Box<PythonType>,
    },
    Class(ClassId),
    Union(Vec<PythonType>),
    /// A union of classes that the property `wire` distinguishes.
    Tagged {
        members: Vec<PythonType>,
        wire: String,
    },
    Checked(Box<PythonType>, Vec<ValueCheck>),
}

/// A restriction that pydantic or the package's own base enforces.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueCheck {
    Minimum(Number),
    ExclusiveMinimum(Number),
    Maximum(Number),
    ExclusiveMaximum(Number),
    MultipleOf(Number),
    MinLength(u64),
    MaxLength(u64),
    /// In Python's syntax.
    Pattern(String),
    /// A schema that the value must satisfy.
    Rule(Schema),
}

impl ValueCheck {
    /// Whether this is a list of values without `null`.
    pub(super) fn refuses_null(&self) -> bool {
        let values = match self {
            ValueCheck::Rule(rule) => rule.get("enum").and_then(Value::as_array),
            _ => None,
        };
        values.is_some_and(|values| !values.contains(&Value::Null))
    }
}

/// A class of the generated module.
#[derive(Debug)]
pub(super) struct PythonClass {
    pub(super) name: String,
    /// The preferred name, before conflicts are resolved.
    pub(super) wanted: String,
    /// The text that documents it.
    pub(super) description: Option<String>,
    /// Whether the tool's other schema has the very same class, so that it need not be written again.
    pub(super) is_duplicate: bool,
    /// Whether its schema also admits `null`, which is no instance of it.
    pub(super) is_nullable: bool,
    pub(super) body: ClassBody,
}

/// The kind of a class, with its content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClassBody {
    /// Reserved, and not filled yet or not needed.
    Vacant,
    Model(ClassModel),
    Enum(Vec<EnumMember>),
    /// A named type that is no object and no enum.
    Root(PythonType),
}

/// An object with declared properties.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClassModel {
    pub(super) fields: Vec<ModelField>,
    pub(super) extra: ExtraProperties,
    /// A schema that the whole object must satisfy besides.
    pub(super) rules: Schema,
}

/// The treatment of undeclared properties.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ExtraProperties {
    Allowed,
    Refused,
    Typed(PythonType),
}

/// One property of a [`ClassModel`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModelField {
    pub(super) name: String,
    /// The property's name in JSON.
    pub(super) wire: String,
    pub(super) ty: PythonType,
    pub(super) is_required: bool,
    /// Whether it distinguishes the members of a union, so that a default is sent.
    pub(super) is_tag: bool,
    /// Whether the schema admits `null`, so that an explicit `None` is sent.
    pub(super) is_nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) doc: FieldDoc,
}

/// The documentation of a field.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FieldDoc {
    pub(super) description: Option<String>,
    /// Facts that the type does not show: a format, a pattern nobody checks, why a spot is `Any`.
    pub(super) notes: Vec<String>,
}

/// A member of an enum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EnumMember {
    pub(super) name: String,
    pub(super) value: Value,
}

impl ClassBody {
    /// The same with other classes, if each class in it has a counterpart.
    pub(super) fn translated(&self, counterparts: &HashMap<ClassId, ClassId>) -> Option<ClassBody> {
        let mut missing = false;
        let mut body = self.clone();
        body.for_each_class(&mut |id| match counterparts.get(id) {
            Some(counterpart) => *id = *counterpart,
            None => missing = true,
        });
        (!missing).then_some(body)
    }

    pub(super) fn for_each_class(&mut self, visit: &mut impl FnMut(&mut ClassId)) {
        match self {
            ClassBody::Model(model) => {
                model.fields.iter_mut().for_each(|field| field.ty.for_each_class(visit));
                if let ExtraProperties::Typed(ty) = &mut model.extra {
                    ty.for_each_class(visit);
                }
            }
            ClassBody::Root(ty) => ty.for_each_class(visit),
            ClassBody::Vacant | ClassBody::Enum(_) => {}
        }
    }
}

impl PythonType {
    fn for_each_class(&mut self, visit: &mut impl FnMut(&mut ClassId)) {
        match self {
            PythonType::Class(id) => visit(id),
            PythonType::List(inner) | PythonType::Checked(inner, _) => inner.for_each_class(visit),
            PythonType::Dict { key, value } => {
                key.for_each_class(visit);
                value.for_each_class(visit);
            }
            PythonType::Tuple(members) | PythonType::Tagged { members, .. } => {
                members.iter_mut().for_each(|member| member.for_each_class(visit));
            }
            PythonType::Union(members) => {
                members.iter_mut().for_each(|member| member.for_each_class(visit));
                *self = PythonType::union(std::mem::take(members));
            }
            _ => {}
        }
    }

    /// The union of `members`, flattened and without repetitions; `Any` swallows all the others.
    pub(super) fn union(members: impl IntoIterator<Item = PythonType>) -> Self {
        let mut unique: Vec<PythonType> = Vec::new();
        for member in members {
            let flattened = match member {
                PythonType::Union(members) => members,
                PythonType::Never => continue,
                other => vec![other],
            };
            for member in flattened {
                if member == PythonType::Any {
                    return PythonType::Any;
                }
                if !unique.contains(&member) {
                    unique.push(member);
                }
            }
        }
        match unique.len() {
            0 => PythonType::Never,
            1 => unique.swap_remove(0),
            _ => PythonType::Union(unique),
        }
    }

    /// Whether this is `Any`, even if checks follow.
    pub(super) fn is_any(&self) -> bool {
        matches!(self, PythonType::Any) || matches!(self, PythonType::Checked(inner, _) if inner.is_any())
    }

    /// Whether this is `null`, or a union of which it is a member.
    pub(super) fn admits_null(&self) -> bool {
        match self {
            PythonType::Null => true,
            PythonType::Union(members) => members.contains(&PythonType::Null),
            _ => false,
        }
    }

    /// This type with `checks` that its values must pass too.
    pub(super) fn checked(self, checks: Vec<ValueCheck>) -> Self {
        if checks.is_empty() { self } else { PythonType::Checked(Box::new(self), checks) }
    }

    /// This type without `null`, for a field whose own syntax says that null is possible.
    pub(super) fn without_null(&self) -> Self {
        match self {
            PythonType::Union(members) => {
                PythonType::union(members.iter().filter(|m| **m != PythonType::Null).cloned())
            }
            other => other.clone(),
        }
    }
}
