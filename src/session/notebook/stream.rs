//! A stream in a notebook, as a terminal would show it, within bounds.

use crate::ground::text::Redactor;
use crate::kernels::kernel::Terminal;
use crate::kernels::output::Excerpt;

/// From how many bytes on text that no cursor reaches any more is handed on.
const SETTLED_BYTES: usize = 64 * 1024;

/// The least number of lines that a cursor can go back.
const ROWS: usize = 128;

/// The length of a secret that is recognised wherever text is cut, in bytes: keys and certificates have a few thousand.
const SECRET_BYTES: usize = 16 * 1024;

/// A stream that is shown without other outputs in between.
#[derive(Debug)]
pub(super) struct NotebookStream {
    /// The end of what will not change any more.
    settled: String,
    /// Text that moved no cursor so far, and that a cursor may still reach. A terminal would show it as it is.
    unmoved: String,
    /// The terminal, from the first cursor that moved on.
    terminal: Option<Terminal>,
    kept: Excerpt,
    pub(super) limit: usize,
}

impl NotebookStream {
    pub(super) fn new(limit: usize) -> Self {
        let settled = String::new();
        let unmoved = String::new();
        Self { settled, unmoved, terminal: None, kept: Excerpt::new(limit), limit }
    }

    pub(super) fn write(&mut self, text: &str, redactor: &Redactor) {
        if self.terminal.is_none() && memchr::memchr3(b'\r', 0x08, 0x1b, text.as_bytes()).is_none() {
            self.unmoved.push_str(text);
            if self.unmoved.len() > SETTLED_BYTES {
                let end =
                    memchr::memrchr_iter(b'\n', self.unmoved.as_bytes()).nth(ROWS).map_or(0, |end| end + 1);
                let settled: String = self.unmoved.drain(..end).collect();
                self.settle(&settled, redactor);
            }
            // A line that never ends.
            if self.unmoved.len() > 2 * SETTLED_BYTES {
                self.move_on();
            }
            return;
        }
        self.move_on();
        let Some(terminal) = &mut self.terminal else { return };
        terminal.write(text);
        if terminal.settled_bytes() > SETTLED_BYTES {
            let settled = terminal.take_settled();
            self.settle(&settled, redactor);
        }
    }

    /// Keeps text that will not change any more. Its end waits for the rest of a secret of several lines.
    fn settle(&mut self, text: &str, redactor: &Redactor) {
        self.settled.push_str(text);
        let redacted = redactor.redact(&self.settled).into_owned();
        let end = redacted.floor_char_boundary(redacted.len().saturating_sub(SECRET_BYTES));
        self.kept.push(&redacted[..end]);
        self.settled = redacted[end..].to_owned();
    }

    fn move_on(&mut self) {
        let unmoved = std::mem::take(&mut self.unmoved);
        self.terminal.get_or_insert_default().write(&unmoved);
    }

    pub(super) fn is_at_line_start(&self) -> bool {
        match &self.terminal {
            Some(terminal) => terminal.is_at_line_start(),
            None => self.unmoved.is_empty() || self.unmoved.ends_with('\n'),
        }
    }

    pub(super) fn finish(mut self, redactor: &Redactor) -> Excerpt {
        let rest = self.settled + &self.unmoved + &self.terminal.map(Terminal::into_text).unwrap_or_default();
        self.kept.push(&redactor.redact(&rest));
        self.kept
    }
}
