//! Data as literals in code. Pure.

use std::fmt::Write as _;

use serde_json::Value;

/// A Python expression for the JSON text of `value`. It has letters, digits and a few signs alone, so that neither Python nor
/// IPython, which looks for magics and shell commands, takes a part of it for code.
pub(super) fn json_text(value: &Value) -> String {
    text(&value.to_string())
}

/// A Python expression for a text.
pub(super) fn text(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || " _-.,:/{}[]".contains(character) {
            literal.push(character);
        } else {
            // Writing to a text never fails.
            write!(literal, "\\U{:08x}", u32::from(character)).ok();
        }
    }
    literal.push('"');
    literal
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_in_data_is_code() {
        let hostile = json!({"a": "\"); import os #", "b": "\n!ls\n%run x?", "c": "\\", "d": "😀\u{2028}"});
        let literal = json_text(&hostile);
        let inside = &literal[1..literal.len() - 1];
        assert!(
            inside.is_ascii() && !inside.contains(['"', '\n', '!', '%', '?', '#', '(', ';']),
            "{literal}"
        );
        assert_eq!(text("a\"b"), "\"a\\U00000022b\"");
    }
}
