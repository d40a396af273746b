//! Text from outside, without terminal control characters. Pure.

/// The longest escape sequence, in bytes: titles and links are long. A longer one is text of some other kind.
const SEQUENCE_BYTES: usize = 4 * 1024;

/// Removes escape sequences and control characters other than tabs and line breaks. A carriage return becomes
/// a line break.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let after = &rest[character.len_utf8()..];
        rest = match character {
            '\u{1b}' | '\u{80}'..='\u{9f}' => sequence(rest).1,
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
pub fn one_line(text: &str) -> String {
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first `limit` characters of a text, and a sign if there are more.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// An escape sequence ([ECMA-48](https://ecma-international.org/publications-and-standards/standards/ecma-48/)).
pub(crate) enum EscapeSequence<'a> {
    /// A control sequence: its parameters, and the character that says what it does.
    Control(&'a str, char),
    /// Another sequence, or text that only begins like one.
    Other,
    /// Incomplete: it may continue after the text.
    Unfinished,
}

/// Reads the sequence that `text` begins with. Also returns the rest; if it is no sequence, all but its first
/// character.
pub(crate) fn sequence(text: &str) -> (EscapeSequence<'_>, &str) {
    let near = &text[..text.floor_char_boundary(SEQUENCE_BYTES)];
    let (sequence, rest) = near_sequence(near);
    let is_too_long = near.len() < text.len() && matches!(sequence, EscapeSequence::Unfinished);
    (if is_too_long { EscapeSequence::Other } else { sequence }, &text[near.len() - rest.len()..])
}

fn near_sequence(text: &str) -> (EscapeSequence<'_>, &str) {
    let mut characters = text.chars();
    let kind = match characters.next() {
        Some('\u{1b}') => characters.next(),
        // The same in one character: `ESC [` is U+009B.
        Some(single) => char::from_u32(u32::from(single).wrapping_sub(0x40)),
        None => None,
    };
    let inside = characters.as_str();
    match kind {
        None => (EscapeSequence::Unfinished, ""),
        Some('[') => {
            let rest = inside.trim_start_matches(|character| (' '..='?').contains(&character));
            let parameters = &inside[..inside.len() - rest.len()];
            match rest.chars().next() {
                Some(command @ '@'..='~') => (EscapeSequence::Control(parameters, command), &rest[1..]),
                Some(_) => (EscapeSequence::Other, rest),
                None => (EscapeSequence::Unfinished, rest),
            }
        }
        // Control strings end with BEL or ST, which is `ESC \`.
        Some(']' | 'P' | 'X' | '^' | '_') => match inside.find(['\u{7}', '\u{9c}', '\u{1b}', '\n']) {
            None => (EscapeSequence::Unfinished, inside),
            Some(end) => match &inside[end..] {
                rest @ "\u{1b}" => (EscapeSequence::Unfinished, rest),
                rest if rest.starts_with('\n') => (EscapeSequence::Other, inside),
                rest => {
                    let mut ends = ["\u{1b}\\", "\u{7}", "\u{9c}"].iter();
                    let after = ends.find_map(|end| rest.strip_prefix(end));
                    (EscapeSequence::Other, after.unwrap_or(rest))
                }
            },
        },
        // Intermediate characters, as in the choice of a character set: `ESC ( B`.
        Some(' '..='/') => {
            let rest = inside.trim_start_matches(|character| (' '..='/').contains(&character));
            match rest.chars().next() {
                Some('0'..='~') => (EscapeSequence::Other, &rest[1..]),
                Some(_) => (EscapeSequence::Other, rest),
                None => (EscapeSequence::Unfinished, rest),
            }
        }
        Some('0'..='~') => (EscapeSequence::Other, inside),
        Some(_) => (EscapeSequence::Other, text.strip_prefix('\u{1b}').unwrap_or(inside)),
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
        check("cut \u{1b}]0;title\u{1b}", "cut ");
    }

    #[test]
    fn what_does_not_end_swallows_nothing() {
        check("\u{1b}]0;title and the rest", "0;title and the rest");
        check("\u{1b}[31é", "é");
        check("\u{1b}é", "é");
        check("\u{1b}]0;two\nlines\u{7}", "0;two\nlines");
        check("\u{1b}\u{1b}[31mred", "red");
        let long = "x".repeat(SEQUENCE_BYTES);
        check(&format!("\u{1b}]{long}\u{7}"), &long);
    }

    #[test]
    fn a_line_is_one() {
        assert_eq!(one_line(" a\n\u{1b}[2Jb\r\n c "), "a b c");
    }
}
