//! An action as a human reads it.

use std::fmt::{self, Formatter};

use serde_json::Value;

use super::action::Action;

/// Writes `server.tool(name=value)`, the values as Python literals.
pub(super) fn call(action: &Action, formatter: &mut Formatter<'_>) -> fmt::Result {
    write!(formatter, "{}.{}(", Plain(&action.server_name), Plain(&action.tool_name))?;
    for (index, (name, value)) in action.tool_args.iter().enumerate() {
        if index > 0 {
            formatter.write_str(", ")?;
        }
        write!(formatter, "{}=", Plain(name))?;
        literal(value, formatter)?;
    }
    formatter.write_str(")")
}

fn literal(value: &Value, formatter: &mut Formatter<'_>) -> fmt::Result {
    match value {
        Value::Null => formatter.write_str("None"),
        Value::Bool(true) => formatter.write_str("True"),
        Value::Bool(false) => formatter.write_str("False"),
        Value::Number(number) => write!(formatter, "{number}"),
        Value::String(text) => string(text, formatter),
        Value::Array(items) => {
            formatter.write_str("[")?;
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    formatter.write_str(", ")?;
                }
                literal(item, formatter)?;
            }
            formatter.write_str("]")
        }
        Value::Object(members) => {
            formatter.write_str("{")?;
            for (index, (key, member)) in members.iter().enumerate() {
                if index > 0 {
                    formatter.write_str(", ")?;
                }
                string(key, formatter)?;
                formatter.write_str(": ")?;
                literal(member, formatter)?;
            }
            formatter.write_str("}")
        }
    }
}

/// As Python's `repr`: in single quotes, unless there are only single ones in it.
fn string(text: &str, formatter: &mut Formatter<'_>) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    write!(formatter, "{quote}")?;
    for character in text.chars() {
        match character {
            '\\' => formatter.write_str("\\\\")?,
            _ if character == quote => write!(formatter, "\\{quote}")?,
            '\n' => formatter.write_str("\\n")?,
            '\r' => formatter.write_str("\\r")?,
            '\t' => formatter.write_str("\\t")?,
            _ => harmless(character, formatter)?,
        }
    }
    write!(formatter, "{quote}")
}

/// A name, with what could mislead escaped.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| harmless(character, formatter))
    }
}

/// Writes `character`, or its escape if it steers a terminal, is invisible, or turns the direction of what follows.
fn harmless(character: char, formatter: &mut Formatter<'_>) -> fmt::Result {
    let code = u32::from(character);
    match code {
        0x00..=0x1f | 0x7f..=0x9f => write!(formatter, "\\x{code:02x}"),
        // Soft hyphen, Arabic letter mark, zero-width and directional characters, line and paragraph separators,
        // invisible operators, directional isolates, variation selectors, byte order mark, tags.
        0xad
        | 0x61c
        | 0x115f
        | 0x1160
        | 0x180e
        | 0x200b..=0x200f
        | 0x2028..=0x202e
        | 0x2060..=0x206f
        | 0x3164
        | 0xfeff
        | 0xffa0
        | 0xfff9..=0xfffb => write!(formatter, "\\u{code:04x}"),
        0xe0000..=0xe0fff => write!(formatter, "\\U{code:08x}"),
        _ => write!(formatter, "{character}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::action::{Action, Target};

    fn check(tool_args: serde_json::Value, expected: &str) {
        let serde_json::Value::Object(tool_args) = tool_args else { panic!("an object") };
        let action = Action {
            server_name: "s".to_owned(),
            tool_name: "t\u{1b}".to_owned(),
            tool_args,
            target: Target::Kernel,
            annotations: None,
            definition: None,
        };
        let (request, _) = super::super::ApprovalRequest::new(std::sync::Arc::new(action));
        assert_eq!(request.to_string(), expected);
    }

    #[test]
    fn a_call_is_shown_as_python_writes_it() {
        check(json!({}), "s.t\\x1b()");
        check(json!({"a": "b", "c": 1.5}), "s.t\\x1b(a='b', c=1.5)");
        check(json!({"a": [null, true, {"k": "it's"}]}), r#"s.t\x1b(a=[None, True, {'k': "it's"}])"#);
        check(json!({"a": "'\"\\\n"}), r#"s.t\x1b(a='\'"\\\n')"#);
    }

    #[test]
    fn nothing_in_it_can_mislead() {
        check(
            json!({"a\u{202e}": "\u{1b}[2J\u{200b}\u{e0041}é"}),
            r"s.t\x1b(a\u202e='\x1b[2J\u200b\U000e0041é')",
        );
    }
}
