//! Arguments of tools: their schemas, and how they are read.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::JsonObject;
use serde::Deserialize as _;
use serde::de::{DeserializeOwned, Deserializer, Error as _};

/// The schema of a tool's arguments, written as a JSON literal.
pub(super) fn schema(literal: serde_json::Value) -> Arc<JsonObject> {
    match literal {
        serde_json::Value::Object(schema) => Arc::new(schema),
        other => unreachable!("a schema is an object, not {other}"),
    }
}

/// Reads a tool's arguments. The error is a text for the model, which can correct them.
pub(super) fn parse<T: DeserializeOwned>(arguments: &JsonObject) -> Result<T, String> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let place = match error.path().to_string() {
            path if path == "." => Cow::Borrowed("the arguments"),
            path => Cow::Owned(format!("the argument `{path}`")),
        };
        format!("{place} cannot be used: {}", error.inner())
    })
}

/// A number among the arguments, as some models and clients write it too: as a text.
pub(super) fn number<'de, D: Deserializer<'de>>(arguments: D) -> Result<Option<f64>, D::Error> {
    match serde_json::Value::deserialize(arguments)? {
        serde_json::Value::Null => Ok(None),
        value => {
            number_in(&value).map(Some).ok_or_else(|| D::Error::custom(format!("{value} is not a number")))
        }
    }
}

fn number_in(value: &serde_json::Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_refused_by_name() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its shape matters")]
        struct Arguments {
            count: u32,
        }
        let check = |arguments: serde_json::Value, expected: &str| {
            let serde_json::Value::Object(arguments) = arguments else { panic!("an object") };
            let refusal = parse::<Arguments>(&arguments).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        };
        check(json!({"count": "x"}), "the argument `count` cannot be used: invalid type");
        check(json!({}), "missing field `count`");
        check(json!({"count": 1, "cout": 2}), "unknown field `cout`");
    }
}
