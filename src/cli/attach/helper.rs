//! The line editor's questions to us: completions, whether the code is complete, and how the prompt looks.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipybox::lasting::{PersonMessage, SessionMessage};
use rustyline::completion::Completer;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Cmd, ConditionalEventHandler, Context, Event, EventContext, Helper, RepeatCount, Result};

use super::shared::SharedPrompt;

/// The text that a tab inserts at the beginning of a line.
const INDENTATION: &str = "    ";

pub(super) struct PromptHelper {
    pub(super) shared: Arc<SharedPrompt>,
    /// Whether a question is answered, and no code written.
    pub(super) is_answering: Arc<AtomicBool>,
}

impl PromptHelper {
    fn is_answering(&self) -> bool {
        self.is_answering.load(Ordering::Relaxed)
    }
}

/// Has the return key indent the next line of a block, as IPython does.
pub(super) struct Indenter {
    pub(super) is_answering: Arc<AtomicBool>,
}

impl ConditionalEventHandler for Indenter {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let code = context.line();
        let is_code = !self.is_answering.load(Ordering::Relaxed) && context.pos() == code.len();
        let next = is_code.then(|| indentation_after(code)).flatten()?;
        Some(Cmd::Insert(1, format!("\n{next}")))
    }
}

/// The indentation of the line after `code`, if that is in the middle of a block. A blank line ends it.
fn indentation_after(code: &str) -> Option<String> {
    let last = code.rsplit('\n').next().unwrap_or_default();
    let (indentation, words) = last.split_at(last.len() - last.trim_start().len());
    if words.trim_end().ends_with(':') {
        return Some(format!("{indentation}{INDENTATION}"));
    }
    let first = words.split(|char: char| !char.is_alphabetic()).next().unwrap_or_default();
    let is_last = ["return", "raise", "pass", "break", "continue"].contains(&first);
    if words.is_empty() || indentation.is_empty() {
        return None;
    }
    let next = if is_last { indentation.strip_suffix(INDENTATION).unwrap_or_default() } else { indentation };
    Some(next.to_owned())
}

impl Helper for PromptHelper {}

impl Hinter for PromptHelper {
    type Hint = String;
}

impl Completer for PromptHelper {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> Result<(usize, Vec<String>)> {
        if self.is_answering() {
            return Ok((position, Vec::new()));
        }
        let before = &line[..position];
        let begun = before.rsplit('\n').next().unwrap_or_default();
        if begun.trim().is_empty() {
            return Ok((position, vec![INDENTATION.to_owned()]));
        }
        let code = line.to_owned();
        match self.shared.ask(|id| PersonMessage::Complete { id, code, cursor: position }) {
            Some(SessionMessage::Completions { matches, before: chars, .. }) => {
                let start =
                    before.char_indices().rev().take(chars).last().map_or(position, |(start, _)| start);
                Ok((start, matches))
            }
            _ => Ok((position, Vec::new())),
        }
    }
}

impl Validator for PromptHelper {
    fn validate(&self, context: &mut ValidationContext) -> Result<ValidationResult> {
        let code = context.input();
        if self.is_answering() || code.trim().is_empty() {
            return Ok(ValidationResult::Valid(None));
        }
        let checked = self.shared.ask(|id| PersonMessage::Check { id, code: code.to_owned() });
        let is_complete = match checked {
            Some(SessionMessage::Checked { is_complete: Some(is_complete), .. }) => is_complete,
            _ => looks_complete(code),
        };
        Ok(if is_complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Highlighter for PromptHelper {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        let above = self.shared.screen.above_prompt();
        // The agent may have run cells. The editor has to find the prompt as long as it was.
        let current =
            Some(self.shared.prompt()).filter(|now| !self.is_answering() && now.len() == prompt.len());
        let prompt = current.as_deref().unwrap_or(prompt);
        Cow::Owned(above + &self.shared.screen.styled(prompt, "32"))
    }

    fn highlight<'l>(&self, line: &'l str, position: usize) -> Cow<'l, str> {
        self.shared.note_line(line, position);
        Cow::Borrowed(line)
    }

    fn highlight_char(&self, line: &str, position: usize, _: CmdKind) -> bool {
        self.shared.note_line(line, position);
        false
    }
}

/// Whether code seems to be complete, while the kernel is too busy to say: a blank line ends what an open bracket, a colon
/// or an indented line has begun.
fn looks_complete(code: &str) -> bool {
    let opened = code.matches(['(', '[', '{']).count();
    let closed = code.matches([')', ']', '}']).count();
    let last = code.rsplit('\n').next().unwrap_or_default();
    let is_block = |line: &str| line.trim_end().ends_with([':', '\\']) || line.starts_with([' ', '\t']);
    last.trim().is_empty() || opened <= closed && !is_block(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_indented() {
        for (code, expected) in [
            ("x = 1", None),
            ("x = {1:", Some("    ")),
            ("for x in y:", Some("    ")),
            ("for x in y:\n    if x: ", Some("        ")),
            ("for x in y:\n    print(x)", Some("    ")),
            ("for x in y:\n    if x:\n        break", Some("    ")),
            ("def f():\n    return 1", Some("")),
            ("def f():\n    returned()", Some("    ")),
            ("def f():\n    return 1\n", None),
            ("def f():\n    g()\n    ", None),
        ] {
            assert_eq!(indentation_after(code).as_deref(), expected, "{code:?}");
        }
    }

    #[test]
    fn code_seems_complete_while_nobody_can_say() {
        for complete in ["x = 1", "print(x)", "for x in y:\n    print(x)\n", "f(\n1)", "(\n"] {
            assert!(looks_complete(complete), "{complete:?}");
        }
        for incomplete in ["f(", "for x in y:", "for x in y:\n    print(x)", "x = \\"] {
            assert!(!looks_complete(incomplete), "{incomplete:?}");
        }
    }
}
