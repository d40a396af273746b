//! From outcomes and errors to what a model reads: pure.

use std::fmt::Write as _;
use std::path::PathBuf;

use rmcp::model::{CallToolResult, ContentBlock};

use crate::describe::describe;
use crate::executor::{End, Outcome, State};
use crate::kernel::{Death, PythonError};

/// Room for an exception's text, in characters, where the limit for output is smaller.
const ERROR_CHARS: usize = 5_000;

/// A result of one text.
pub(super) fn success(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A failure that a model can act on.
pub(super) fn failure(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// An error with its causes, as a failure that a model can act on.
pub(super) fn error(error: &dyn std::error::Error) -> CallToolResult {
    failure(format!("Failed to {}", describe(error)))
}

/// The result of a cell: its output, its images, and how it ended if not well.
pub(super) fn cell(outcome: Outcome, max_output_chars: usize) -> CallToolResult {
    let is_cut = outcome.text.is_cut();
    let mut sections = outcome.notes;
    let mut output = outcome.text.into_string();
    if is_cut {
        let _infallible =
            write!(output, "\n\n[Output truncated: exceeded {max_output_chars} character limit]");
    }
    sections.push(output);
    sections.push(image_links(&outcome.images));
    let (is_error, ending) = ending(&outcome.end, max_output_chars.max(ERROR_CHARS));
    sections.push(ending);
    sections.retain(|section| !section.is_empty());
    let text = sections.join("\n\n");
    if is_error { failure(text) } else { success(text) }
}

fn image_links(images: &[PathBuf]) -> String {
    if images.is_empty() {
        return String::new();
    }
    let mut links = "Generated images:\n\n".to_owned();
    for image in images {
        let stem = image.file_stem().unwrap_or_default().to_string_lossy();
        let path = image.display().to_string();
        // Markdown ends a bare address at these.
        let is_bare = !path.contains([' ', '(', ')']);
        let _infallible = if is_bare {
            writeln!(links, "- [{stem}]({path})")
        } else {
            writeln!(links, "- [{stem}](<{path}>)")
        };
    }
    links
}

/// Whether an end is an error, and what is said about it.
fn ending(end: &End, limit: usize) -> (bool, String) {
    match end {
        End::Completed => (false, String::new()),
        End::Raised(error) => (true, middle_cut(&exception(error), limit)),
        End::TimedOut { after, state } => {
            let seconds = after.as_secs_f64();
            (
                true,
                format!("Execution timed out after {seconds} seconds and was interrupted. {}", fate(*state)),
            )
        }
        End::Cancelled(state) => (true, format!("Execution was cancelled. {}", fate(*state))),
        End::NotRun => (true, "Execution was cancelled before it began.".to_owned()),
        End::Reset => (
            true,
            "Execution was stopped by a reset of the kernel. All variables and imports are gone.".to_owned(),
        ),
        End::Unanswered => (
            true,
            "The IPython kernel did not say how the cell ended: its code may not have run. An earlier cell may have \
             broken the kernel, by replacing `sys.stdout` for instance; `reset` makes a fresh one."
                .to_owned(),
        ),
        End::Unreachable(error) => {
            let why = describe(error);
            let text = format!(
                "The connection to the IPython kernel failed ({why}). \
                 A fresh kernel takes its place: all variables and imports are gone."
            );
            (true, text)
        }
        End::Died(death) => {
            let Death { status, stderr, .. } = death;
            let causes = death.causes();
            let words = if stderr.is_empty() { String::new() } else { format!("\n\n{stderr}") };
            let text = format!(
                "The IPython kernel died while running the cell ({status}). \
                 A fresh one takes its place: all variables and imports are gone.{causes}{words}"
            );
            (true, text)
        }
    }
}

fn fate(state: State) -> &'static str {
    match state {
        State::Kept => "The kernel is fine: variables and imports are still there.",
        State::Lost => {
            "The code did not react, so the kernel was killed and a fresh one takes its place: \
             all variables and imports are gone."
        }
    }
}

/// The traceback, which names the exception and its value; those alone if there is none.
fn exception(error: &PythonError) -> String {
    let traceback = anstream::adapter::strip_str(&error.traceback.join("\n")).to_string();
    if traceback.contains(&error.name) {
        return traceback;
    }
    let line = anstream::adapter::strip_str(&format!("{}: {}", error.name, error.value)).to_string();
    if traceback.is_empty() { line } else { format!("{traceback}\n{line}") }
}

/// Cuts out the middle of a text that is longer than `limit` characters: an exception says most at its ends.
fn middle_cut(text: &str, limit: usize) -> String {
    let chars = text.chars().count();
    if chars <= limit {
        return text.to_owned();
    }
    let half = limit / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(chars - half).collect();
    format!("{head}\n[… {} characters …]\n{tail}", chars - 2 * half)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn error(name: &str, value: &str, traceback: &[&str]) -> PythonError {
        PythonError {
            name: name.to_owned(),
            value: value.to_owned(),
            traceback: traceback.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    fn check(end: End, notes: &[&str], images: &[&str], expected: &str) {
        let outcome = Outcome {
            text: crate::kernel::Text::default(),
            images: images.iter().map(PathBuf::from).collect(),
            end,
            notes: notes.iter().map(|&note| note.to_owned()).collect(),
        };
        let result = serde_json::to_value(cell(outcome, 5_000)).unwrap();
        assert_eq!(result["content"][0]["text"], expected);
    }

    #[test]
    fn nothing_is_an_empty_text() {
        check(End::Completed, &[], &[], "");
    }

    #[test]
    fn images_are_markdown_links() {
        check(
            End::Completed,
            &[],
            &["/w/images/0a1b2c3d.png"],
            "Generated images:\n\n- [0a1b2c3d](/w/images/0a1b2c3d.png)\n",
        );
    }

    #[test]
    fn an_exception_is_told_without_colours() {
        check(
            End::Raised(error("E", "v", &["\u{1b}[31mTraceback\u{1b}[0m", "E: v"])),
            &["note"],
            &[],
            "note\n\nTraceback\nE: v",
        );
        check(End::Raised(error("E", "v", &[])), &[], &[], "E: v");
    }

    #[test]
    fn a_timeout_says_whether_variables_survived() {
        let after = Duration::from_millis(1500);
        check(
            End::TimedOut { after, state: State::Kept },
            &[],
            &[],
            "Execution timed out after 1.5 seconds and was interrupted. \
             The kernel is fine: variables and imports are still there.",
        );
    }

    #[test]
    fn a_huge_exception_keeps_both_ends() {
        let text = format!("begin{}end", "é".repeat(10_000));
        let cut = middle_cut(&text, 100);
        assert!(cut.starts_with("begin") && cut.ends_with("end") && cut.chars().count() < 200, "{cut}");
    }
}
