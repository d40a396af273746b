//! Where the real components are that `tests/tools/install` has installed.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file below the directory of test tools; a missing one fails the test.
pub(crate) fn tool(path: &str) -> PathBuf {
    let tools = std::env::var_os("IPYBOX_TEST_TOOLS")
        .map_or_else(|| repository().join("target/test-tools"), PathBuf::from);
    let path = tools.join(path);
    assert!(
        path.exists(),
        "{} is missing\nhint: run `tests/tools/install` (or `tests/run`, which does)",
        path.display()
    );
    path
}

/// The prepared Python that most tests run their kernels with.
pub(crate) fn kernel_python() -> PathBuf {
    tool("kernel/bin/python")
}
