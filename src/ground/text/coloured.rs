//! Text from outside for a terminal: colours are kept, and nothing else steers it. Pure.

use super::plain::{EscapeSequence, sequence};
use super::printed::steers;

/// The length of the colours in force, in bytes.
const COLOURS_BYTES: usize = 64;

/// Ends all colours.
const RESET: &str = "\u{1b}[0m";

/// A stream of text, piece by piece. Colours hold from one piece to the next, but not beyond a piece on the terminal, so
/// that what is written between two pieces has none.
#[derive(Debug, Default)]
pub(crate) struct ColouredText {
    /// An escape sequence that is not complete.
    unfinished: String,
    /// The sequence that chose the colours in force.
    colours: String,
}

impl ColouredText {
    /// The next piece as it may be written. `has_colours` if the terminal is to show them.
    pub(crate) fn take(&mut self, piece: &str, has_colours: bool) -> String {
        let text = std::mem::take(&mut self.unfinished) + piece;
        let mut shown = if has_colours { self.colours.clone() } else { String::new() };
        let mut rest = text.as_str();
        let mut has_text = false;
        while let Some(character) = rest.chars().next() {
            let after = &rest[character.len_utf8()..];
            if matches!(character, '\u{1b}' | '\u{80}'..='\u{9f}') {
                match sequence(rest) {
                    (EscapeSequence::Control(parameters, 'm'), next) => {
                        if let Some(colours) = colours(parameters) {
                            self.choose(colours);
                            if has_colours {
                                shown.push_str(&format!("\u{1b}[{colours}m"));
                            }
                        }
                        rest = next;
                    }
                    (EscapeSequence::Unfinished, _) => {
                        rest.clone_into(&mut self.unfinished);
                        break;
                    }
                    (EscapeSequence::Control(..) | EscapeSequence::Other, next) => rest = next,
                }
                continue;
            }
            match character {
                '\n' | '\t' | '\r' => shown.push(character),
                _ if steers(character) => {}
                _ => shown.push(character),
            }
            has_text = true;
            rest = after;
        }
        if !has_text {
            return String::new();
        }
        if has_colours && !self.colours.is_empty() {
            // A piece that ends its line still does.
            let is_line = shown.ends_with('\n');
            shown.truncate(shown.len() - usize::from(is_line));
            shown.push_str(RESET);
            shown.push_str(if is_line { "\n" } else { "" });
        }
        shown
    }

    fn choose(&mut self, colours: &str) {
        if matches!(colours, "" | "0") {
            self.colours.clear();
        } else if self.colours.len() + colours.len() < COLOURS_BYTES {
            self.colours.push_str(&format!("\u{1b}[{colours}m"));
        }
    }
}

/// The parameters of a sequence if they choose colours, or bold, faint, italic, underlined or struck text. What blinks or
/// is concealed is not among them.
fn colours(parameters: &str) -> Option<&str> {
    let is_colour =
        |code: &str| matches!(code.parse(), Ok(0..=4 | 7 | 9 | 21..=24 | 27 | 29..=49 | 90..=107));
    let mut codes = parameters.split([';', ':']);
    while let Some(code) = codes.next() {
        // A colour of its own: an index or three values follow, whatever they are.
        match code {
            "" => {}
            "38" | "48" => match codes.next() {
                Some("5") => drop(codes.next().filter(|value| is_value(value))?),
                Some("2") => {
                    (0..3).try_for_each(|_| codes.next().filter(|value| is_value(value)).map(drop))?
                }
                _ => return None,
            },
            code if is_colour(code) => {}
            _ => return None,
        }
    }
    (parameters.len() < COLOURS_BYTES / 2).then_some(parameters)
}

fn is_value(value: &str) -> bool {
    value.parse::<u8>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(ColouredText::default().take(text, true), expected, "{text:?}");
    }

    #[test]
    fn colours_are_kept_and_end_with_the_piece() {
        check("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m");
        check("\u{1b}[31mred\n", "\u{1b}[31mred\u{1b}[0m\n");
        check("\u{1b}[38;5;208mx", "\u{1b}[38;5;208mx\u{1b}[0m");
        check("\u{1b}[38;2;1;2;3mx", "\u{1b}[38;2;1;2;3mx\u{1b}[0m");
        check("plain\ttext\r\n", "plain\ttext\r\n");
        assert_eq!(ColouredText::default().take("\u{1b}[31mred", false), "red");
    }

    #[test]
    fn nothing_else_steers_the_terminal() {
        check("\u{1b}[2J\u{1b}[Hclean", "clean");
        check("\u{1b}]0;title\u{7}\u{1b}]52;c;cm0gLXJm\u{7}\u{1b}]8;;http://x\u{1b}\\link", "link");
        check("\u{1b}Pq\u{1b}\\\u{1b}[6n\u{1b}c\u{1b}(0\u{9b}2J\u{8}\u{7}\u{7f}x", "x");
        check("\u{1b}[8mhidden\u{1b}[5mblinks\u{1b}[?1049h", "hiddenblinks");
        check("\u{1b}[38;5m\u{1b}[38;5;999m\u{1b}[>4;2mx", "x");
        check("a\u{202e}b", "ab");
    }

    #[test]
    fn pieces_go_on() {
        let mut stream = ColouredText::default();
        assert_eq!(stream.take("\u{1b}[31mred\u{1b}[", true), "\u{1b}[31mred\u{1b}[0m");
        assert_eq!(stream.take("2", true), "");
        assert_eq!(stream.take("Jstill", true), "\u{1b}[31mstill\u{1b}[0m");
        assert_eq!(stream.take("\u{1b}[0m", true), "");
        assert_eq!(stream.take("plain", true), "plain");
        for _ in 0..100 {
            stream.take("\u{1b}[31m\u{1b}[1mx", true);
        }
        assert!(stream.colours.len() <= 2 * COLOURS_BYTES);
    }
}
