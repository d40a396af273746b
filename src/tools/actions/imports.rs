//! Finds the saved actions and the parsers that code imports, by its text. Pure.
//!
//! Code can hide an import from it; then its test does not find the module.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::calls::without_texts;

/// Group 1 is a module in `gentools` or `mcpparse`, and group 2 has the names that are imported from it; or group 3 has modules.
static IMPORT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let from = r"from[ \t]+((?:gentools|mcpparse)(?:\.[A-Za-z0-9_]+)+)[ \t]+import[ \t]*(\([^)]*\)|[^\n;]*)";
    Regex::new(&format!(r"(?m)(?:^|[;:])[ \t]*(?:{from}|import[ \t]+([^\n;]*))")).ok()
});

/// The packages of actions and the modules of parsers that code imports: their names in three parts.
pub(super) fn imported(code: &str) -> BTreeSet<[String; 3]> {
    let code = without_texts(code);
    let mut found = BTreeSet::new();
    for import in IMPORT.iter().flat_map(|pattern| pattern.captures_iter(&code)) {
        let listed = import.get(2).or_else(|| import.get(3)).map_or("", |names| names.as_str());
        let names = listed.trim_matches(['(', ')']).split(',');
        for name in names.filter_map(|name| name.split_whitespace().next()) {
            let module = import.get(1).map(|module| module.as_str());
            let path = module.map_or_else(|| name.to_owned(), |module| format!("{module}.{name}"));
            if let [root @ ("gentools" | "mcpparse"), group, name, ..] =
                path.split('.').collect::<Vec<_>>()[..]
            {
                found.insert([root, group, name].map(str::to_owned));
            }
        }
    }
    found
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
