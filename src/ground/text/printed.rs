//! Text of which parts come from code, files and servers, as commands print it. Pure.

use icu_properties::props::{BidiControl, BinaryProperty as _};

use super::Emphasis;

/// `text`, in which nothing steers a terminal or turns the direction of a line but its emphasis. All else of this kind is an
/// escape, of the form that JSON has: JSON keeps its meaning.
pub fn printed(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = match Emphasis::sequence(rest) {
            Some(sequence) => {
                printed.push_str(sequence);
                sequence.len()
            }
            None => {
                if steers(character) {
                    // All that steers is in the first plane.
                    printed.push_str(&format!("\\u{:04x}", u32::from(character)));
                } else {
                    printed.push(character);
                }
                character.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    printed
}

/// Whether a terminal acts on `character`, or shows what stands beside it in another order or on another line.
pub(super) fn steers(character: char) -> bool {
    let breaks = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() && !matches!(character, '\n' | '\t') || breaks || BidiControl::for_char(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal_but_emphasis() {
        for (text, expected) in [
            ("a\tb\nc", "a\tb\nc"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("\u{9b}2J\u{85}", "\\u009b2J\\u0085"),
            ("a\rb\u{7f}\0", "a\\u000db\\u007f\\u0000"),
            ("\u{202e}txt.exe\u{2066}\u{61c}\u{200f}", "\\u202etxt.exe\\u2066\\u061c\\u200f"),
            ("\u{2028}", "\\u2028"),
            ("\u{1b}[8mhidden\u{1b}[2J", "\\u001b[8mhidden\\u001b[2J"),
            ("Zoë 日本 שלום 👩‍💻", "Zoë 日本 שלום 👩‍💻"),
        ] {
            assert_eq!(printed(text), expected);
        }
        let report = format!("{}: {}", Emphasis::Title.of("a"), Emphasis::Bad.of("\u{9b}2J"));
        assert_eq!(printed(&report), report.replace('\u{9b}', "\\u009b"));
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({"code": "\u{9b}\u{202e}\u{1b}[2J\n\u{7f}", "\u{2029}": 1});
        let text = printed(&format!("{value:#}"));
        assert!(!text.contains(['\u{9b}', '\u{202e}', '\u{7f}', '\u{2029}']), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
