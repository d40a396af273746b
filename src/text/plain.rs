//! Text from outside, without what steers a terminal. Pure.

/// The longest control string (a window's title, a link) in characters. A longer one is text of some other kind.
const CONTROL_STRING_CHARS: usize = 4 * 1024;

/// Leaves out what only means something to a terminal: escape sequences (ECMA-48) and control characters other than tabs
/// and line breaks. A carriage return becomes a line break.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let after = &rest[character.len_utf8()..];
        rest = match character {
            '\u{1b}' => after_escape(after),
            '\u{9b}' => after_control_sequence(after),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => after_control_string(after),
            _ => {
                match character {
                    '\r' if !after.starts_with('\n') => plain.push('\n'),
                    '\n' | '\t' => plain.push(character),
                    _ if character.is_control() => {}
                    _ => plain.push(character),
                }
                after
            }
        };
    }
    plain
}

/// A text from outside as part of a line.
pub(crate) fn one_line(text: &str) -> String {
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What follows the escape sequence whose first character has been read.
fn after_escape(text: &str) -> &str {
    let mut characters = text.chars();
    match characters.next() {
        Some('[') => after_control_sequence(characters.as_str()),
        Some(']' | 'P' | 'X' | '^' | '_') => after_control_string(characters.as_str()),
        // Intermediate characters, as in the choice of a character set: `ESC ( B`.
        Some(' '..='/') => {
            let rest = text.trim_start_matches(|character| (' '..='/').contains(&character));
            let mut characters = rest.chars();
            if characters.next().is_some_and(|last| ('0'..='~').contains(&last)) {
                characters.as_str()
            } else {
                rest
            }
        }
        Some('0'..='~') => characters.as_str(),
        _ => text,
    }
}

/// A control sequence has parameters and intermediate characters, and ends with its first character from `@` to `~`.
fn after_control_sequence(text: &str) -> &str {
    let rest = text.trim_start_matches(|character| (' '..='?').contains(&character));
    let mut characters = rest.chars();
    match characters.next() {
        Some('@'..='~') => characters.as_str(),
        _ => rest,
    }
}

/// A control string ends with BEL or ST, which is `ESC \`. One without an end is none.
fn after_control_string(text: &str) -> &str {
    let ends = ['\u{7}', '\u{9c}', '\u{1b}'];
    let near = text.char_indices().take(CONTROL_STRING_CHARS);
    match near.into_iter().find(|(_, character)| ends.contains(character)) {
        Some((at, '\u{1b}')) => text[at..].strip_prefix("\u{1b}\\").unwrap_or(&text[at..]),
        Some((at, end)) => &text[at + end.len_utf8()..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(plain(text), expected, "{text:?}");
    }

    #[test]
    fn text_is_plain() {
        check("a\tb\nc", "a\tb\nc");
        check("\u{1b}[1;31mred\u{1b}[0m", "red");
        check("\u{9b}31mred", "red");
        check("\u{1b}]8;;https://x\u{7}link\u{1b}]8;;\u{7}", "link");
        check("\u{1b}]0;title\u{1b}\\text", "text");
        check("\u{1b}P1$q\u{1b}\\text\u{1b}(B\u{1b}7 end", "text end");
        check("10%\r20%\r\ndone\n", "10%\n20%\ndone\n");
        check("bell\u{7}", "bell");
        check("cut \u{1b}[", "cut ");
        check("cut \u{1b}", "cut ");
    }

    #[test]
    fn what_does_not_end_swallows_nothing() {
        check("\u{1b}]0;title and the rest", "0;title and the rest");
        check("\u{1b}[31é", "é");
        check("\u{1b}é", "é");
        let long = "x".repeat(CONTROL_STRING_CHARS);
        check(&format!("\u{1b}]{long}\u{7}"), &long);
    }

    #[test]
    fn a_line_is_one() {
        assert_eq!(one_line(" a\n\u{1b}[2Jb\r\n c "), "a b c");
    }
}
