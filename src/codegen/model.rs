//! What a tool's schemas come to: types, classes and fields, as Python will have them but not yet as text.

use std::collections::HashSet;

use serde_json::{Number, Value};

use super::scope::{Numbering, Scope};

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
    /// One of these strings, integers and booleans.
    Literal(Vec<Value>),
    /// One of these values, compared as JSON: what [`Type::Literal`] cannot say.
    OneOf(Vec<Value>),
    List(Box<Type>),
    /// Exactly these items, in this order.
    Tuple(Vec<Type>),
    Dict {
        key: Box<Type>,
        value: Box<Type>,
    },
    Class(ClassId),
    Union(Vec<Type>),
    /// A union of classes that the property `wire` tells apart.
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
    UniqueItems,
}

/// A class of the generated module.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) body: Body,
}

/// What a class is.
#[derive(Debug)]
pub(super) enum Body {
    /// Reserved and then not needed, or not filled yet.
    Vacant,
    Model(Model),
    Enum(Vec<Member>),
    /// A named type that is no object and no enum.
    Root(Type),
}

/// An object with declared properties.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) fields: Vec<Field>,
    pub(super) extra: Extra,
}

/// What becomes of properties that are not declared.
#[derive(Debug)]
pub(super) enum Extra {
    Allowed,
    Refused,
    Typed(Type),
}

/// One property of a [`Model`].
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// The property's name in JSON.
    pub(super) wire: String,
    pub(super) ty: Type,
    pub(super) is_required: bool,
    /// Whether the schema admits `null`, so that an explicit `None` is sent.
    pub(super) is_nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) doc: Doc,
}

/// What a reader is told about a field.
#[derive(Debug, Default)]
pub(super) struct Doc {
    pub(super) description: Option<String>,
    /// Facts that the type does not show: a format, a pattern nobody checks, why a spot is `Any`.
    pub(super) notes: Vec<String>,
}

/// A member of an enum.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) value: Value,
}

impl Type {
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

/// The classes of one schema, the first of which is the schema itself.
#[derive(Debug, Default)]
pub(super) struct Classes(pub(super) Vec<Class>);

impl Classes {
    /// The class at `id`.
    pub(super) fn get(&self, id: ClassId) -> &Class {
        &self.0[id.0]
    }

    /// Settles what is known of the fields only when all classes are: which of them admit `null`, and that none is
    /// called like a class, because its value would stand for the class in the annotations after it.
    pub(super) fn settle_fields(&mut self) {
        let names: HashSet<String> = self.0.iter().map(|class| class.name.clone()).collect();
        for position in 0..self.0.len() {
            let Body::Model(model) = &self.0[position].body else { continue };
            let nullable: Vec<bool> = model.fields.iter().map(|field| self.admits_null(&field.ty)).collect();
            let Body::Model(model) = &mut self.0[position].body else { continue };
            let mut scope = Scope::with(names.iter().chain(model.fields.iter().map(|field| &field.name)));
            for (field, is_nullable) in model.fields.iter_mut().zip(nullable) {
                field.is_nullable = is_nullable;
                if names.contains(&field.name) {
                    field.name = scope.take(field.name.clone(), Numbering::Underscore);
                }
            }
        }
    }

    /// Whether a value of type `ty` may be `null`.
    fn admits_null(&self, ty: &Type) -> bool {
        self.admits_null_within(ty, self.0.len())
    }

    /// `steps` bounds the walk through named types that lead to each other.
    fn admits_null_within(&self, ty: &Type, steps: usize) -> bool {
        match ty {
            Type::Any | Type::Null => true,
            Type::OneOf(values) => values.contains(&Value::Null),
            Type::Union(members) | Type::Tagged { members, .. } => {
                members.iter().any(|member| self.admits_null_within(member, steps))
            }
            Type::Checked(inner, _) => self.admits_null_within(inner, steps),
            Type::Class(id) => match &self.get(*id).body {
                Body::Root(inner) => steps > 0 && self.admits_null_within(inner, steps - 1),
                _ => false,
            },
            _ => false,
        }
    }
}
