//! JSON values and texts as Python source.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// A JSON value as a Python expression.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => string(text),
        Value::Array(items) => list(items),
        Value::Object(members) => object(members),
    }
}

/// A JSON object as a Python dictionary.
pub(super) fn object(members: &Map<String, Value>) -> String {
    let members: Vec<_> = members.iter().map(|(k, v)| format!("{}: {}", string(k), value(v))).collect();
    format!("{{{}}}", members.join(", "))
}

/// JSON values as a Python list.
pub(super) fn list(values: &[Value]) -> String {
    format!("[{}]", values.iter().map(value).collect::<Vec<_>>().join(", "))
}

/// A text as a Python string in double quotes, on one line.
pub(super) fn string(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for character in text.chars() {
        match character {
            '"' => literal.push_str("\\\""),
            '\\' => literal.push_str("\\\\"),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            other => push_visible(&mut literal, other),
        }
    }
    literal.push('"');
    literal
}

/// A pattern as a raw string where that is possible.
pub(super) fn raw_string(pattern: &str) -> String {
    let is_plain = pattern.chars().all(|c| !c.is_control() && !is_deceptive(c) && c != '"');
    if is_plain && pattern.contains('\\') && !pattern.ends_with('\\') {
        format!("r\"{pattern}\"")
    } else {
        string(pattern)
    }
}

/// The longest line of imports that tools which sort them leave on one line.
const MAX_IMPORT_COLUMNS: usize = 88;

/// An import statement as isort writes it: capitals, then classes, then functions, in parentheses if it is long.
pub(super) fn import<'n>(module: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    let kind = |name: &str| match name {
        _ if name.len() > 1 && name.chars().all(|c| !c.is_lowercase()) => 0,
        _ if name.starts_with(char::is_uppercase) => 1,
        _ => 2,
    };
    names.sort_by_key(|name| (kind(name), *name));
    let line = format!("from {module} import {}", names.join(", "));
    if line.len() <= MAX_IMPORT_COLUMNS {
        return line;
    }
    format!("from {module} import (\n    {},\n)", names.join(",\n    "))
}

/// A docstring whose lines after the first stand under `indent`. NUL is left out: Python source must not hold it, and
/// nobody misses it.
pub(super) fn docstring(text: &str, indent: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\0', "");
    let lines: Vec<&str> = text.trim().split('\n').map(str::trim_end).collect();
    let mut literal = String::with_capacity(text.len() + 6);
    literal.push_str("\"\"\"");
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            literal.push('\n');
            if !line.is_empty() {
                literal.push_str(indent);
            }
        }
        let mut quotes = 0;
        for character in line.chars() {
            quotes = if character == '"' { quotes + 1 } else { 0 };
            match character {
                '\\' => literal.push_str("\\\\"),
                '"' if quotes == 3 => {
                    literal.push_str("\\\"");
                    quotes = 0;
                }
                '\t' => literal.push('\t'),
                other => push_visible(&mut literal, other),
            }
        }
    }
    if literal.ends_with('"') && literal.len() > 3 {
        literal.pop();
        // An escaped quote at the end is already safe.
        let is_escaped = literal.len() - literal.trim_end_matches('\\').len();
        literal.push_str(if is_escaped % 2 == 1 { "\"" } else { "\\\"" });
    }
    if lines.len() > 1 {
        literal.push('\n');
        literal.push_str(indent);
    }
    literal.push_str("\"\"\"");
    literal
}

/// A comment's text: one line, nothing invisible.
pub(super) fn comment(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\t' => line.push(' '),
            other => push_visible(&mut line, other),
        }
    }
    line
}

fn push_visible(literal: &mut String, character: char) {
    let code = character as u32;
    if !character.is_control() && !is_deceptive(character) {
        literal.push(character);
    } else if code <= 0xff {
        let _ = write!(literal, "\\x{code:02x}");
    } else if code <= 0xffff {
        let _ = write!(literal, "\\u{code:04x}");
    } else {
        let _ = write!(literal, "\\U{code:08x}");
    }
}

/// Characters that make source look other than it is, or that end a line for some readers and not for others.
fn is_deceptive(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_python_expressions() {
        let given = json!({"a": [true, null, 1, 2.5, "x\"\\\n\u{202e}é\u{0}"]});
        assert_eq!(value(&given), r#"{"a": [True, None, 1, 2.5, "x\"\\\n\u202eé\x00"]}"#);
    }

    #[test]
    fn docstrings_cannot_be_left() {
        for (text, expected) in [
            ("plain", r#""""plain""""#),
            ("ends in \"", r#""""ends in \"""""#),
            ("ends in \\", r#""""ends in \\""""#),
            ("\"\"\"", r#""""""\"""""#),
            ("a\"\"\"b", r#""""a""\"b""""#),
            ("NUL\0 and \u{202e}", r#""""NUL and \u202e""""#),
            ("two\n  lines", "\"\"\"two\n      lines\n    \"\"\""),
        ] {
            assert_eq!(docstring(text, "    "), expected, "{text}");
        }
    }
}
