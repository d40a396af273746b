//! A terminal's view of a stream: carriage returns overwrite, cursors move, colours are gone. Pure.
//!
//! Progress bars collapse to their final state that way, whoever draws them: tqdm returns to the beginning of its line,
//! pip and rich go up several. It follows the codes that such programs use; the others are dropped.
//!
//! Unlike a terminal it never loses text to the edge of a screen: lines do not wrap, text that scrolls out of
//! the cursor's reach is settled, and so is text that a program clears.

use std::collections::VecDeque;
use std::mem;

use crate::ground::text::{EscapeSequence, sequence};

/// The number of lines that the cursor can go back, as on a tall terminal.
const ROWS: usize = 100;

/// The number of characters of a line that can still be overwritten. Longer lines are no progress bars, and must not be
/// held.
const COLUMNS: usize = 4 * 1024;

/// The distance to the right of a line's end to which the cursor can be sent. Short code must not produce huge output.
const SCREEN_COLUMNS: usize = 256;

/// A stream as a terminal shows it.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Text that no cursor reaches any more.
    settled: String,
    rows: VecDeque<TerminalRow>,
    row: usize,
    column: usize,
    /// The position of the cursor in the text of its line, in bytes: at its end, if the column is beyond it. Kept,
    /// because finding it means scanning the whole line.
    offset: usize,
    /// An incomplete escape sequence.
    unfinished: String,
}

/// One line.
#[derive(Debug, Default)]
struct TerminalRow {
    text: String,
    /// The number of characters of `text`.
    chars: usize,
}

impl Default for Terminal {
    fn default() -> Self {
        Self {
            settled: String::new(),
            rows: VecDeque::from([TerminalRow::default()]),
            row: 0,
            column: 0,
            offset: 0,
            unfinished: String::new(),
        }
    }
}

impl Terminal {
    /// Writes text to the terminal.
    pub(crate) fn write(&mut self, text: &str) {
        let begun = mem::take(&mut self.unfinished) + text;
        let mut rest = begun.as_str();
        while !rest.is_empty() {
            let is_special = |byte| matches!(byte, b'\n' | b'\r' | b'\x08' | b'\x1b');
            let end = rest.bytes().position(is_special).unwrap_or(rest.len());
            let (plain, special) = rest.split_at(end);
            self.put(plain);
            rest = match special.bytes().next() {
                Some(b'\x1b') => self.follow(special),
                control => {
                    control.into_iter().for_each(|control| self.control(control));
                    special.get(1..).unwrap_or_default()
                }
            };
        }
    }

    /// Applies the escape sequence at the beginning of `text`; returns the rest.
    fn follow<'a>(&mut self, text: &'a str) -> &'a str {
        match sequence(text) {
            (EscapeSequence::Control(parameters, command), rest) => {
                // Sequences with another first character are private.
                if !parameters.contains(|character| ('<'..='?').contains(&character)) {
                    // The supported sequences need only the first one.
                    let first = parameters.split(|character: char| !character.is_ascii_digit()).next();
                    let first = first.filter(|first| !first.is_empty());
                    self.perform(command, first.map(|first| first.parse().unwrap_or(usize::MAX)));
                }
                rest
            }
            (EscapeSequence::Other, rest) => rest,
            (EscapeSequence::Unfinished, _) => {
                text.clone_into(&mut self.unfinished);
                ""
            }
        }
    }

    /// The bytes of text that no cursor reaches any more.
    pub(crate) fn settled_bytes(&self) -> usize {
        self.settled.len()
    }

    /// Takes the text that no cursor reaches any more.
    pub(crate) fn take_settled(&mut self) -> String {
        mem::take(&mut self.settled)
    }

    /// All that is shown.
    pub(crate) fn into_text(mut self) -> String {
        // An unfinished sequence is no sequence.
        let unfinished = mem::take(&mut self.unfinished);
        if !unfinished.is_empty() {
            self.write(sequence(&unfinished).1);
        }
        self.settle_screen();
        self.settled
    }

    /// Whether nothing is shown.
    pub(crate) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.rows.iter().all(|row| row.chars == 0) && self.rows.len() == 1
    }

    /// Whether the next text starts at the beginning of a line.
    pub(crate) fn is_at_line_start(&self) -> bool {
        self.rows.back().is_none_or(|row| row.chars == 0)
    }

    fn control(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                self.row += 1;
                self.seek(0);
                if self.row == self.rows.len() {
                    self.rows.push_back(TerminalRow::default());
                    self.settle_top();
                }
            }
            b'\r' => self.seek(0),
            _ => self.step_back(),
        }
    }

    /// Applies a control sequence.
    fn perform(&mut self, command: char, parameter: Option<usize>) {
        let count = parameter.unwrap_or(1).max(1);
        match command {
            'A' => self.go_to(self.row.saturating_sub(count), self.column),
            'B' => self.go_to(self.row.saturating_add(count), self.column),
            'C' => self.go_to(self.row, self.column.saturating_add(count)),
            'D' => self.go_to(self.row, self.column.saturating_sub(count)),
            'E' => self.go_to(self.row.saturating_add(count), 0),
            'F' => self.go_to(self.row.saturating_sub(count), 0),
            'G' => self.go_to(self.row, count - 1),
            // Absolute positioning or clearing the screen: earlier text is kept.
            'H' | 'f' => self.begin_screen(),
            'J' if parameter.unwrap_or(0) == 0 => {
                self.rows.truncate(self.row + 1);
                self.rows[self.row].cut(self.column, self.offset);
            }
            'J' => self.begin_screen(),
            'K' => match parameter.unwrap_or(0) {
                0 => self.rows[self.row].cut(self.column, self.offset),
                1 => {
                    self.rows[self.row].blank(self.column + 1);
                    self.seek(self.column);
                }
                _ => {
                    self.rows[self.row] = TerminalRow::default();
                    self.offset = 0;
                }
            },
            _ => {}
        }
    }

    /// Moves the cursor, as far as there are lines, and not far beyond the end of one.
    fn go_to(&mut self, row: usize, column: usize) {
        self.row = row.min(self.rows.len() - 1);
        self.seek(column.min(self.rows[self.row].chars.max(SCREEN_COLUMNS)));
    }

    fn seek(&mut self, column: usize) {
        self.column = column;
        self.offset = match column {
            0 => 0,
            _ => self.rows[self.row].offset(column),
        };
    }

    fn step_back(&mut self) {
        let row = &self.rows[self.row];
        if self.column <= row.chars {
            let before = row.text[..self.offset].chars().next_back();
            self.offset -= before.map_or(0, char::len_utf8);
        }
        self.column = self.column.saturating_sub(1);
    }

    /// Writes text without control characters at the cursor.
    fn put(&mut self, mut text: &str) {
        while !text.is_empty() {
            if self.column >= COLUMNS {
                self.settle_line();
            }
            let room = COLUMNS - self.column;
            let end = text.char_indices().nth(room).map_or(text.len(), |(end, _)| end);
            let (fitting, rest) = text.split_at(end);
            let row = &mut self.rows[self.row];
            self.column += row.write(self.column, self.offset, fitting);
            self.offset = if self.column == row.chars { row.text.len() } else { self.offset + fitting.len() };
            text = rest;
        }
    }

    /// Settles the topmost line if there are more than the cursor can reach.
    fn settle_top(&mut self) {
        if self.rows.len() > ROWS
            && let Some(top) = self.rows.pop_front()
        {
            self.settled.push_str(&top.text);
            self.settled.push('\n');
            self.row -= 1;
        }
    }

    /// Settles the beginning of a line that is too long to be held, and all above it. The line goes on.
    fn settle_line(&mut self) {
        for above in self.rows.drain(..self.row) {
            self.settled.push_str(&above.text);
            self.settled.push('\n');
        }
        self.row = 0;
        self.seek(0);
        let line = mem::take(&mut self.rows[0]);
        self.settled.push_str(&line.text);
    }

    /// Settles everything, and begins a new line.
    fn begin_screen(&mut self) {
        let is_at_line_start = self.is_at_line_start();
        self.settle_screen();
        if !is_at_line_start {
            self.settled.push('\n');
        }
    }

    /// Settles everything.
    fn settle_screen(&mut self) {
        self.row = self.rows.len() - 1;
        self.settle_line();
    }
}

impl TerminalRow {
    /// Writes `text` from `column` on, which is at `offset`, over the text there; returns how many characters
    /// it has.
    fn write(&mut self, column: usize, offset: usize, text: &str) -> usize {
        let chars = text.chars().count();
        if column >= self.chars {
            self.text.extend(std::iter::repeat_n(' ', column - self.chars));
            self.text.push_str(text);
        } else {
            let mut overwritten = self.text[offset..].char_indices();
            let end = overwritten.nth(chars).map_or(self.text.len(), |(end, _)| offset + end);
            self.text.replace_range(offset..end, text);
        }
        self.chars = self.chars.max(column + chars);
        chars
    }

    fn cut(&mut self, column: usize, offset: usize) {
        self.text.truncate(offset);
        self.chars = self.chars.min(column);
    }

    fn blank(&mut self, columns: usize) {
        let blanks = " ".repeat(columns.min(self.chars));
        self.write(0, 0, &blanks);
    }

    /// The offset of the character at `column`, or the end.
    fn offset(&self, column: usize) -> usize {
        if self.text.len() == self.chars {
            return column.min(self.chars);
        }
        self.text.char_indices().nth(column).map_or(self.text.len(), |(offset, _)| offset)
    }
}

/// The text as a terminal shows it.
pub(crate) fn plain(text: &str) -> String {
    let mut terminal = Terminal::default();
    terminal.write(text);
    terminal.into_text()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(written: &str, shown: &str) {
        assert_eq!(plain(written), shown, "{written:?}");
        // However it is split into pieces.
        let mut terminal = Terminal::default();
        for char in written.chars() {
            terminal.write(char.encode_utf8(&mut [0; 4]));
        }
        assert_eq!(terminal.into_text(), shown, "{written:?} in pieces");
    }

    #[test]
    fn text_without_codes_is_shown_as_it_is() {
        check("", "");
        check("a\nb\n", "a\nb\n");
        check("\n\n tab\t null \0 bell \u{7} é\n", "\n\n tab\t null \0 bell \u{7} é\n");
    }

    #[test]
    fn a_carriage_return_overwrites_its_line() {
        check("  0%|     |\r 50%|██   |\r100%|█████|\ndone\n", "100%|█████|\ndone\n");
        check("long line\rshort", "shortline");
        check("a\r\nb\r\n", "a\nb\n");
        check("a\r\r\n", "a\n");
        check("ünï\rc", "cnï");
    }

    #[test]
    fn a_backspace_goes_back_and_no_further() {
        check("12\u{8}3", "13");
        check("\u{8}\u{8}a", "a");
    }

    #[test]
    fn colours_titles_and_links_are_dropped() {
        check("\u{1b}[1;38;5;208mred\u{1b}[0m text", "red text");
        check("\u{1b}]0;title\u{7}text", "text");
        check("\u{1b}]8;;https://example.org\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link");
        check("\u{1b}[?25lhidden cursor\u{1b}[?25h", "hidden cursor");
        check("\u{1b}(Bcharset", "charset");
    }

    #[test]
    fn several_lines_are_drawn_anew() {
        // rich: down the lines, then up again, erasing each.
        check("a 0%\nb 0%\r\u{1b}[2K\u{1b}[1A\u{1b}[2Ka 9%\nb 9%\n", "a 9%\nb 9%\n");
        check("a\nb\nc\u{1b}[2A\rx\u{1b}[Jy", "xy");
        check("abc\u{1b}[1Gx\u{1b}[K", "x");
        check("abc\u{1b}[1K|", "   |");
        check("a\u{1b}[3Cb", "a   b");
    }

    #[test]
    fn a_cleared_screen_is_not_lost() {
        check("before\u{1b}[2J\u{1b}[Hafter", "before\nafter");
        check("before\n\u{1b}[H\u{1b}[2Jafter", "before\nafter");
    }

    #[test]
    fn little_does_not_become_much() {
        assert_eq!(plain("\u{1b}[60000Cx").len(), SCREEN_COLUMNS + 1);
        // Quadratic, this takes minutes.
        let rewritten = "é".repeat(COLUMNS - 1) + &"\u{8}ü".repeat(1_000_000);
        assert_eq!(plain(&rewritten), "é".repeat(COLUMNS - 2) + "ü");
    }

    #[test]
    fn broken_sequences_do_not_swallow_what_follows() {
        check("\u{1b}[12é", "é");
        check("\u{1b}]never ended\nnext line", "never ended\nnext line");
        check("\u{1b}]never ended", "never ended");
        check("\u{1b}\ntext", "\ntext");
        let long = "x".repeat(5_000);
        check(&format!("\u{1b}]{long}\u{7}text"), &format!("{long}\u{7}text"));
        check("\u{1b}é", "é");
        check("end \u{1b}", "end ");
        check("\u{1b}[99999999999999999999Ax\u{1b}[99999999999999999999Dy", "y");
    }

    #[test]
    fn lines_out_of_reach_are_settled() {
        let mut terminal = Terminal::default();
        for line in 0..ROWS + 10 {
            terminal.write(&format!("{line}\n"));
        }
        assert!(terminal.take_settled().ends_with("\n9\n10\n"));
        terminal.write(&format!("\u{1b}[{}Atop", ROWS * 2));
        assert!(terminal.into_text().starts_with("top\n12\n"));
    }

    #[test]
    fn an_endless_line_is_not_held() {
        let mut terminal = Terminal::default();
        let mut settled = String::new();
        for _ in 0..1_000 {
            terminal.write(&"é".repeat(1_000));
            settled += &terminal.take_settled();
        }
        assert!(terminal.rows[0].text.len() <= 2 * COLUMNS);
        assert_eq!((settled + &terminal.into_text()).chars().count(), 1_000_000);
    }

    proptest! {
        #[test]
        fn any_text_is_shown_without_panic_and_the_same_in_pieces(
            text in "([a-cé\n\r\u{8}]|[\u{1b}\\[\\];?0-9ABCDGHJKm\u{7}]|\u{1b}\\[[0-9]{0,3}[A-K]){0,80}",
            cut in 0..80_usize,
        ) {
            let at = text.char_indices().nth(cut).map_or(text.len(), |(at, _)| at);
            let mut terminal = Terminal::default();
            terminal.write(&text[..at]);
            let mut shown = terminal.take_settled();
            terminal.write(&text[at..]);
            shown += &terminal.into_text();
            prop_assert_eq!(shown, plain(&text));
        }

        #[test]
        fn the_cursor_is_where_its_column_says(text in "([a-cé\r\u{8}]|\u{1b}\\[[0-9]{0,2}[A-GK]|\n){0,80}") {
            let mut terminal = Terminal::default();
            for char in text.chars() {
                terminal.write(char.encode_utf8(&mut [0; 4]));
                let row = &terminal.rows[terminal.row];
                prop_assert_eq!(row.chars, row.text.chars().count());
                prop_assert_eq!(terminal.offset, row.offset(terminal.column));
            }
        }

        #[test]
        fn text_without_codes_is_kept(text in "[^\r\u{8}\u{1b}]{0,200}") {
            prop_assert_eq!(plain(&text), text);
        }
    }
}
