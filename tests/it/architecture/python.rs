//! The imports between files of Python: those that run in kernels, and those of the library. Imports in functions and for type
//! checkers count.

use std::collections::BTreeSet;
use std::path::Path;

use super::{in_circles, listed, with_extension};

/// The modules of Python below a directory, with their texts: `ipybox_runtime`, `ipybox_rs.tool_exec.client`.
fn modules(directory: &str) -> Vec<(String, String)> {
    let named = |path: &Path| {
        let file = path.with_extension("");
        let package = file.iter().skip_while(|part| *part != "ipybox_rs").collect::<Vec<_>>();
        let parts = if package.is_empty() { file.file_name().into_iter().collect() } else { package };
        let parts: Vec<_> = parts.into_iter().filter(|part| *part != "__init__").collect();
        parts.join(".".as_ref()).to_string_lossy().into_owned()
    };
    with_extension(directory, "py").into_iter().map(|(path, text)| (named(&path), text)).collect()
}

/// The modules that a line imports, among others that do not exist.
fn imported(line: &str) -> Vec<String> {
    let words = line.trim_start();
    if let Some((module, names)) = words.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) {
        let names = names.split(',').map(|name| name.trim().split(' ').next().unwrap_or_default());
        let members = names.map(|name| format!("{module}.{name}"));
        return members.chain([module.to_owned()]).collect();
    }
    let modules = words.strip_prefix("import ").into_iter().flat_map(|modules| modules.split(','));
    modules.filter_map(|module| module.split_whitespace().next()).map(str::to_owned).collect()
}

/// The imports among the modules. What is said of a package's own face (`__init__.py`) does not count.
fn imports(modules: &[(String, String)]) -> BTreeSet<(String, String)> {
    let names: BTreeSet<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
    let all = modules.iter().flat_map(|(importing, text)| {
        let found = text.lines().flat_map(imported).filter(|name| names.contains(name.as_str()));
        found.map(move |name| (importing.clone(), name))
    });
    all.filter(|(importing, name)| !importing.starts_with(name.as_str())).collect()
}

#[test]
fn there_is_no_circle_of_python_files() {
    for (directory, least) in [("src", 20), ("python", 30)] {
        let imports = imports(&modules(directory));
        assert!(imports.len() > least, "{directory} has {} imports", imports.len());
        let circles = in_circles(imports);
        assert!(circles.is_empty(), "\n{}", listed(&circles));
    }
}

#[test]
fn imports_are_found_wherever_they_are() {
    let text = "import json, b as c\n    from d.e import (\nfrom d import f as g, h\n'from x'";
    let found: Vec<String> = text.lines().flat_map(imported).collect();
    assert_eq!(found, ["json", "b", "d.e.(", "d.e", "d.f", "d.h", "d"]);
    let modules = ["a", "b", "d", "d.e"].map(|name| (name.to_owned(), text.to_owned()));
    let of_a: Vec<_> = imports(&modules).into_iter().filter(|(name, _)| name == "a").collect();
    assert_eq!(of_a, ["b", "d", "d.e"].map(|name| ("a".to_owned(), name.to_owned())));
}
