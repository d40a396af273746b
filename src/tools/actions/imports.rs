//! Finds the saved actions and the parsers that code imports, by its text. Pure.
//!
//! Code can hide an import from it; then its test does not find the module.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// Group 1 is a module in `gentools` or `mcpparse`, and group 2 has the names that are imported from it; or group 3 has modules.
static IMPORT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let from = r"from[ \t]+((?:gentools|mcpparse)(?:\.[A-Za-z0-9_]+)+)[ \t]+import[ \t]*(\([^)]*\)|[^\n;]*)";
    Regex::new(&format!(r"(?m)(?:^|[;:])[ \t]*(?:{from}|import[ \t]+([^\n;]*))")).ok()
});

/// A module, or a name of one, that code imports.
pub(super) struct CodeImport {
    pub(super) path: String,
    /// Its name in the code.
    pub(super) bound: String,
}

/// The imports of code without texts: from `gentools` and `mcpparse`, and of modules by their whole names.
pub(super) fn imports(code: &str) -> Vec<CodeImport> {
    let mut found = Vec::new();
    for import in IMPORT.iter().flat_map(|pattern| pattern.captures_iter(code)) {
        let listed = import.get(2).or_else(|| import.get(3)).map_or("", |names| names.as_str());
        for item in listed.trim_matches(['(', ')']).split(',') {
            let mut words = item.split_whitespace();
            let Some(name) = words.next() else { continue };
            let renamed = words.nth(1);
            let path = match (import.get(1), renamed) {
                (Some(module), _) => format!("{}.{name}", module.as_str()),
                // The packages above are imported too, and code has them by their whole names.
                (None, None) => name.split('.').take(3).collect::<Vec<_>>().join("."),
                (None, Some(_)) => name.to_owned(),
            };
            let own = if import.get(1).is_some() { name } else { &path };
            let bound = renamed.unwrap_or(own).to_owned();
            found.push(CodeImport { path, bound });
        }
    }
    found
}

/// The packages of actions and the modules of parsers that code imports: their names in three parts.
pub(super) fn imported(code: &str) -> BTreeSet<[String; 3]> {
    let mut found = BTreeSet::new();
    for import in imports(&without_texts(code)) {
        if let [root @ ("gentools" | "mcpparse"), group, name, ..] =
            import.path.split('.').collect::<Vec<_>>()[..]
        {
            found.insert([root, group, name].map(str::to_owned));
        }
    }
    found
}

/// The code without its texts and comments, which call nothing.
pub(super) fn without_texts(code: &str) -> String {
    let mut left = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(begin) = rest.find(['\'', '"', '#']) {
        left.push_str(&rest[..begin]);
        rest = &rest[begin..];
        let end = match rest.as_bytes() {
            [b'#', ..] => rest.find('\n').unwrap_or(rest.len()),
            [quote, second, third, ..] if quote == second && quote == third => text_end(rest, &rest[..3]),
            _ => text_end(rest, &rest[..1]),
        };
        rest = &rest[end..];
    }
    left.push_str(rest);
    left
}

/// The place after a text that `code` begins with. A short one ends with its line at the latest.
fn text_end(code: &str, quote: &str) -> usize {
    let mut is_escaped = false;
    for (place, character) in code.char_indices().skip(quote.len()) {
        if is_escaped {
            is_escaped = false;
        } else if character == '\\' {
            is_escaped = true;
        } else if code[place..].starts_with(quote) {
            return place + quote.len();
        } else if character == '\n' && quote.len() == 1 {
            return place;
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &str, expected: &[&str]) {
        let found: Vec<String> = imported(code).into_iter().map(|parts| parts.join(".")).collect();
        assert_eq!(found, expected, "{code}");
    }

    #[test]
    fn imports_of_actions_and_parsers_are_found() {
        check("from gentools.sums import total, both as b", &["gentools.sums.both", "gentools.sums.total"]);
        check("def f():\n    from gentools.sums.total.api import Total", &["gentools.sums.total"]);
        check(
            "import os, gentools.sums.total as t, gentools.a.b; x = 1",
            &["gentools.a.b", "gentools.sums.total"],
        );
        check("x = 1; from gentools.sums import total", &["gentools.sums.total"]);
        check(
            "from mcpparse.git import (\n    git_log,  # the log\n    show,\n)",
            &["mcpparse.git.git_log", "mcpparse.git.show"],
        );
        check("from mcpparse.git.git_log import run_parsed", &["mcpparse.git.git_log"]);
        check("'''\nfrom gentools.a import b\n'''\n# import gentools.a.b\nfrom .api import gentools", &[]);
        check("from gentools import sums\nimport mcpparse.git\nfrom mygentools.a import b", &[]);
    }
}
