//! Words that can be searched: the name of a type leads to one definition, and comments begin with their subject.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use syn::visit::{self, Visit};

use super::names;

/// The names that types in several files may have: errors carry the name of their room, and telemetry has types with and
/// without OpenTelemetry.
const SHARED_NAMES: [&str; 3] = ["Context", "Error", "Span"];

/// The most types that other files name by a single word. To lower it is progress.
const ONE_WORD_TYPES: usize = 74;

/// The most statements that give several variables their values as a tuple: `let (a, b) = (x, y);`.
const TUPLE_LETS: usize = 0;

/// The most comments that may begin with a word that asks. To lower it is progress.
const ASKING_COMMENTS: usize = 30;

/// The words that leave the subject of a sentence open.
const ASKING_WORDS: [&str; 4] = ["What", "Who", "Where", "How"];

/// A file of the product.
struct ProductFile {
    path: PathBuf,
    text: String,
    /// The types that other files can name.
    types: Vec<String>,
    hard: HardStatements,
}

/// All of them, each parsed once.
static PRODUCT: LazyLock<Vec<ProductFile>> = LazyLock::new(|| {
    let sources = ["src", "crates"].into_iter().flat_map(super::sources);
    let product = sources.filter(|(path, _)| !is_for_tests(path));
    product
        .map(|(path, text)| {
            let file = syn::parse_file(&text).unwrap();
            ProductFile { path, text, hard: hard_statements(&file), types: visible_types(file) }
        })
        .collect()
});

fn is_for_tests(path: &Path) -> bool {
    path.with_extension("").iter().any(|part| part == "tests")
}

fn visible_types(file: syn::File) -> Vec<String> {
    let types = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Enum(item) => Some((item.vis, item.ident)),
        syn::Item::Struct(item) => Some((item.vis, item.ident)),
        syn::Item::Trait(item) => Some((item.vis, item.ident)),
        syn::Item::Type(item) => Some((item.vis, item.ident)),
        _ => None,
    });
    let visible = types.filter(|(visibility, _)| !matches!(visibility, syn::Visibility::Inherited));
    visible.map(|(_, name)| name.to_string()).collect()
}

#[test]
fn a_type_that_other_files_name_has_a_name_of_its_own() {
    let mut places: BTreeMap<&str, BTreeSet<&Path>> = BTreeMap::new();
    for file in PRODUCT.iter() {
        for name in &file.types {
            places.entry(name).or_default().insert(&file.path);
        }
    }
    assert!(places.len() > 500, "{} types", places.len());
    places.retain(|name, paths| paths.len() > 1 && !SHARED_NAMES.contains(name));
    assert!(places.is_empty(), "{places:#?}");
}

/// The text of a comment for documentation, if the line is one.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
}

/// Whether the line is the first one of a comment that begins with a word that asks.
fn is_asking(before: &str, line: &str) -> bool {
    let begins = comment(before).is_none_or(|text| text.trim().is_empty());
    let first = comment(line).and_then(|text| text.split_whitespace().next());
    begins && first.is_some_and(|word| ASKING_WORDS.contains(&word))
}

#[test]
fn comments_begin_with_their_subject() {
    let mut asking = Vec::new();
    for ProductFile { path, text, .. } in PRODUCT.iter() {
        let before = std::iter::once("").chain(text.lines());
        let lines = before.zip(text.lines()).filter(|(before, line)| is_asking(before, line));
        asking.extend(lines.map(|(_, line)| format!("{}: {}", path.display(), line.trim())));
    }
    check_at_most(&asking, ASKING_COMMENTS);
}

/// Whether a name has no second capital: `Session`, not `SessionTools`.
fn is_one_word(name: &str) -> bool {
    name.chars().filter(|character| character.is_uppercase()).count() == 1
}

#[track_caller]
fn check_at_most(found: &[String], most: usize) {
    let count = found.len();
    assert!(count <= most, "{count} instead of {most}:\n{}", found.join("\n"));
}

#[test]
fn a_type_that_other_files_name_says_more_than_one_word() {
    let mut found = Vec::new();
    for file in PRODUCT.iter() {
        let names = file.types.iter().filter(|name| is_one_word(name));
        let names = names.filter(|name| !SHARED_NAMES.contains(&name.as_str()));
        found.extend(names.map(|name| format!("{}: {name}", file.path.display())));
    }
    check_at_most(&found, ONE_WORD_TYPES);
}

/// The lines of a file with statements that are hard to read.
#[derive(Default)]
struct HardStatements {
    tuple_lets: Vec<usize>,
    boolean_matches: Vec<usize>,
}

impl<'ast> Visit<'ast> for HardStatements {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !names::is_for_tests(names::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let pattern = match &local.pat {
            syn::Pat::Type(typed) => &*typed.pat,
            pattern => pattern,
        };
        let value = local.init.as_ref().filter(|init| init.diverge.is_none()).map(|init| &init.expr);
        let is_tuple = value.is_some_and(|value| matches!(**value, syn::Expr::Tuple(_)));
        if is_tuple && matches!(pattern, syn::Pat::Tuple(_)) {
            self.tuple_lets.push(names::line(local.let_token.span));
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        if expression.arms.iter().any(|arm| is_boolean(&arm.pat)) {
            self.boolean_matches.push(names::line(expression.match_token.span));
        }
        visit::visit_expr_match(self, expression);
    }
}

/// Whether a pattern is `true` or `false`.
fn is_boolean(pattern: &syn::Pat) -> bool {
    matches!(pattern, syn::Pat::Lit(literal) if matches!(literal.lit, syn::Lit::Bool(_)))
}

fn hard_statements(file: &syn::File) -> HardStatements {
    let mut found = HardStatements::default();
    found.visit_file(file);
    found
}

fn hard_statements_of(text: &str) -> HardStatements {
    hard_statements(&syn::parse_file(text).unwrap())
}

/// The places in the product with such statements.
fn places_of(statements: impl Fn(&HardStatements) -> &[usize]) -> Vec<String> {
    let places = |file: &'static ProductFile| {
        statements(&file.hard)
            .iter()
            .map(|line| format!("{}:{line}", file.path.display()))
            .collect::<Vec<_>>()
    };
    PRODUCT.iter().flat_map(places).collect()
}

#[test]
fn a_variable_gets_its_value_in_a_statement_of_its_own() {
    let text = "fn f() {\n let (a, b) = (1, 2);\n let (c, d) = f(); }";
    assert_eq!(hard_statements_of(text).tuple_lets, [2]);
    check_at_most(&places_of(|found| &found.tuple_lets), TUPLE_LETS);
}

#[test]
fn a_boolean_is_asked_by_if() {
    let text = "fn f() {\n match g() { true => 1, false => 2 };\n match h() { Some(true) => 1, _ => 2 } }";
    assert_eq!(hard_statements_of(text).boolean_matches, [2]);
    check_at_most(&places_of(|found| &found.boolean_matches), 0);
}
