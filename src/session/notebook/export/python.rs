//! Python in cells, as editors run them (`# %%`).
//!
//! What IPython alone understands becomes a comment, line by line, where a statement begins. A cell that is no whole Python
//! by itself becomes one as a whole: a text that it leaves open would take the cells after it in.

use super::input::cleaned;
use super::read::{Cell, Code, Page};
use super::scan::{Scan, assigned};

pub(super) fn text(page: &Page) -> String {
    let (mut text, mut futures) = (String::new(), Vec::new());
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
                push_code(&mut text, &mut futures, code);
            }
        }
    }
    if futures.is_empty() { text } else { format!("# %%\n{}\n{text}", futures.concat()) }
}

/// Adds a cell to the text, and the imports of `__future__` in it to those of the file.
fn push_code(text: &mut String, futures: &mut Vec<String>, code: &Code) {
    if let Some(end) = code.end {
        // Again it would run into its timeout, or end its kernel.
        text.push_str(&format!("# This cell did not end by itself: {end}.\n"));
        return push_commented(text, &code.source);
    }
    if code.source.trim_start().starts_with("%%") {
        return push_commented(text, &code.source);
    }
    match plain_python(&code.source).filter(|_| code.is_python) {
        Some(python) => {
            text.push_str(&python.text);
            for line in python.futures {
                if !futures.contains(&line) {
                    futures.push(line);
                }
            }
        }
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

/// A cell as Python.
#[derive(Debug, Default)]
struct Python {
    text: String,
    /// Imports of `__future__`, which must be at the beginning of a file.
    futures: Vec<String>,
}

/// The source, its magics and shell commands as comments; `None` if it cannot be Python.
fn plain_python(source: &str) -> Option<Python> {
    let (source, mut python) = (cleaned(source), Python::default());
    if is_automagic(&source) {
        push_commented(&mut python.text, &source);
        return Some(python);
    }
    let (mut scan, mut is_magic) = (Scan::default(), false);
    for line in source.lines() {
        // A magic goes on behind a backslash.
        let is_continued = is_magic && python.text.ends_with("\\\n");
        is_magic = is_continued || scan.is_at_statement() && is_for_ipython(line);
        let code = line.trim_start();
        let indentation = &line[..line.len() - code.len()];
        if is_magic {
            python.text.push_str(indentation);
            // It may be all that there is of a block.
            python.text.push_str(if indentation.is_empty() || is_continued { "# " } else { "pass  # " });
            python.text.push_str(code);
        } else if scan.is_at_statement() && line.starts_with("from __future__ ") {
            python.text.push_str("# At the beginning of this file: ");
            python.text.push_str(line);
            python.futures.push(format!("{line}\n"));
            scan.line(line).filter(|()| scan.is_at_statement())?;
        } else {
            python.text.push_str(line);
            scan.line(line)?;
        }
        python.text.push('\n');
    }
    (scan.is_at_statement() && !(is_magic && python.text.ends_with("\\\n"))).then_some(python)
}

/// Whether a line where a statement begins is a magic, a shell command, a question for help, or a call without brackets.
fn is_for_ipython(line: &str) -> bool {
    let code = line.trim();
    let is_name = |char: char| char.is_alphanumeric() || "_.*%![]- =".contains(char);
    let asked = code.trim_matches('?');
    code.starts_with(['%', '!', '/', ',', ';'])
        || asked.len() < code.len() && !asked.is_empty() && asked.chars().all(is_name)
        || assigned(code).is_some_and(|value| value.starts_with(['%', '!']))
}

/// Commands that IPython runs as the only line of a cell, and that could be read as Python.
#[rustfmt::skip]
const AUTOMAGIC: [&str; 15] = [
    "cat", "cd", "conda", "cp", "ll", "ls", "mamba", "man", "mkdir", "mv", "pip", "pwd", "rm", "rmdir", "whos",
];

fn is_automagic(source: &str) -> bool {
    let line = source.trim();
    let end = line.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    let is_python =
        rest.starts_with(['.', '(', '[', ':', ',', ';']) || rest.trim_start().starts_with(['=', ',']);
    !line.contains('\n') && AUTOMAGIC.contains(&word) && !is_python
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: Option<&str>) {
        let python = plain_python(source).map(|python| python.text);
        assert_eq!(python.as_deref(), expected, "{source}");
    }

    #[test]
    fn what_ipython_alone_understands_is_a_comment_where_a_statement_begins() {
        check("x = 1\n%time x\nif x:\n    !ls", Some("x = 1\n# %time x\nif x:\n    pass  # !ls\n"));
        check("if x:\n  !ls \\\n  -l\ny", Some("if x:\n  pass  # !ls \\\n  # -l\ny\n"));
        check("try:\n\tx[0] = !ls\nfinally: y", Some("try:\n\tpass  # x[0] = !ls\nfinally: y\n"));
        check("files = !ls\nx = %sql a", Some("# files = !ls\n# x = %sql a\n"));
        check("f(a=1).b = !ls", Some("# f(a=1).b = !ls\n"));
        check("?print\nx.y?\nx??\ny = x?", Some("# ?print\n# x.y?\n# x??\n# y = x?\n"));
        check("/f x\n,f x\n;f x", Some("# /f x\n# ,f x\n# ;f x\n"));
        check("!echo \\\nEVIL()\nx", Some("# !echo \\\n# EVIL()\nx\n"));
        check("cd /tmp", Some("# cd /tmp\n"));
        check("pip install x", Some("# pip install x\n"));
        check("  x = 1\n  %time x", Some("x = 1\n# %time x\n"));
        for python in [
            "prompt = \"\"\"Is it ok?\nEVIL()\n\"\"\"\n",
            "x = 7 \\\n% 4; y = \"\"\"\nEVIL()\n\"\"\"\n",
            "(10\n % 3)\n",
            "s = '''\n%time\n!ls\n'''\n",
            "s = 'a\\'b' # it's (\nx != 3\n",
            "r = r\"\\\"\" + 'x \\\n% y'\n",
            "a == b\nd = {'?': 1}\n",
            "ls = 1\n",
            "pwd.getpwnam('x')\n",
            "match x:\n    case A(): 1 if y else z\ntype X = int\nprint(*a, b'x' rb'y')\n",
            "f'{x[\"a\"]!r} {f\"{y}\"}' 'z'\n",
            "f\"{x[\"a\"]}\"\n",
            "async def f(): return await g() or not x.y\n",
            "x = 1e-5 + 0x1f; é = not 'a' in b is None\n",
        ] {
            check(python, Some(python));
        }
    }

    #[test]
    fn what_cannot_be_python_is_none() {
        for source in ["x = \"\"\"", "f(1,\n", "x = 'a\ny", "x = 1 + \\", ")", "!ls \\", "if x: !ls"] {
            check(source, None);
        }
        for source in ["x = 1; !ls", "print x", "print 'x'", "x = $y", "(x\n ?)", "f(x) y", "ls a\ncd b"] {
            check(source, None);
        }
    }

    #[test]
    fn imports_of_the_future_are_for_the_beginning() {
        let python = plain_python("x = 1\nfrom __future__ import annotations").unwrap();
        let text = "x = 1\n# At the beginning of this file: from __future__ import annotations\n";
        assert_eq!(python.text, text);
        assert_eq!(python.futures, ["from __future__ import annotations\n"]);
    }
}
