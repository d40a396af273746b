//! Messages while servers are registered: one line on a terminal for each server that is under way, which changes in
//! place, and a message for each event elsewhere.

use std::io::{self, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use ipybox::{Emphasis, ImportEvent, one_line, printed};

use super::show::{ImportOutcome, count};
use crate::cli::print_message;

/// The places for results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImportResults {
    /// Each to stdout, as it comes.
    AsTheyCome,
    /// Together in one object, at the end.
    AtTheEnd,
}

/// The servers that are being registered.
pub(super) struct ImportProgress {
    results: ImportResults,
    is_living: bool,
    /// Names and what happens to them, in lines that are on the screen.
    underway: Vec<(String, String)>,
}

impl ImportProgress {
    pub(super) fn new(results: ImportResults) -> Self {
        let stderr = io::stderr();
        let takes_sequences = AutoStream::choice(&stderr) != ColorChoice::Never;
        Self { results, is_living: takes_sequences && stderr.is_terminal(), underway: Vec::new() }
    }

    /// Shows what happens to a server. Returns how it ended, if it has.
    pub(super) fn take(&mut self, name: &str, event: &ImportEvent<'_>) -> Option<ImportOutcome> {
        match event {
            ImportEvent::Starts => {
                self.goes_on(name, "starting");
                None
            }
            ImportEvent::Says(what) => {
                self.goes_on(name, &one_line(what));
                None
            }
            ImportEvent::Registered { tools, notes } => {
                let mark = Emphasis::Good.of("registered");
                self.ends(name, &format!("{mark}      {}  {}", name_of(name), count(*tools, "tool")));
                Some(ImportOutcome { tools: *tools, notes: notes.to_vec(), error: None })
            }
            ImportEvent::Failed(words) => {
                let mark = Emphasis::Bad.of("not registered");
                let shown = words.replace('\n', "\n    ");
                self.ends(name, &format!("{mark}  {}  failed to {shown}", name_of(name)));
                Some(ImportOutcome { tools: 0, notes: Vec::new(), error: Some((*words).to_owned()) })
            }
        }
    }

    /// Takes the lines from the screen.
    pub(super) fn clear(&mut self) {
        let lines = std::mem::take(&mut self.underway).len();
        self.write(&erased(lines));
    }

    fn goes_on(&mut self, name: &str, what: &str) {
        if !self.is_living {
            return print_message(&format!("{name}: {what}"));
        }
        let before = self.underway.len();
        match self.underway.iter_mut().find(|(other, _)| other == name) {
            Some((_, words)) => what.clone_into(words),
            None => self.underway.push((name.to_owned(), what.to_owned())),
        }
        let text = erased(before) + &self.lines();
        self.write(&text);
    }

    fn ends(&mut self, name: &str, line: &str) {
        let before = self.underway.len();
        self.underway.retain(|(other, _)| other != name);
        self.write(&erased(if self.is_living { before } else { 0 }));
        if self.results == ImportResults::AsTheyCome {
            let mut stdout = crate::cli::stdout();
            // Whoever closed stdout does not want to know.
            writeln!(stdout, "{line}").and_then(|()| stdout.flush()).ok();
        }
        if self.is_living {
            let lines = self.lines();
            self.write(&lines);
        }
    }

    /// The lines, none of which is broken where the screen ends.
    fn lines(&self) -> String {
        let line = |(name, what): &(String, String)| {
            format!("{}  {}\n", name_of(name), Emphasis::Quiet.of(&printed(what)))
        };
        let lines: String = self.underway.iter().map(line).collect();
        format!("\u{1b}[?7l{lines}\u{1b}[?7h")
    }

    fn write(&self, text: &str) {
        let mut stderr = io::stderr();
        // Nothing can be done for a user whose terminal is gone.
        stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).ok();
    }
}

fn name_of(name: &str) -> String {
    Emphasis::Title.of(name)
}

/// Takes the last lines from a screen.
fn erased(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\u{1b}[{lines}A\r\u{1b}[J") }
}
