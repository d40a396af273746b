//! Words that can be searched: the name of a type leads to one definition, and comments begin with their subject.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The names that types in several files may have: errors carry the name of their room, and telemetry has types with and
/// without OpenTelemetry.
const SHARED_NAMES: [&str; 3] = ["Context", "Error", "Span"];

/// The most comments that may begin with a word that asks. To lower it is progress.
const ASKING_COMMENTS: usize = 30;

/// The words that leave the subject of a sentence open.
const ASKING_WORDS: [&str; 4] = ["What", "Who", "Where", "How"];

/// The files of the product.
fn product() -> impl Iterator<Item = (PathBuf, String)> {
    super::sources("src").into_iter().filter(|(path, _)| !is_for_tests(path))
}

fn is_for_tests(path: &Path) -> bool {
    path.with_extension("").iter().any(|part| part == "tests")
}

/// The types of a file that other files can name.
fn visible_types(text: &str) -> Vec<String> {
    let types = syn::parse_file(text).unwrap().items.into_iter().filter_map(|item| match item {
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
    let mut places: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for (path, text) in product() {
        for name in visible_types(&text) {
            places.entry(name).or_default().insert(path.clone());
        }
    }
    assert!(places.len() > 500, "{} types", places.len());
    places.retain(|name, paths| paths.len() > 1 && !SHARED_NAMES.contains(&name.as_str()));
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
    for (path, text) in product() {
        let before = std::iter::once("").chain(text.lines());
        let lines = before.zip(text.lines()).filter(|(before, line)| is_asking(before, line));
        asking.extend(lines.map(|(_, line)| format!("{}: {}", path.display(), line.trim())));
    }
    let count = asking.len();
    assert!(count <= ASKING_COMMENTS, "{count} instead of {ASKING_COMMENTS}:\n{}", asking.join("\n"));
}
