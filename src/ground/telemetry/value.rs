//! The parts of spans and metrics: their kinds, attributes with values, and the decision about a call.

use std::borrow::Cow;
use std::time::Duration;

use super::names;

/// The longest name in an attribute, in bytes: code chooses some of them.
const NAME_BYTES: usize = 128;

/// Whose work a span is.
#[derive(Debug, Clone, Copy)]
pub(super) enum WorkKind {
    Server,
    Client,
    Internal,
}

/// The decision about a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecidedCall {
    /// Its id in the audit log, if there is one.
    pub(super) id: Option<String>,
    pub(super) by: &'static str,
    pub(super) waited: Duration,
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub(super) enum MetricInstrument {
    ServerOperation,
    ClientOperation,
    ServerSession,
    ClientSession,
    Cell,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AttributeValue {
    Text(Cow<'static, str>),
    Integer(i64),
    Number(f64),
}

/// An attribute.
pub(super) type SpanAttribute = (&'static str, AttributeValue);

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// A name, or the beginning of a long one.
pub(super) fn name(name: &str) -> String {
    if name.len() <= NAME_BYTES {
        name.to_owned()
    } else {
        format!("{}…", &name[..name.floor_char_boundary(NAME_BYTES)])
    }
}

impl DecidedCall {
    pub(super) fn attributes(&self) -> Vec<SpanAttribute> {
        let mut attributes: Vec<SpanAttribute> =
            vec![(names::DECIDED_BY, self.by.into()), (names::WAITED, self.waited.as_secs_f64().into())];
        attributes.extend(self.id.clone().map(|id| (names::CALL, id.into())));
        attributes
    }
}
