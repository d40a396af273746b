//! Code that comes as a block of Markdown, as models write it: pure.

/// The names of blocks that are Python.
const PYTHON: [&str; 7] = ["", "python", "python3", "py", "py3", "ipython", "ipython3"];
/// The names of blocks for shells, and the magics that run these.
const SHELLS: [(&str, &str); 3] = [("bash", "%%bash"), ("sh", "%%sh"), ("shell", "%%bash")];

/// The code of a cell, without the fence around it. What is no single block of code stays as it is.
pub(super) fn unfenced(code: String) -> String {
    without_fence(&code).unwrap_or(code)
}

fn without_fence(code: &str) -> Option<String> {
    let (opening, body) = code.trim().split_once('\n')?;
    let mark = opening.chars().next().filter(|mark| ['`', '~'].contains(mark))?;
    let name = opening.trim_start_matches(mark);
    let fence = &opening[..opening.len() - name.len()];
    if fence.len() < 3 {
        return None;
    }
    let is_fence = |line: &str| line.trim_end().starts_with(fence);
    // An answer that was cut off has no end.
    let body = match body.rsplit_once('\n') {
        Some((body, end)) if end.trim_end() == fence => body,
        _ if body.trim_end() == fence => "",
        _ => body,
    };
    if body.lines().any(is_fence) {
        return None;
    }
    let name = name.trim().to_ascii_lowercase();
    if PYTHON.contains(&name.as_str()) {
        return Some(body.to_owned());
    }
    let (_, magic) = SHELLS.iter().find(|(shell, _)| *shell == name)?;
    Some(format!("{magic}\n{body}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_markdown_is_its_code() {
        let check = |code: &str, expected: &str| assert_eq!(unfenced(code.to_owned()), expected, "{code}");
        check("```python\nx = 1\nx\n```", "x = 1\nx");
        check("\n```\nif x:\n    y\n```  \n", "if x:\n    y");
        check("~~~ Py\n1\n~~~", "1");
        check("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''");
        check("```python\n1", "1");
        check("```python\n```", "");
        check("```bash\nls -l\n```", "%%bash\nls -l");
        check("```python\n%%time\n1\n```", "%%time\n1");
    }

    #[test]
    fn other_code_stays_as_it_is() {
        for code in [
            "1",
            "",
            "```",
            "x = '''\n```python\n1\n```\n'''",
            "%%writefile a.md\n```python\n1\n```",
            "Here is it:\n```python\n1\n```",
            "```python\n1\n```\nand\n```python\n2\n```",
            "```javascript\n1\n```",
            "``x``\n1",
        ] {
            assert_eq!(unfenced(code.to_owned()), code);
        }
    }
}
