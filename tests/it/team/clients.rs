//! Real clients: the SDKs of Python and TypeScript, and the Inspector's command line, each with a token.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::support::TeamPlace;
use crate::support::{environment, repository, tool};

/// Runs a client, which has to succeed, with `URL` and `TOKEN` in its environment; its output.
async fn run(place: &TeamPlace, token: &str, mut command: Command) -> String {
    command.env_clear().envs(environment()).stdin(Stdio::null());
    command.env("URL", format!("http://127.0.0.1:{}/mcp", place.port)).env("TOKEN", token);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_in_both_lines_and_generations() {
    let place = TeamPlace::new("[sessions]\napproval = \"ask\"\n");
    let token = place.token("ann");
    let server = place.serve();
    for (line, mode) in [("mcp1", "legacy"), ("mcp2", "legacy"), ("mcp2", "auto")] {
        let mut command = Command::new(tool(&format!("{line}/bin/python")));
        command.arg(repository().join("tests/clients/team.py")).arg(mode);
        run(&place, &token, command).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_sdk_in_both_lines_and_generations() {
    let place = TeamPlace::new("[sessions]\napproval = \"ask\"\n");
    let token = place.token("ann");
    let server = place.serve();
    for (package, mode) in [("sdk", "legacy"), ("client", "legacy"), ("client", "auto")] {
        let mut command = Command::new(tool("bin/node"));
        command.arg(repository().join("tests/clients/team.mjs"));
        command.arg(tool("npm/node_modules")).args([package, mode]);
        run(&place, &token, command).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_of_the_inspector() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    for era in ["legacy", "modern"] {
        let inspector = "npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
        let mut command = Command::new(tool("bin/node"));
        command.arg(tool(inspector)).args(["--cli", "--quiet", "--format", "json", "--protocol-era", era]);
        command.args(["--method", "tools/call", "--tool-name", "execute_ipython_cell"]);
        command.args(["--tool-args-json", "{\"code\": \"6 * 7\"}"]);
        command.args(["--header", &format!("Authorization: Bearer {token}"), "--server-url"]);
        command.arg(format!("http://127.0.0.1:{}/mcp", place.port));
        let text = run(&place, &token, command).await;
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert!(answer.to_string().contains("42"), "{era}: {answer}");
    }
    server.stop().await;
}
