//! Package names for the names of servers in other clients. Pure.

use ipybox_codegen as codegen;

/// The package name for a server that a client calls `name`; `None` if nothing in it can be part of one.
pub(super) fn package(name: &str) -> Option<String> {
    codegen::nearest_package_name(name)
}

/// The first of `name_suffix`, `name_suffix_2`, … that is not taken.
pub(super) fn with_suffix(name: &str, suffix: &str, is_taken: impl Fn(&str) -> bool) -> Option<String> {
    let suffix = package(suffix).unwrap_or_else(|| "file".to_owned());
    let first = format!("{name}_{suffix}");
    let others = (2..=99).map(|number| format!("{first}_{number}"));
    let mut names = std::iter::once(first.clone()).chain(others);
    names.find(|name| codegen::validate_package_name(name).is_ok() && !is_taken(name))
}
