//! The official conformance suite plays servers for a client: a cell that calls its tools.

use std::process::Command;

use crate::support::{kernel_python, repository, tool};

fn passes(way: &str, only: &[&str]) {
    let mut command = Command::new(tool("mcp1/bin/python"));
    command
        .arg(repository().join("tests/conformance/run.py"))
        .arg("--suite")
        .arg(tool("npm"))
        .arg("--node")
        .arg(tool("bin/node"))
        .arg("--program")
        .arg(env!("CARGO_BIN_EXE_ipybox"))
        .arg("--python")
        .arg(kernel_python())
        .args(["--jobs", "2", "--login", way])
        .args(only.iter().flat_map(|word| ["--only", *word]))
        .env("IPYBOX_KEYRING", "off");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn all_scenarios_pass() {
    passes("command", &[]);
}

#[test]
fn logins_work_by_pages_that_the_client_opens_too() {
    passes("elicitation", &["auth/metadata-default", "auth/scope"]);
}

#[test]
fn a_second_login_asks_for_more() {
    passes("retry", &["auth/scope-step-up"]);
}
