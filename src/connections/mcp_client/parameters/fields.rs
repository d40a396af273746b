//! Typed reading of the JSON object that describes an MCP server; every error names the key.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::parameters_error::ParametersError;

/// An object's values by key; `null` counts as absent.
pub(super) struct ParameterFields<'a>(&'a Map<String, Value>);

impl<'a> ParameterFields<'a> {
    pub(crate) fn new(object: &'a Map<String, Value>) -> Self {
        Self(object)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Refuses keys other than `known`.
    pub(crate) fn only(
        &self,
        known: &'static [&'static str],
        kind: &'static str,
    ) -> Result<(), ParametersError> {
        match self.0.keys().find(|key| self.has(key) && !known.contains(&key.as_str())) {
            Some(key) => Err(ParametersError::UnknownKey { key: key.clone(), kind, known }),
            None => Ok(()),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, ParametersError> {
        self.get(key).map(|value| text(key, value)).transpose()
    }

    pub(super) fn required_text(&self, key: &'static str) -> Result<String, ParametersError> {
        let text = self.text(key)?.filter(|text| !text.trim().is_empty());
        text.ok_or(ParametersError::Empty { key })
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, ParametersError> {
        let number = |value: &Value| value.as_f64().ok_or_else(|| wrong_type(key, "a number", value));
        self.get(key).map(number).transpose()
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, ParametersError> {
        let flag = |value: &Value| value.as_bool().ok_or_else(|| wrong_type(key, "`true` or `false`", value));
        self.get(key).map(flag).transpose()
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, ParametersError> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => values
                .iter()
                .enumerate()
                .map(|(index, value)| text(&format!("{key}[{index}]"), value))
                .collect(),
            Some(other) => Err(wrong_type(key, "a list of strings", other)),
        }
    }

    pub(super) fn texts_by_name(&self, key: &str) -> Result<BTreeMap<String, String>, ParametersError> {
        match self.get(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(values)) => values
                .iter()
                .map(|(name, value)| Ok((name.clone(), text(&format!("{key}.{name}"), value)?)))
                .collect(),
            Some(other) => Err(wrong_type(key, "an object of strings", other)),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }
}

fn text(key: &str, value: &Value) -> Result<String, ParametersError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong_type(key, "a string", other)),
    }
}

pub(crate) fn wrong_type(key: &str, expected: &'static str, value: &Value) -> ParametersError {
    ParametersError::WrongType { key: key.to_owned(), expected, found: kind(value) }
}

/// The kind of a value, in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
