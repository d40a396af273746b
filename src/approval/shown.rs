//! An action as a human reads it.

use std::fmt::{self, Formatter};

use serde_json::Value;

use super::action::Action;

/// Writes `server.tool(name=value)`, the values as Python literals. Names that Python could not write so, and that might
/// be taken for something else, are quoted: `server.tool(**{'odd name': value})`.
pub(super) fn call(action: &Action, formatter: &mut Formatter<'_>) -> fmt::Result {
    write!(formatter, "{}.{}(", Name(&action.server_name), Name(&action.tool_name))?;
    for (index, (name, value)) in action.tool_args.iter().enumerate() {
        if index > 0 {
            formatter.write_str(", ")?;
        }
        if is_identifier(name) {
            write!(formatter, "{name}=")?;
            literal(value, formatter)?;
        } else {
            write!(formatter, "**{{{}: ", Quoted(name))?;
            literal(value, formatter)?;
            formatter.write_str("}")?;
        }
    }
    formatter.write_str(")")
}

fn is_identifier(name: &str) -> bool {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    name.chars().all(is_word) && name.starts_with(|first: char| !first.is_ascii_digit())
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

/// The name of a server or tool: as it is if it looks like one, else quoted.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let is_usual = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
        match !self.0.is_empty() && self.0.chars().all(is_usual) {
            true => formatter.write_str(self.0),
            false => write!(formatter, "{}", Quoted(self.0)),
        }
    }
}

/// A name in quotes, in ASCII: letters of other scripts look like those of ours.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("'")?;
        for character in self.0.chars() {
            match character {
                '\\' | '\'' => write!(formatter, "\\{character}")?,
                ' '..='~' => write!(formatter, "{character}")?,
                _ => match u32::from(character) {
                    code @ 0..=0xffff => write!(formatter, "\\u{code:04x}")?,
                    code => write!(formatter, "\\U{code:08x}")?,
                },
            }
        }
        formatter.write_str("'")
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
            tool_name: "t".to_owned(),
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
        check(json!({}), "s.t()");
        check(json!({"a": "b", "c": 1.5}), "s.t(a='b', c=1.5)");
        check(json!({"a": [null, true, {"k": "it's"}]}), r#"s.t(a=[None, True, {'k': "it's"}])"#);
        check(json!({"a": "'\"\\\n"}), r#"s.t(a='\'"\\\n')"#);
    }

    #[test]
    fn nothing_in_it_can_mislead() {
        check(
            json!({"a": "\u{1b}[2J\u{200b}\u{202e}\u{e0041}é"}),
            r"s.t(a='\x1b[2J\u200b\u202e\U000e0041é')",
        );
        check(
            json!({"path": "/x", "dry_run=True, note": "x", "p\u{430}th": 1, "it's": 2}),
            r"s.t(path='/x', **{'dry_run=True, note': 'x'}, **{'p\u0430th': 1}, **{'it\'s': 2})",
        );
    }
}
