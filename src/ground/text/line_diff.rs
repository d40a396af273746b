//! The lines in which two texts differ.

use similar::{ChangeTag, TextDiff};

use super::visible::line;

/// The characters of a line that are shown.
const LINE_CHARS: usize = 300;

/// The lines in which two texts differ, at most `most` and each shortened, with `-` before those of the first text and `+` before
/// those of the second one; a last line counts the others. Nothing in them is invisible.
pub(crate) fn line_diff(before: &str, after: &str, most: usize) -> Vec<String> {
    let diff = TextDiff::from_lines(before, after);
    let changed = diff.iter_all_changes().filter_map(|change| {
        let sign = match change.tag() {
            ChangeTag::Equal => return None,
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        let text: String = line(change.value().trim_end()).chars().take(LINE_CHARS).collect();
        Some(format!("{sign} {text}"))
    });
    let mut lines: Vec<String> = changed.collect();
    let more = lines.len().saturating_sub(most);
    if more > 0 {
        lines.truncate(most);
        lines.push(format!("… and {more} more lines"));
    }
    lines
}
