//! Real clients: the SDKs of Python and TypeScript, the Inspector's command line and Claude Code's, each with a token.

use std::net::Ipv4Addr;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::support::TeamPlace;
use crate::support::jupyter::Authority;
use crate::support::{environment, repository, tool};

/// Runs a client, which has to succeed, with `URL` and `TOKEN` in its environment; its output.
async fn run(place: &TeamPlace, token: &str, command: Command) -> String {
    let output = output_of(&format!("http://127.0.0.1:{}/mcp", place.port), token, &[], command).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

async fn output_of(url: &str, token: &str, variables: &[(&str, &str)], mut command: Command) -> Output {
    command.env_clear().envs(environment()).stdin(Stdio::null());
    command.env("URL", url).env("TOKEN", token).envs(variables.iter().copied());
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn python_client() -> Command {
    let mut command = Command::new(tool("mcp1/bin/python"));
    command.arg(repository().join("tests/clients/team.py")).arg("legacy");
    command
}

fn typescript_client() -> Command {
    let mut command = Command::new(tool("bin/node"));
    command.arg(repository().join("tests/clients/team.mjs"));
    command.arg(tool("npm/node_modules")).args(["client", "auto"]);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_speak_tls_to_a_server_that_they_trust() {
    let authority = Authority::of(Ipv4Addr::LOCALHOST.into());
    let place = TeamPlace::new("[sessions]\napproval = \"ask\"\n");
    let [certificate, key] = ["server.pem", "server.key"].map(|name| authority.file(name));
    place.change("[login]", &format!("tls = {{ certificate = {certificate:?}, key = {key:?} }}\n[login]"));
    place.change("resource = \"http://", "resource = \"https://");
    let token = place.token("ann");
    let server = place.serve();
    let url = format!("https://127.0.0.1:{}/mcp", place.port);
    let roots = authority.roots();
    let roots = roots.to_str().unwrap();
    for (variable, client) in
        [("SSL_CERT_FILE", python_client as fn() -> Command), ("NODE_EXTRA_CA_CERTS", typescript_client)]
    {
        let output = output_of(&url, &token, &[(variable, roots)], client()).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let stranger = output_of(&url, &token, &[], client()).await;
        let said = String::from_utf8_lossy(&stranger.stderr).to_lowercase();
        assert!(!stranger.status.success() && said.contains("certificate"), "{said}");
    }
    // Without TLS, the token of a client goes nowhere.
    let plain = output_of(&url.replacen("https", "http", 1), &token, &[], python_client()).await;
    assert!(!plain.status.success());
    server.stop().await;
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
        command.args(["--connect-timeout", "280000"]);
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

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_connects() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    let home = tempfile::tempdir().unwrap();
    let libraries = std::fs::read_dir(tool("agents2/lib")).unwrap().map(|entry| entry.unwrap().path());
    let programs = libraries.map(|library| library.join("site-packages/claude_agent_sdk/_bundled/claude"));
    let program = programs.into_iter().find(|program| program.exists()).unwrap();
    let claude = || {
        let mut command = Command::new(&program);
        command.current_dir(home.path()).arg("mcp");
        command
    };
    let variables = [
        ("HOME", home.path().to_str().unwrap()),
        ("DISABLE_AUTOUPDATER", "1"),
        ("MCP_TIMEOUT", "280000"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ];
    let url = format!("http://127.0.0.1:{}/mcp", place.port);
    let mut add = claude();
    add.args([
        "add",
        "--transport",
        "http",
        "ours",
        &url,
        "--header",
        &format!("Authorization: Bearer {token}"),
    ]);
    let mut list = claude();
    list.arg("list");
    for (command, words) in [(add, "ours"), (list, "Connected")] {
        let output = output_of(&url, &token, &variables, command).await;
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains(words), "{text}");
    }
    server.stop().await;
}
