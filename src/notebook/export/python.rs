//! Python in cells, as editors run them (`# %%`).

use super::read::{Cell, Page};

/// What IPython alone understands begins a line so.
const MAGICS: [char; 2] = ['%', '!'];

pub(super) fn text(page: &Page) -> String {
    let mut text = String::new();
    for cell in &page.cells {
        if !text.is_empty() {
            text.push('\n');
        }
        match cell {
            Cell::Words(words) => {
                text.push_str("# %% [markdown]\n");
                push_commented(&mut text, words);
            }
            Cell::Code(code) => {
                text.push_str("# %%\n");
                match code.end {
                    // Again it would run into its timeout, or end its kernel.
                    Some(end) => {
                        text.push_str(&format!("# This cell did not end by itself: {end}.\n"));
                        push_commented(&mut text, &code.source);
                    }
                    None if code.source.trim_start().starts_with("%%") => {
                        push_commented(&mut text, &code.source);
                    }
                    None => push_code(&mut text, &code.source),
                }
            }
        }
    }
    text
}

fn push_code(text: &mut String, source: &str) {
    for line in source.lines() {
        // With the same indentation, so that it is no other block.
        let code = line.trim_start();
        if code.starts_with(MAGICS) || code.ends_with('?') && !code.contains('#') {
            text.push_str(&line[..line.len() - code.len()]);
            text.push_str("# ");
            text.push_str(code);
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
}

fn push_commented(text: &mut String, lines: &str) {
    for line in lines.lines() {
        text.push_str(if line.is_empty() { "#" } else { "# " });
        text.push_str(line);
        text.push('\n');
    }
}
