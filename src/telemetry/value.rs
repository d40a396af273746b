//! What spans and metrics are told by: their kinds, and attributes with values.

use std::borrow::Cow;

/// The longest name in an attribute, in bytes: code chooses some of them.
const NAME_BYTES: usize = 128;

/// Whose work a span is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Server,
    Client,
    Internal,
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub(super) enum Instrument {
    ServerOperation,
    ClientOperation,
    ServerSession,
    ClientSession,
    Cell,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(Cow<'static, str>),
    Integer(i64),
    Number(f64),
}

/// An attribute.
pub(super) type Attribute = (&'static str, Value);

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// A name, or the beginning of a long one.
pub(super) fn name(name: &str) -> String {
    match name.len() <= NAME_BYTES {
        true => name.to_owned(),
        false => format!("{}…", &name[..name.floor_char_boundary(NAME_BYTES)]),
    }
}
