//! Output on the terminal: at once, or above the line that is being edited.
//!
//! The line editor draws its line anew when the bell rings, and the hook that it calls then puts what waits in front of
//! its prompt. The bell's own message shows nothing, so that one that comes too late does no harm.

use std::io::Write as _;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustyline::ExternalPrinter;

/// The amount that may wait to be shown, in bytes. When more comes, the older half is left out.
const WAITING_BYTES: usize = 256 * 1024;

/// The time that an incomplete line waits for its rest.
const LINE_WAIT: Duration = Duration::from_millis(200);

/// Goes up and down again: it must end with a line break, which the editor would add otherwise.
const BELL: &str = "\u{1b}[1A\n";

/// The terminal.
#[derive(Default)]
pub(super) struct Screen {
    state: Mutex<ScreenState>,
    changed: Condvar,
    has_colours: bool,
}

#[derive(Default)]
struct ScreenState {
    is_editing: bool,
    waiting: String,
    left_out: usize,
    /// Whether the bell has rung for what waits.
    has_rung: bool,
    /// Whether the last text that was shown did not end its line.
    is_in_line: bool,
}

impl Screen {
    pub(super) fn new(has_colours: bool) -> Self {
        Self { has_colours, ..Self::default() }
    }

    /// `text` in a style, if the terminal is to show any.
    pub(super) fn styled(&self, text: &str, style: &str) -> String {
        if self.has_colours && !text.is_empty() {
            format!("\u{1b}[{style}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Shows text, which is safe for a terminal.
    pub(super) fn show(&self, text: &str) {
        let mut state = self.state.lock();
        if state.is_editing {
            state.put(text)
        } else {
            state.write(text)
        }
        self.changed.notify_all();
    }

    /// Shows text that begins on a line of its own.
    pub(super) fn show_line(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let needs_break = {
            let state = self.state.lock();
            if state.is_editing && !state.waiting.is_empty() {
                !state.waiting.ends_with('\n')
            } else {
                !state.is_editing && state.is_in_line
            }
        };
        let before = if needs_break { "\n" } else { "" };
        self.show(&format!("{before}{}\n", text.trim_end_matches('\n')));
    }

    /// From now on the editor has the terminal.
    pub(super) fn begin_to_edit(&self) {
        let mut state = self.state.lock();
        if state.is_in_line {
            state.write("\n");
        }
        state.is_editing = true;
    }

    /// The editor has left the terminal.
    pub(super) fn end_editing(&self) {
        let mut state = self.state.lock();
        state.is_editing = false;
        let waiting = state.take();
        state.write(&waiting);
        state.is_in_line = false;
    }

    /// The text that the editor is to show before its prompt.
    pub(super) fn above_prompt(&self) -> String {
        self.state.lock().take()
    }

    /// Rings the bell whenever something waits. Never returns, unless the terminal is gone.
    pub(super) fn ring(&self, printer: &mut impl ExternalPrinter) {
        loop {
            {
                let is_quiet =
                    |state: &mut ScreenState| !state.is_editing || state.has_rung || state.waiting.is_empty();
                let mut state = self.state.lock();
                self.changed.wait_while(&mut state, is_quiet);
                if !state.waiting.ends_with('\n') {
                    drop(state);
                    std::thread::sleep(LINE_WAIT);
                }
            }
            self.state.lock().has_rung = true;
            if printer.print(BELL.to_owned()).is_err() {
                return;
            }
        }
    }
}

impl ScreenState {
    fn write(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut stdout = std::io::stdout();
        // A terminal that is gone ends the input too.
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).ok();
        self.is_in_line = !text.ends_with('\n');
    }

    /// Keeps text until the editor shows it.
    fn put(&mut self, text: &str) {
        self.waiting.push_str(text);
        if self.waiting.len() > WAITING_BYTES {
            let half = self.waiting.ceil_char_boundary(self.waiting.len() - WAITING_BYTES / 2);
            let end = self.waiting[half..].find('\n').map_or(half, |line| half + line + 1);
            self.waiting.drain(..end);
            self.left_out += end;
        }
    }

    /// The waiting text, as whole lines; of lines that overwrite themselves, the last state.
    fn take(&mut self) -> String {
        self.has_rung = false;
        let mut text = match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            left_out => left_out_note(left_out),
        };
        for line in std::mem::take(&mut self.waiting).lines() {
            text.push_str(line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default());
            text.push('\n');
        }
        text
    }
}

/// The note about output that was not shown.
pub(super) fn left_out_note(bytes: usize) -> String {
    format!("[… {bytes} bytes of output left out: they came faster than they could be shown]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_while_a_line_is_edited_waits_in_whole_lines() {
        let screen = Screen::new(false);
        screen.begin_to_edit();
        screen.show("10%\r20%\r100%\r\nend");
        screen.show_line("next");
        assert_eq!(screen.above_prompt(), "100%\nend\nnext\n");
        assert_eq!(screen.above_prompt(), "");
        let line = "x".repeat(99) + "\n";
        for _ in 0..WAITING_BYTES / 100 + 1 {
            screen.show(&line);
        }
        screen.show("more");
        let shown = screen.above_prompt();
        let left_out = WAITING_BYTES / 100 * 100 + 104 - (shown.len() - left_out_note(100_000).len() - 1);
        assert!(shown.starts_with(&format!("{}{line}", left_out_note(left_out))), "{}", &shown[..200]);
        assert!(shown.ends_with(&format!("{line}more\n")));
        assert_eq!(screen.styled("x", "2"), "x");
    }
}
