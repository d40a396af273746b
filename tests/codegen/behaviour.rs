//! Generated packages at work: `behaviour.py` imports one, answers its calls itself, and checks what users see.

use std::fs;

use serde_json::Value;

use crate::support::{RUNTIME, fixtures, package, python, tool, written};

#[test]
fn packages_keep_their_promises() {
    let listed: Value =
        serde_json::from_str(&fs::read_to_string(fixtures().join("behaviour.json")).unwrap()).unwrap();
    let tools: Vec<_> = listed["tools"].as_array().unwrap().iter().map(tool).collect();
    let root = written(&package(&tools));
    let program = fs::read_to_string(fixtures().join("behaviour.py")).unwrap();
    python(&program, &[root.path().to_str().unwrap(), RUNTIME], "");
}
