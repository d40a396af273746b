//! Generated packages at work: `behaviour.py` and `values.py` import one, answer its calls themselves, and check what users
//! see.

use std::fs;

use serde_json::Value;

use crate::support::{RUNTIME, fixtures, package, python, tool, written};

#[test]
fn packages_keep_their_promises() {
    run("behaviour");
}

#[test]
fn what_python_has_and_json_does_not_is_sent_and_received() {
    run("values");
}

/// Runs a program with the package for the tools of the same name.
fn run(name: &str) {
    let read = |extension: &str| fs::read_to_string(fixtures().join(name).with_extension(extension)).unwrap();
    let listed: Value = serde_json::from_str(&read("json")).unwrap();
    let tools: Vec<_> = listed["tools"].as_array().unwrap().iter().map(tool).collect();
    let root = written(&package(&tools));
    python(&read("py"), &[root.path().to_str().unwrap(), RUNTIME], "");
}
