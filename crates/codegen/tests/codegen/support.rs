//! A vocabulary for tests of generated packages.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ipybox_codegen::{Package, Server, Tool, generate};
use serde_json::Value;
use tempfile::TempDir;

/// A tool as `tools/list` has it.
pub(crate) fn tool(listed: &Value) -> Tool {
    let text = |key: &str| listed[key].as_str().map(str::to_owned);
    Tool {
        name: text("name").unwrap_or_default(),
        title: text("title"),
        description: text("description"),
        input_schema: listed["inputSchema"].as_object().cloned().unwrap_or_default(),
        output_schema: listed["outputSchema"].as_object().cloned(),
        observed: None,
    }
}

/// A tool that takes `schema`.
pub(crate) fn taking(name: &str, schema: Value) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: None,
        input_schema: schema.as_object().cloned().unwrap_or_default(),
        output_schema: None,
        observed: None,
    }
}

/// The package for these tools of a server called `demo`.
pub(crate) fn package(tools: &[Tool]) -> Package {
    generate(&Server { name: "demo".to_owned(), description: None }, tools)
}

/// The directory of what generated packages import.
pub(crate) const RUNTIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/tools/tool_server");

/// Writes the package as `mcptools.demo` below a directory that nothing else uses, until it is dropped.
pub(crate) fn written(package: &Package) -> TempDir {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = root.path().join("mcptools/demo");
    std::fs::create_dir_all(&directory).unwrap();
    for file in &package.files {
        std::fs::write(directory.join(&file.path), &file.text).unwrap();
    }
    root
}

/// The text of a file of a package.
pub(crate) fn text<'p>(package: &'p Package, path: &str) -> &'p str {
    package.files.iter().find(|file| file.path == path).map(|file| file.text.as_str()).unwrap()
}

/// Where the fixtures are.
pub(crate) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/codegen")
}

/// What a Python program prints when `input` is on its standard input.
///
/// It is run by the prepared Python of `tests/tools/install`.
pub(crate) fn python(program: &str, arguments: &[&str], input: &str) -> String {
    let tools = std::env::var_os("IPYBOX_TEST_TOOLS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools"),
        PathBuf::from,
    );
    let python = tools.join("kernel/bin/python");
    assert!(python.exists(), "{} is missing\nhint: run `tests/tools/install`", python.display());
    let mut child = Command::new(&python)
        .args(["-c", program])
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}
