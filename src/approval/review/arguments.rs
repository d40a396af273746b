//! Texts of the log as a person is shown them: short, in one line, with nothing invisible in them. Pure.

use serde_json::Value;

use crate::ground::text::visible::{PythonLiteral, TextUse, line};

/// The number of characters of an argument that are shown.
const VALUE: usize = 60;

/// The number of characters of all arguments that are shown.
const ALL: usize = 200;

/// The arguments of a call.
pub(super) fn of(arguments: Option<&Value>) -> String {
    let text = match arguments {
        None => String::new(),
        // Cut when it was logged.
        Some(Value::String(cut)) => shortened(cut, ALL),
        Some(Value::Object(fields)) => {
            let mut text = String::new();
            for (name, value) in fields {
                if !text.is_empty() {
                    text.push_str(", ");
                }
                text.push_str(&shortened(name, VALUE));
                text.push('=');
                text.push_str(&shown(value));
                if text.len() > ALL * 4 {
                    break;
                }
            }
            text
        }
        Some(other) => shown(other),
    };
    cut(&text, ALL)
}

/// A text in one line.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        // The mark of it is ours.
        Some((end, _)) => format!("{}…", line(&text[..end])),
        None => line(text),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => PythonLiteral(&cut(text, VALUE), TextUse::Part).to_string(),
        other => shortened(&other.to_string(), VALUE),
    }
}

fn cut(text: &str, limit: usize) -> String {
    crate::ground::text::shortened(text, limit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_short_and_harmless() {
        let shown = of(Some(&json!({"path": "/tmp/\u{1b}[2Jx", "n": 1, "body": "y".repeat(1000)})));
        let expected = format!("path='/tmp/\\x1b[2Jx', n=1, body='{}…'", "y".repeat(VALUE));
        assert_eq!(shown, expected);
        assert!(of(Some(&json!({"\u{202e}a": ["\u{7}"]}))).chars().all(|c| c.is_ascii() || c == '…'));
        assert!(of(Some(&json!("z".repeat(70_000)))).chars().count() <= ALL + 1);
        assert_eq!(of(None), "");
    }
}
