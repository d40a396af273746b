//! Programs that a unit test needs and that a machine may lack. A test that is skipped says so; in CI it fails instead.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A program that `tests/tools/install` has installed, by its path there; none if the test is to be skipped.
pub(crate) fn test_tool(path: &str) -> Option<PathBuf> {
    let tools = std::env::var_os("IPYBOX_TEST_TOOLS");
    let tools =
        tools.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-tools"), PathBuf::from);
    let program = tools.join(path);
    let is_there = program.exists();
    if !is_there {
        skip(&program.display().to_string(), "run `tests/tools/install`");
    }
    is_there.then_some(program)
}

/// Says that a test is skipped, since the program `missing` is missing.
pub(crate) fn skip(missing: &str, hint: &str) {
    let line = format!("{missing} is missing\nhint: {hint}");
    assert!(std::env::var_os("CI").is_none(), "{line}");
    // Not by a macro: what those print of a test that passes is not shown.
    writeln!(std::io::stderr(), "skipped: {line}").expect("standard error can be written");
}
