//! Generated packages at work: `behaviour.py` imports one with a stand-in for the runtime, and checks what users see.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{fixtures, package, python, tool};

#[test]
fn packages_keep_their_promises() {
    let listed: Value =
        serde_json::from_str(&fs::read_to_string(fixtures().join("behaviour.json")).unwrap()).unwrap();
    let tools: Vec<_> = listed["tools"].as_array().unwrap().iter().map(tool).collect();
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("behaviour");
    let directory = root.join("mcptools/demo");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&directory).unwrap();
    for file in package(&tools).files {
        fs::write(directory.join(file.path), file.text).unwrap();
    }
    let program = fs::read_to_string(fixtures().join("behaviour.py")).unwrap();
    python(&program, &[root.to_str().unwrap()], "");
}
