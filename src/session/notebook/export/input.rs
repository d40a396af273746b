//! What IPython takes from a cell before it reads it: empty lines at its beginning, an indentation of all lines, and the
//! prompts of code that was pasted with them.

/// The source as IPython reads it.
pub(super) fn cleaned(source: &str) -> String {
    let mut lines: Vec<&str> = source.lines().skip_while(|line| line.trim().is_empty()).collect();
    let first = lines.first().copied().unwrap_or_default();
    let indentation = &first[..first.len() - first.trim_start_matches([' ', '\t']).len()];
    for line in &mut lines {
        *line = line.strip_prefix(indentation).unwrap_or(line);
    }
    for (prompt, is_first) in [(python_prompt as Prompt, ">>>"), (ipython_prompt as Prompt, "")] {
        let begins = lines.first().is_some_and(|line| line.starts_with(is_first) && prompt(line).is_some());
        if begins || lines.get(1).is_some_and(|line| prompt(line).is_some()) {
            for line in &mut lines {
                *line = prompt(line).unwrap_or(line);
            }
        }
    }
    lines.join("\n")
}

/// The rest of a line behind its prompt; `None` if it has none.
type Prompt = fn(&str) -> Option<&str>;

/// `>>> ` and `... `.
fn python_prompt(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(">>>").or_else(|| line.strip_prefix("..."))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(' ') }
}

/// `In [1]: ` and `   ...: `.
fn ipython_prompt(line: &str) -> Option<&str> {
    let line = line.strip_prefix("[ins] ").or_else(|| line.strip_prefix("[nav] ")).unwrap_or(line);
    if let Some((number, rest)) = line.strip_prefix("In [").and_then(|rest| rest.split_once("]: ")) {
        let is_number = !number.is_empty() && number.chars().all(|char| char.is_ascii_digit());
        return is_number.then_some(rest);
    }
    let dots = line.trim_start();
    let rest = dots.trim_start_matches('.');
    let rest = rest.strip_prefix(':').filter(|_| dots.starts_with("..."))?;
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_read_as_ipython_reads_it() {
        for (source, expected) in [
            ("x = 1\n    y", "x = 1\n    y"),
            ("\n  \n    x = 1\n    if x:\n        y\n  z", "x = 1\nif x:\n    y\n  z"),
            (">>> x = 1\n>>> for y in x:\n...     z\n...\n1", "x = 1\nfor y in x:\n    z\n\n1"),
            ("  >>> x", "x"),
            (">>>x", ">>>x"),
            ("In [1]: print(1)\n   ...: x\n\nIn [23]: y", "print(1)\nx\n\ny"),
            ("In [a]: print(1)", "In [a]: print(1)"),
            ("x = [\n1,\n...]", "x = [\n1,\n...]"),
            ("", ""),
        ] {
            assert_eq!(cleaned(source), expected, "{source}");
        }
    }
}
