//! Makes tool results of outcomes and errors: pure.

use std::path::Path;

use rmcp::model::{CallToolResult, ContentBlock};

use crate::approval::DenialReason;
use crate::ground::text::describe;
use crate::kernels::kernel::PythonError;
use crate::kernels::output::{CutText, SavedFile, SavedImage, late_section};
use crate::session::{CellEnding, Outcome};

/// The least limit for an exception's text, in characters, if the limit for output is smaller.
const ERROR_CHARS: usize = 5_000;

/// The answer of a cell without output: APIs of model providers refuse blank texts.
const NO_OUTPUT: &str = "[no output]";

/// A result of one text.
pub(super) fn success(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![block(text)])
}

/// A failure that a model can act on.
pub(super) fn failure(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![block(text)])
}

/// A text block, which is never blank.
pub(super) fn block(text: impl Into<String>) -> ContentBlock {
    let text = text.into();
    let is_blank = text.trim().is_empty();
    ContentBlock::text(if is_blank { NO_OUTPUT.to_owned() } else { text })
}

/// An error with its causes, as a failure that a model can act on.
pub(super) fn error(error: &dyn std::error::Error) -> CallToolResult {
    failure(format!("Failed to {}", describe(error)))
}

/// The failure of an action that was denied.
pub(super) fn denied(denied: &DenialReason) -> CallToolResult {
    failure(format!("Not done: {denied}"))
}

/// A result of several texts.
pub(super) fn texts(texts: Vec<String>) -> CallToolResult {
    CallToolResult::success(texts.into_iter().map(block).collect())
}

/// The result of a cell: its output, links to its images and files, and how it ended if not well; then what is `shown` beside
/// the text.
pub(super) fn cell(outcome: &Outcome, max_output_chars: usize, shown: Vec<ContentBlock>) -> CallToolResult {
    let mut sections = outcome.notes.clone();
    let late = joined(vec![outcome.late.excerpt.clone(), cut_notice(outcome.late.cut.as_ref())]);
    sections.extend(late_section(&late));
    sections.push(outcome.shown.text.excerpt.clone());
    sections.push(cut_notice(outcome.shown.text.cut.as_ref()));
    sections.push(image_links(&outcome.shown.images));
    sections.push(file_links(&outcome.shown.files));
    sections.push(outcome.words());
    let error = outcome.error.as_ref().map(PythonError::text).unwrap_or_default();
    // Wrong use of a magic is reported in the output already.
    if !outcome.shown.text.excerpt.ends_with(&error) {
        sections.push(middle_cut(&error, max_output_chars.max(ERROR_CHARS)));
    }
    let is_error = !matches!(outcome.end, CellEnding::Finished) || outcome.error.is_some();
    let mut content = vec![block(joined(sections))];
    content.extend(shown);
    if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }
}

fn joined(mut sections: Vec<String>) -> String {
    sections.retain(|section| !section.is_empty());
    sections.join("\n\n")
}

fn cut_notice(cut: Option<&CutText>) -> String {
    match cut {
        None => String::new(),
        Some(CutText { limit, chars, file }) => {
            let notice = format!("[Output truncated: exceeded {limit} character limit]");
            match file {
                Some(file) => format!("{notice}\n[All {chars} characters are in {}]", file.display()),
                None => notice,
            }
        }
    }
}

fn image_links(images: &[SavedImage]) -> String {
    list("Generated images", images.iter().map(|image| link(&image.name(), &image.path)))
}

fn file_links(files: &[SavedFile]) -> String {
    let line = |file: &SavedFile| format!("{}, {} bytes", link(&file.name(), &file.path), file.bytes);
    list("Shown files (copies)", files.iter().map(line))
}

/// A list in Markdown; nothing if it is empty.
fn list(heading: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: String = lines.map(|line| format!("- {line}\n")).collect();
    if lines.is_empty() { lines } else { format!("{heading}:\n\n{lines}") }
}

fn link(name: &str, path: &Path) -> String {
    let path = path.display().to_string();
    // Markdown ends a bare URL at these.
    let is_bare = !path.contains([' ', '(', ')']);
    if is_bare { format!("[{name}]({path})") } else { format!("[{name}](<{path}>)") }
}

/// Cuts out the middle of a text that is longer than `limit` characters: an exception says most at its ends.
pub(super) fn middle_cut(text: &str, limit: usize) -> String {
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
    use crate::kernels::output::{OutputText, RecordedOutput};
    use crate::session::KernelState;

    fn error(name: &str, value: &str, traceback: &[&str]) -> PythonError {
        PythonError {
            name: name.to_owned(),
            value: value.to_owned(),
            traceback: traceback.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    fn finished(shown: RecordedOutput) -> Outcome {
        Outcome { shown, ..Outcome::not_run(CellEnding::Finished) }
    }

    fn raised(error: PythonError) -> Outcome {
        Outcome { error: Some(error), ..Outcome::not_run(CellEnding::Finished) }
    }

    #[track_caller]
    fn check(outcome: &Outcome, expected: &str) {
        let result = serde_json::to_value(cell(outcome, 5_000, Vec::new())).unwrap();
        assert_eq!(result["content"][0]["text"], expected);
    }

    #[test]
    fn no_text_is_blank() {
        check(&finished(RecordedOutput::default()), "[no output]");
        let text = OutputText { excerpt: "\n\t \u{a0}".to_owned(), cut: None };
        check(&finished(RecordedOutput { text, ..RecordedOutput::default() }), "[no output]");
        for result in [success(""), failure(" \n")] {
            assert_eq!(serde_json::to_value(result).unwrap()["content"][0]["text"], "[no output]");
        }
    }

    #[test]
    fn images_are_markdown_links() {
        let image = |path: &str| SavedImage::new(path.into(), None);
        let images = vec![
            image("/w/images/0a1b2c3d.png"),
            image("/w (1)/images/1a1b2c3d.png"),
            image("/w/images/a-b-2a1b2c3d.html"),
        ];
        check(
            &finished(RecordedOutput { images, ..RecordedOutput::default() }),
            "Generated images:\n\n- [0a1b2c3d](/w/images/0a1b2c3d.png)\n- [1a1b2c3d](</w (1)/images/1a1b2c3d.png>)\n\
             - [a-b](/w/images/a-b-2a1b2c3d.html)\n",
        );
    }

    #[test]
    fn files_are_markdown_links_with_their_lengths() {
        let files = vec![SavedFile { path: "/w/.ipybox/files/0a1b2c3d-a.csv".into(), bytes: 1234 }];
        check(
            &finished(RecordedOutput { files, ..RecordedOutput::default() }),
            "Shown files (copies):\n\n- [a.csv](/w/.ipybox/files/0a1b2c3d-a.csv), 1234 bytes\n",
        );
    }

    #[test]
    fn pictures_follow_the_text_of_any_end() {
        for (end, is_error) in [(CellEnding::Finished, false), (CellEnding::NotRun, true)] {
            let pictures = vec![ContentBlock::image("AAAA", "image/png")];
            let result = serde_json::to_value(cell(&Outcome::not_run(end), 5_000, pictures)).unwrap();
            let image = serde_json::json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
            assert_eq!((&result["content"][1], &result["isError"]), (&image, &is_error.into()));
            assert_eq!(result["content"][0]["type"], "text");
        }
    }

    #[test]
    fn an_exception_is_shown_without_colours() {
        let error_in_red = error("E", "v", &["\u{1b}[31mTraceback\u{1b}[0m", "E: v"]);
        check(&Outcome { notes: vec!["note".to_owned()], ..raised(error_in_red) }, "note\n\nTraceback\nE: v");
        check(&raised(error("E", "v", &[])), "E: v");
    }

    #[test]
    fn a_timeout_says_whether_variables_survived_and_where_the_code_was() {
        let after = Duration::from_millis(1500);
        let error = Some(error("KeyboardInterrupt", "", &["line 3", "KeyboardInterrupt"]));
        check(
            &Outcome { error, ..Outcome::not_run(CellEnding::TimedOut { after, state: KernelState::Kept }) },
            "Execution timed out after 1.5 seconds and was interrupted. \
             The kernel is fine: variables and imports are still there.\n\nline 3\nKeyboardInterrupt",
        );
    }

    #[test]
    fn cut_output_says_where_the_rest_is_and_cuts_no_image_or_error() {
        let file = Some("/w/.ipybox/outputs/0a1b2c3d.txt".into());
        let text =
            OutputText { excerpt: "a…z".to_owned(), cut: Some(CutText { limit: 3, chars: 26, file }) };
        let shown = RecordedOutput { text, ..RecordedOutput::default() };
        check(
            &Outcome { shown, ..raised(error("E", "v", &[])) },
            "a…z\n\n[Output truncated: exceeded 3 character limit]\n[All 26 characters are in \
             /w/.ipybox/outputs/0a1b2c3d.txt]\n\nE: v",
        );
    }

    #[test]
    fn late_output_is_marked() {
        let text = |excerpt: &str| OutputText { excerpt: excerpt.to_owned(), cut: None };
        let own = finished(RecordedOutput { text: text("own"), ..RecordedOutput::default() });
        check(
            &Outcome { late: text("tick"), ..own },
            "[Output of earlier cells, after they had ended:]\ntick\n[End of the output of earlier cells]\n\nown",
        );
    }

    #[test]
    fn a_huge_exception_keeps_both_ends() {
        let text = format!("begin{}end", "é".repeat(10_000));
        let cut = middle_cut(&text, 100);
        assert!(cut.starts_with("begin") && cut.ends_with("end") && cut.chars().count() < 200, "{cut}");
    }
}
