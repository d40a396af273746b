//! The model of a tool's schemas: types, classes and fields for Python, not yet as text.

use std::collections::HashMap;

use serde_json::{Number, Value};

use super::document::Schema;

/// A class among the [`Class`]es of one schema, by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ClassId(pub(super) usize);

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
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
    List(Box<Type>),
    /// Exactly these items, in this order.
    Tuple(Vec<Type>),
    Dict {
        key: Box<Type>,
        value: Box<Type>,
    },
    Class(ClassId),
    Union(Vec<Type>),
    /// A union of classes that the property `wire` distinguishes.
    Tagged {
        members: Vec<Type>,
        wire: String,
    },
    Checked(Box<Type>, Vec<Check>),
}

/// A restriction that pydantic or the package's own base enforces.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Check {
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

impl Check {
    /// Whether this is a list of values without `null`.
    pub(super) fn refuses_null(&self) -> bool {
        let values = match self {
            Check::Rule(rule) => rule.get("enum").and_then(Value::as_array),
            _ => None,
        };
        values.is_some_and(|values| !values.contains(&Value::Null))
    }
}

/// A class of the generated module.
#[derive(Debug)]
pub(super) struct Class {
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
    Model(Model),
    Enum(Vec<Member>),
    /// A named type that is no object and no enum.
    Root(Type),
}

/// An object with declared properties.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Model {
    pub(super) fields: Vec<Field>,
    pub(super) extra: Extra,
    /// A schema that the whole object must satisfy besides.
    pub(super) rules: Schema,
}

/// The treatment of undeclared properties.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Extra {
    Allowed,
    Refused,
    Typed(Type),
}

/// One property of a [`Model`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    /// The property's name in JSON.
    pub(super) wire: String,
    pub(super) ty: Type,
    pub(super) is_required: bool,
    /// Whether it distinguishes the members of a union, so that a default is sent.
    pub(super) is_tag: bool,
    /// Whether the schema admits `null`, so that an explicit `None` is sent.
    pub(super) is_nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) doc: Doc,
}

/// The documentation of a field.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Doc {
    pub(super) description: Option<String>,
    /// Facts that the type does not show: a format, a pattern nobody checks, why a spot is `Any`.
    pub(super) notes: Vec<String>,
}

/// A member of an enum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
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
                if let Extra::Typed(ty) = &mut model.extra {
                    ty.for_each_class(visit);
                }
            }
            ClassBody::Root(ty) => ty.for_each_class(visit),
            ClassBody::Vacant | ClassBody::Enum(_) => {}
        }
    }
}

impl Type {
    fn for_each_class(&mut self, visit: &mut impl FnMut(&mut ClassId)) {
        match self {
            Type::Class(id) => visit(id),
            Type::List(inner) | Type::Checked(inner, _) => inner.for_each_class(visit),
            Type::Dict { key, value } => {
                key.for_each_class(visit);
                value.for_each_class(visit);
            }
            Type::Tuple(members) | Type::Tagged { members, .. } => {
                members.iter_mut().for_each(|member| member.for_each_class(visit));
            }
            Type::Union(members) => {
                members.iter_mut().for_each(|member| member.for_each_class(visit));
                *self = Type::union(std::mem::take(members));
            }
            _ => {}
        }
    }

    /// The union of `members`, flattened and without repetitions; `Any` swallows all the others.
    pub(super) fn union(members: impl IntoIterator<Item = Type>) -> Self {
        let mut unique: Vec<Type> = Vec::new();
        for member in members {
            let flattened = match member {
                Type::Union(members) => members,
                Type::Never => continue,
                other => vec![other],
            };
            for member in flattened {
                if member == Type::Any {
                    return Type::Any;
                }
                if !unique.contains(&member) {
                    unique.push(member);
                }
            }
        }
        match unique.len() {
            0 => Type::Never,
            1 => unique.swap_remove(0),
            _ => Type::Union(unique),
        }
    }

    /// Whether this is `Any`, even if checks follow.
    pub(super) fn is_any(&self) -> bool {
        matches!(self, Type::Any) || matches!(self, Type::Checked(inner, _) if inner.is_any())
    }

    /// Whether this is `null`, or a union of which it is a member.
    pub(super) fn admits_null(&self) -> bool {
        match self {
            Type::Null => true,
            Type::Union(members) => members.contains(&Type::Null),
            _ => false,
        }
    }

    /// This type with `checks` that its values must pass too.
    pub(super) fn checked(self, checks: Vec<Check>) -> Self {
        if checks.is_empty() { self } else { Type::Checked(Box::new(self), checks) }
    }

    /// This type without `null`, for a field whose own syntax says that null is possible.
    pub(super) fn without_null(&self) -> Self {
        match self {
            Type::Union(members) => Type::union(members.iter().filter(|m| **m != Type::Null).cloned()),
            other => other.clone(),
        }
    }
}
