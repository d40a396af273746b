//! JSON in the text of a result. `_base.py` of the generated packages reads it in the same way.

use serde_json::{Deserializer, Value};

/// What a result holds.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    /// One JSON object or array.
    Value(Value),
    /// Several, one after the other: a server that returns a list often sends a text for each item.
    Sequence(Vec<Value>),
}

/// The content of a result: structured, or a text that is JSON, ends with JSON, or has JSON in a fenced block.
///
/// An object with nothing but the text `result` is what the MCP SDK for Python makes of a text.
pub(super) fn content(result: &Value) -> Option<Content> {
    match result {
        Value::Object(members) => match members.get("result") {
            Some(Value::String(text)) if members.len() == 1 => in_text(text),
            _ => Some(Content::Value(result.clone())),
        },
        Value::Array(_) => Some(Content::Value(result.clone())),
        Value::String(text) => in_text(text),
        _ => None,
    }
}

fn in_text(text: &str) -> Option<Content> {
    all_of(text).or_else(|| all_of(fenced(text)?)).or_else(|| all_of(tail(text)?))
}

/// The content of a text that is nothing but JSON.
fn all_of(text: &str) -> Option<Content> {
    let values: Vec<Value> = Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()?;
    if values.is_empty() || !values.iter().all(|value| value.is_object() || value.is_array()) {
        return None;
    }
    match <[Value; 1]>::try_from(values) {
        Ok([value]) => Some(Content::Value(value)),
        Err(values) => Some(Content::Sequence(values)),
    }
}

/// What is in the first fenced block of JSON.
fn fenced(text: &str) -> Option<&str> {
    let (_, block) = text.split_once("```json\n")?;
    Some(block.split_once("\n```")?.0)
}

/// What begins with the first line that could begin JSON.
fn tail(text: &str) -> Option<&str> {
    let begins = |at: &usize| text[*at..].starts_with(['{', '[']);
    let start = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).find(begins)?;
    Some(&text[start..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(result: Value, content_is: Option<Content>) {
        assert_eq!(content(&result), content_is, "{result}");
    }

    #[test]
    fn json_is_found_in_texts() {
        let one = || Some(Content::Value(json!({"a": 1})));
        let two = || Some(Content::Sequence(vec![json!({"a": 1}), json!([2])]));
        for text in [
            r#"{"a": 1}"#,
            " {\n\"a\": 1}\n",
            "Found 1:\n{\"a\": 1}",
            "Here it is:\n\n```json\n{\"a\": 1}\n```\nAnything else?",
        ] {
            check(json!(text), one());
            check(json!({"result": text}), one());
        }
        for text in ["{\"a\": 1}[2]", "{\"a\": 1}\n\n[2]\n", "Both:\n{\"a\": 1}\n[2]"] {
            check(json!(text), two());
        }
        for text in ["", "x", "5", "[", "{\"a\": 1} and more", "[1] [link]", "{\"a\": 1}\n5", "NaN", "[NaN]"]
        {
            check(json!(text), None);
        }
    }

    #[test]
    fn structured_results_are_what_they_are() {
        check(json!({"result": [1]}), Some(Content::Value(json!({"result": [1]}))));
        check(json!({"result": "{}", "a": 1}), Some(Content::Value(json!({"result": "{}", "a": 1}))));
        check(json!([]), Some(Content::Value(json!([]))));
    }
}
