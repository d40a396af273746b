//! Finds the saved actions that a cell calls, by its text and the imports of the cells before. Pure.
//!
//! Code can hide a call from it, and be counted less; it cannot be counted without a cell that names an action.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::imports::{CodeImport, imports, without_texts};

/// The most names that are remembered: code can import without end.
const MOST_NAMES: usize = 1_000;

// Without classes of Unicode, which the crate has only if another one asks for them.
static CALL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"([A-Za-z_][A-Za-z0-9_.]*)[ \t]*\(").ok());

/// The category and the name of an action.
type ActionName = (String, String);

/// The names that imports have given to actions and their functions.
#[derive(Debug, Default)]
pub(crate) struct ImportedActions {
    modules: BTreeMap<String, ActionName>,
    functions: BTreeMap<String, ActionName>,
}

impl ImportedActions {
    /// Notes the imports of a cell, and returns the actions that it calls, each once.
    pub(crate) fn called(&mut self, code: &str) -> BTreeSet<ActionName> {
        let code = &without_texts(code);
        if code.contains("gentools") {
            self.note_imports(code);
        }
        let mut called = BTreeSet::new();
        if self.modules.is_empty() && self.functions.is_empty() {
            return called;
        }
        for call in CALL.iter().flat_map(|pattern| pattern.captures_iter(code)) {
            let path = &call[1];
            let of_module =
                path.rsplit_once('.').filter(|(_, function)| ["run", "run_async"].contains(function));
            let of_module = of_module.and_then(|(module, _)| self.modules.get(module));
            called.extend(of_module.or_else(|| self.functions.get(path)).cloned());
        }
        called
    }

    fn note_imports(&mut self, code: &str) {
        if self.modules.len() + self.functions.len() > MOST_NAMES {
            return;
        }
        for CodeImport { path, bound } in imports(code) {
            match path.split('.').collect::<Vec<_>>()[..] {
                ["gentools", category, action] => {
                    self.modules.insert(bound, (category.to_owned(), action.to_owned()));
                }
                ["gentools", category, action, "run" | "run_async"] => {
                    self.functions.insert(bound, (category.to_owned(), action.to_owned()));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cells: &[&str], expected: &[&str]) {
        let mut imported = ImportedActions::default();
        let called = cells.iter().map(|code| imported.called(code)).last().unwrap_or_default();
        let called: Vec<String> =
            called.into_iter().map(|(category, name)| format!("{category}.{name}")).collect();
        assert_eq!(called, expected, "{cells:?}");
    }

    #[test]
    fn calls_are_found_by_the_names_of_imports() {
        check(
            &["from gentools.sums import total, both as b\nprint(total.run([1]) + total.run([2]))"],
            &["sums.total"],
        );
        check(&["from gentools.sums import total, both as b", "await b.run_async(1)"], &["sums.both"]);
        check(&["from gentools.sums.total import run as add_up", "add_up ([1])"], &["sums.total"]);
        check(&["import gentools.sums.total", "x = gentools.sums.total.run([1])"], &["sums.total"]);
        check(&["import gentools.sums.total as t\nt.run(1)"], &["sums.total"]);
        check(&["if True:\n    from gentools.sums import (total)\n    total.run(1)"], &["sums.total"]);
    }

    #[test]
    fn code_that_calls_none_counts_for_none() {
        check(&["total.run([1])"], &[]);
        check(&["from gentools.sums import total", "print('total ran')", "total"], &[]);
        check(&["from gentools.sums import total", "other.total.run(1)"], &[]);
        check(&["from gentools.sums import total", "'total.run(1)' # total.run(1)"], &[]);
        check(
            &[
                "from gentools.sums import total",
                "x = \"\"\"\ntotal.run(1) \\\"\"\" \"\"\"; '\\'total.run(1)'",
            ],
            &[],
        );
        check(&["from gentools.sums import total", "'' 'a'; total.run('x')"], &["sums.total"]);
        check(&["from gentools.sums.total import Author", "Author()"], &[]);
    }
}
