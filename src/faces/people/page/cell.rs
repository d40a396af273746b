//! An argument in a row: its value as text and marks. No text can imitate a mark, which the browser draws in another way. Pure.

use serde::Serialize;
use serde_json::{Map, Value};

use super::words::{name, used};
use crate::ground::text::visible::{self, TextUse};

/// The length of a text in a row, in characters: of longer ones both ends are shown. The whole is one key away.
pub(super) const CELL_CHARS: usize = 160;

/// The part of a value that is shown, in characters. Code and servers choose how many parts a value has.
const MOST_CHARS: usize = 16_000;

/// An argument in a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ArgumentCell {
    pub(super) name: String,
    parts: Vec<ValuePart>,
    /// Whether the value is a text; others are JSON.
    is_text: bool,
    /// Whether something of it is not here.
    is_cut: bool,
}

/// A part of a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum ValuePart {
    /// The text of the value.
    Text(String),
    /// A mark for something that cannot be seen, or for what is left out.
    Mark { mark: String },
}

/// The arguments of a call.
pub(super) fn cells(arguments: &Map<String, Value>, is_ours: bool) -> Vec<ArgumentCell> {
    arguments.iter().map(|(argument, value)| cell(argument, value, is_ours)).collect()
}

fn cell(argument: &str, value: &Value, is_ours: bool) -> ArgumentCell {
    let longest = if is_ours { usize::MAX } else { CELL_CHARS };
    let mut writer =
        ValueWriter { parts: Vec::new(), used: used(is_ours), longest, room: MOST_CHARS, is_cut: false };
    match value {
        Value::String(text) => writer.ends(text, false),
        other => writer.json(other),
    }
    let ValueWriter { parts, is_cut, .. } = writer;
    ArgumentCell { name: name(argument), parts, is_text: value.is_string(), is_cut }
}

struct ValueWriter {
    parts: Vec<ValuePart>,
    used: TextUse,
    longest: usize,
    room: usize,
    is_cut: bool,
}

impl ValueWriter {
    fn json(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.text(&value.to_string()),
            Value::String(text) => {
                self.text("\"");
                self.ends(text, true);
                self.text("\"");
            }
            Value::Array(items) => {
                self.text("[");
                for (index, item) in items.iter().enumerate() {
                    if self.is_full() {
                        return;
                    }
                    self.text(if index == 0 { "" } else { ", " });
                    self.json(item);
                }
                self.text("]");
            }
            Value::Object(members) => {
                self.text("{");
                for (index, (key, member)) in members.iter().enumerate() {
                    if self.is_full() {
                        return;
                    }
                    self.text(if index == 0 { "\"" } else { ", \"" });
                    self.ends(key, true);
                    self.text("\": ");
                    self.json(member);
                }
                self.text("}");
            }
        }
    }

    /// Whether there is no more room, which a mark says then.
    fn is_full(&mut self) -> bool {
        if self.room > 0 {
            return false;
        }
        self.mark("… the rest is not shown here");
        self.is_cut = true;
        true
    }

    /// A text, or both ends of a long one.
    fn ends(&mut self, text: &str, is_quoted: bool) {
        let longest = self.longest.min(self.room.max(2));
        if text.chars().nth(longest).is_none() {
            return self.visible(text, is_quoted);
        }
        let half = longest / 2;
        let all = text.chars().count();
        let begin = text.char_indices().nth(half).map_or(text.len(), |(at, _)| at);
        let end = text.char_indices().nth_back(half.saturating_sub(1)).map_or(0, |(at, _)| at);
        self.visible(&text[..begin], is_quoted);
        self.mark(&format!("… {} of {all} characters not shown …", all - 2 * half));
        self.visible(&text[end..], is_quoted);
        self.is_cut = true;
    }

    fn visible(&mut self, text: &str, is_quoted: bool) {
        // Beside other text, none may turn the direction of what follows.
        let used = if is_quoted && self.used == TextUse::Text { TextUse::Part } else { self.used };
        for (character, is_shown) in visible::judged(text, used) {
            match character {
                '\n' => self.mark("↵"),
                '\t' => self.mark("⇥"),
                '"' | '\\' if is_quoted => self.text(&format!("\\{character}")),
                _ if is_shown => self.text(character.encode_utf8(&mut [0; 4])),
                _ => self.mark(&visible::EscapedCharacter(character).to_string()),
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.room = self.room.saturating_sub(text.chars().count());
        match self.parts.last_mut() {
            Some(ValuePart::Text(last)) => last.push_str(text),
            _ => self.parts.push(ValuePart::Text(text.to_owned())),
        }
    }

    fn mark(&mut self, mark: &str) {
        self.room = self.room.saturating_sub(mark.chars().count());
        self.parts.push(ValuePart::Mark { mark: mark.to_owned() });
    }
}

#[cfg(test)]
impl ArgumentCell {
    /// The value with its marks in brackets.
    pub(super) fn shown(&self) -> String {
        let part = |part: &ValuePart| match part {
            ValuePart::Text(text) => text.clone(),
            ValuePart::Mark { mark } => format!("⟨{mark}⟩"),
        };
        self.parts.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: Value, expected: &str) {
        assert_eq!(cell("a", &value, false).shown(), expected);
    }

    #[test]
    fn a_value_is_shown_as_text_or_json_and_never_as_python() {
        check(json!("it's \"so\" \\n"), "it's \"so\" \\n");
        check(json!("a\nb\tc"), "a⟨↵⟩b⟨⇥⟩c");
        check(json!([true, null, 1.5, "x\"\\"]), r#"[true, null, 1.5, "x\"\\"]"#);
        check(json!({"to": "é", "n": [1, {"deep": {}}]}), r#"{"to": "é", "n": [1, {"deep": {}}]}"#);
        assert!(cell("a", &json!("5"), false).is_text && !cell("a", &json!(5), false).is_text);
    }

    #[test]
    fn nothing_that_is_invisible_or_left_out_looks_like_text() {
        check(json!("x\u{202e}\u{1b}[2Jy\\u202e"), r"x⟨\u202e⟩⟨\x1b⟩[2Jy\u202e");
        check(json!(["\u{200b}"]), r#"["⟨\u200b⟩"]"#);
        assert_eq!(cell("a\u{430}", &json!(1), false).name, r"'a\u0430'");
    }

    #[test]
    fn neither_a_long_text_nor_its_place_hides_what_matters() {
        let long = "x".repeat(5_000);
        let hidden = cell("a", &json!({"comment": long, "pay": 1_000_000, "to": "eve@example.com"}), false);
        assert!(
            hidden.shown().contains(r#"", "pay": 1000000, "to": "eve@example.com"}"#),
            "{}",
            hidden.shown()
        );
        assert!(hidden.is_cut);
        let ends = cell("a", &json!(format!("begin {long} end")), false).shown();
        assert!(ends.starts_with("begin x") && ends.ends_with("x end"), "{ends}");
        assert!(ends.contains("⟨… 4850 of 5010 characters not shown …⟩"), "{ends}");
        // A command is whole.
        let command = format!("echo {long}; rm x");
        assert_eq!(cell("cmd", &json!(command), true).shown(), command);
    }

    #[test]
    fn a_value_of_many_parts_ends_with_a_mark() {
        let many: Vec<u32> = (0..100_000).collect();
        let cell = cell("a", &json!({"many": many, "more": many}), false);
        assert!(cell.shown().ends_with("⟨… the rest is not shown here⟩") && cell.is_cut);
        assert!(cell.shown().chars().count() < MOST_CHARS + 200);
    }
}
