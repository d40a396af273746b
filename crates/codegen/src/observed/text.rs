//! JSON in the text of a result. `ipybox_results.py` reads it in the same way.

use serde_json::{Deserializer, Value};

/// The content of a result.
#[derive(Debug, PartialEq)]
pub(super) enum ObservedContent {
    /// One JSON object or array.
    Value(Value),
    /// Several, one after the other: a server that returns a list often sends a text for each item.
    Sequence(Vec<Value>),
}

/// The content of a result: structured, or a text that is JSON, or has it in a fenced block or in lines of its own.
///
/// An object with nothing but the text `result` is how the MCP SDK for Python wraps a text.
pub(super) fn content(result: &Value) -> Option<ObservedContent> {
    match result {
        Value::Object(members) => match members.get("result") {
            Some(Value::String(text)) if members.len() == 1 => in_text(text),
            _ => Some(ObservedContent::Value(result.clone())),
        },
        Value::Array(_) => Some(ObservedContent::Value(result.clone())),
        Value::String(text) => in_text(text),
        _ => None,
    }
}

/// The number of lines that only look like JSON which are tried in a text.
const ATTEMPTS: usize = 1_000;

fn in_text(text: &str) -> Option<ObservedContent> {
    all_of(text).or_else(|| all_of(fenced(text)?)).or_else(|| in_lines(text))
}

/// The content of a text that is nothing but JSON.
fn all_of(text: &str) -> Option<ObservedContent> {
    let values: Vec<Value> = Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()?;
    if values.iter().all(is_container) { one_or_several(values) } else { None }
}

fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

fn one_or_several(values: Vec<Value>) -> Option<ObservedContent> {
    match <[Value; 1]>::try_from(values) {
        Ok([value]) => Some(ObservedContent::Value(value)),
        Err(values) if values.is_empty() => None,
        Err(values) => Some(ObservedContent::Sequence(values)),
    }
}

/// The content of the first fenced block of JSON.
fn fenced(text: &str) -> Option<&str> {
    let (_, block) = text.split_once("```json\n")?;
    Some(block.split_once("\n```")?.0)
}

/// The objects and arrays in a text that begin with a line and end with one, with prose between them.
fn in_lines(text: &str) -> Option<ObservedContent> {
    let mut values = Vec::new();
    let mut at = 0;
    let mut attempts = 0;
    while attempts < ATTEMPTS
        && let Some(start) = begin_of_json(text, at)
    {
        let mut read = Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let value = read.next().and_then(Result::ok);
        let end = start + read.byte_offset();
        let rest = text[end..].split('\n').next().unwrap_or_default();
        match value.filter(|value| is_container(value) && rest.trim_matches([' ', '\t', '\r']).is_empty()) {
            Some(value) => {
                values.push(value);
                at = end + rest.len();
            }
            None => {
                attempts += 1;
                at = start + 1;
            }
        }
    }
    one_or_several(values)
}

/// The first place from `at` on where a line could begin JSON.
fn begin_of_json(text: &str, at: usize) -> Option<usize> {
    let is_begin = |start: &usize| text[*start..].starts_with(['{', '[']);
    let first = (at == 0).then_some(0);
    first.into_iter().chain(text[at..].match_indices('\n').map(|(line, _)| at + line + 1)).find(is_begin)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(result: Value, content_is: Option<ObservedContent>) {
        assert_eq!(content(&result), content_is, "{result}");
    }

    #[test]
    fn json_is_found_in_texts() {
        let one = || Some(ObservedContent::Value(json!({"a": 1})));
        let two = || Some(ObservedContent::Sequence(vec![json!({"a": 1}), json!([2])]));
        for text in [
            r#"{"a": 1}"#,
            " {\n\"a\": 1}\n",
            "Found 1:\n{\"a\": 1}",
            "Here it is:\n\n```json\n{\"a\": 1}\n```\nAnything else?",
            "Found 1:\n{\"a\": 1}\nAsk for more.",
            "[1] [link]\n{\n\"a\": 1\n}  \nand more",
            "{\"a\": 1}\n5",
        ] {
            check(json!(text), one());
            check(json!({"result": text}), one());
        }
        for text in [
            "{\"a\": 1}[2]",
            "{\"a\": 1}\n\n[2]\n",
            "Both:\n{\"a\": 1}\n[2]",
            "One:\n{\"a\": 1}\nTwo:\n[2]\n.",
        ] {
            check(json!(text), two());
        }
        for text in ["", "x", "5", "[", "{\"a\": 1} and more", "[1] [link]", "- {\"a\": 1}", "NaN", "[NaN]"] {
            check(json!(text), None);
        }
    }

    #[test]
    fn structured_results_are_what_they_are() {
        check(json!({"result": [1]}), Some(ObservedContent::Value(json!({"result": [1]}))));
        check(json!({"result": "{}", "a": 1}), Some(ObservedContent::Value(json!({"result": "{}", "a": 1}))));
        check(json!([]), Some(ObservedContent::Value(json!([]))));
    }
}
