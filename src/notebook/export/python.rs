//! Python in cells, as editors run them (`# %%`).
//!
//! What IPython alone understands becomes a comment, line by line, where a statement begins. A cell that is no whole Python
//! by itself becomes one as a whole: a text that it leaves open would take the cells after it in.

use super::read::{Cell, Code, Page};

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
                push_code(&mut text, code);
            }
        }
    }
    text
}

fn push_code(text: &mut String, code: &Code) {
    if let Some(end) = code.end {
        // Again it would run into its timeout, or end its kernel.
        text.push_str(&format!("# This cell did not end by itself: {end}.\n"));
        return push_commented(text, &code.source);
    }
    if code.source.trim_start().starts_with("%%") {
        return push_commented(text, &code.source);
    }
    match plain_python(&code.source).filter(|_| code.is_python) {
        Some(python) => text.push_str(&python),
        None => {
            text.push_str("# This cell is no Python by itself.\n");
            push_commented(text, &code.source);
        }
    }
}

fn push_commented(text: &mut String, lines: &str) {
    for line in lines.lines() {
        text.push_str(if line.is_empty() { "#" } else { "# " });
        text.push_str(line);
        text.push('\n');
    }
}

/// The source, its magics and shell commands as comments; `None` if a text, a bracket or a line is left open at its end.
fn plain_python(source: &str) -> Option<String> {
    let (mut text, mut scan, mut is_magic) = (String::new(), Scan::default(), false);
    for line in source.lines() {
        if scan.is_at_statement() {
            // A magic goes on behind a backslash.
            is_magic = is_magic && text.ends_with("\\\n") || is_for_ipython(line);
        }
        if is_magic {
            // With the same indentation, so that it is no other block.
            let code = line.trim_start();
            text.push_str(&line[..line.len() - code.len()]);
            text.push_str("# ");
            text.push_str(code);
        } else {
            text.push_str(line);
            scan.line(line)?;
        }
        text.push('\n');
    }
    (scan.is_at_statement() && !(is_magic && text.ends_with("\\\n"))).then_some(text)
}

/// Whether a line where a statement begins is a magic, a shell command or a question for help.
fn is_for_ipython(line: &str) -> bool {
    let code = line.trim();
    let is_name = |char: char| char.is_alphanumeric() || "_.*%!".contains(char);
    let asked = code.trim_matches('?');
    let assigned = code.split_once('=').map(|(_, value)| value.trim_start());
    code.starts_with(['%', '!'])
        || asked.len() < code.len() && !asked.is_empty() && asked.chars().all(is_name)
        || assigned.is_some_and(|value| value.starts_with(['%', '!']))
}

/// Where in Python's grammar a line ends, as far as it says whether the next one begins a statement.
#[derive(Default)]
struct Scan {
    /// The quotes that end the text that is open.
    text: Option<&'static str>,
    brackets: usize,
    is_continued: bool,
}

impl Scan {
    fn is_at_statement(&self) -> bool {
        self.text.is_none() && self.brackets == 0 && !self.is_continued
    }

    /// Goes on by a line; `None` if a text ends nowhere.
    fn line(&mut self, line: &str) -> Option<()> {
        const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];

        self.is_continued = false;
        let mut rest = line;
        while let Some(char) = rest.chars().next() {
            let next = &rest[char.len_utf8()..];
            if char == '\\' {
                let mut after = next.chars();
                self.is_continued = after.next().is_none();
                rest = after.as_str();
                continue;
            }
            let quotes = match self.text {
                Some(quotes) => Some(quotes).filter(|quotes| rest.starts_with(quotes)),
                None => QUOTES.into_iter().find(|quotes| rest.starts_with(quotes)),
            };
            if let Some(quotes) = quotes {
                self.text = if self.text.is_some() { None } else { Some(quotes) };
                rest = &rest[quotes.len()..];
                continue;
            }
            match char {
                _ if self.text.is_some() => {}
                '#' => break,
                '(' | '[' | '{' => self.brackets += 1,
                ')' | ']' | '}' => self.brackets = self.brackets.checked_sub(1)?,
                _ => {}
            }
            rest = next;
        }
        // A text in single quotes ends with its line, unless that goes on.
        let is_short = self.text.is_some_and(|quotes| quotes.len() == 1);
        (!is_short || self.is_continued).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: Option<&str>) {
        assert_eq!(plain_python(source).as_deref(), expected, "{source}");
    }

    #[test]
    fn what_ipython_alone_understands_is_a_comment_where_a_statement_begins() {
        check("x = 1\n%time x\nif x:\n    !ls", Some("x = 1\n# %time x\nif x:\n    # !ls\n"));
        check("files = !ls\nx = %sql a", Some("# files = !ls\n# x = %sql a\n"));
        check("?print\nx.y?\nx??", Some("# ?print\n# x.y?\n# x??\n"));
        check("!echo \\\nEVIL()\nx", Some("# !echo \\\n# EVIL()\nx\n"));
        for python in [
            "prompt = \"\"\"Is it ok?\nEVIL()\n\"\"\"\n",
            "x = 7 \\\n% 4; y = \"\"\"\nEVIL()\n\"\"\"\n",
            "(10\n % 3)\n",
            "s = '''\n%time\n!ls\n'''\n",
            "s = 'a\\'b' # it's (\nx != 3\n",
            "r = r\"\\\"\" + 'x \\\n% y'\n",
            "a == b\nd = {'?': 1}\n",
        ] {
            check(python, Some(python));
        }
    }

    #[test]
    fn what_is_left_open_is_no_python() {
        for source in ["x = \"\"\"", "f(1,\n", "x = 'a\ny", "x = 1 + \\", ")", "!ls \\"] {
            check(source, None);
        }
    }
}
