//! Real MCP clients: the Python SDK, 1.x and 2.x, and the TypeScript SDK in the Inspector.
//!
//! The scenarios are the scripts in `tests/clients/`; each test runs one with one client.

use std::path::PathBuf;
use std::process::{Command, Output};

use Client::{First, SecondDiscover, SecondInitialize};
use serde_json::{Value, json};

use crate::support::{Place, environment, kernel_python, repository, test_server, tool};

/// A client, and the protocol it speaks.
#[derive(Clone, Copy)]
enum Client {
    /// The Python SDK 1.x.
    First,
    /// The Python SDK 2.x, beginning with `initialize`.
    SecondInitialize,
    /// The Python SDK 2.x on revision 2026-07-28, beginning with `server/discover`.
    SecondDiscover,
}

impl Client {
    fn command(self, script: &str) -> Command {
        let (python, protocol): (_, &[&str]) = match self {
            First => ("mcp1/bin/python", &[]),
            SecondInitialize => ("mcp2/bin/python", &["--protocol", "initialize"]),
            SecondDiscover => ("mcp2/bin/python", &["--protocol", "discover"]),
        };
        let mut command = Command::new(tool(python));
        command.arg(repository().join("tests/clients").join(script)).args(protocol);
        command.env_clear().envs(environment()).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Runs a script to its successful end.
    #[track_caller]
    fn runs(self, script: &str, options: &[&str]) {
        self.runs_with(script, options, kernel_python());
    }

    #[track_caller]
    fn runs_with(self, script: &str, options: &[&str], python: PathBuf) {
        let place = Place::new();
        let mut command = self.command(script);
        command.args(options).args(["--", env!("CARGO_BIN_EXE_ipybox"), "--workspace", "{workspace}"]);
        command.arg("--state-dir").arg(place.states()).arg("--python").arg(python);
        // `packages.py` has its `.env` set it.
        command.env("IPYBOX_DOTENV", "KERNEL_ENV_PIP_REQUIRE_VIRTUALENV");
        succeeds(&command.env("PROBE_TOKEN", "t0ken").output().unwrap());
    }
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

fn params(command: PathBuf, arguments: &[&str]) -> String {
    json!({"command": command, "args": arguments}).to_string()
}

/// The parameters of a server from npm.
fn npm(package: &str, arguments: &[&str]) -> String {
    let script = tool(&format!("npm/node_modules/@modelcontextprotocol/{package}/dist/index.js"));
    let mut all = vec![script.to_str().unwrap()];
    all.extend(arguments);
    params(tool("bin/node"), &all)
}

fn python_server(name: &str) -> String {
    params(tool("mcp1/bin/python"), &[test_server(name).to_str().unwrap()])
}

#[test]
fn cells_by_the_python_sdk_1() {
    First.runs("cells.py", &[]);
}

#[test]
fn cells_by_the_python_sdk_2() {
    SecondInitialize.runs("cells.py", &[]);
}

#[test]
fn cells_by_the_python_sdk_2_without_initialize() {
    SecondDiscover.runs("cells.py", &[]);
}

#[test]
fn resources_by_every_python_sdk() {
    for client in [First, SecondInitialize, SecondDiscover] {
        client.runs("resources.py", &[]);
    }
}

#[test]
fn bad_input_by_every_python_sdk() {
    for client in [First, SecondInitialize, SecondDiscover] {
        client.runs("bad_input.py", &[]);
    }
}

#[test]
fn variables_reach_whom_they_are_meant_for() {
    let python = tool("mcp1/bin/python");
    First.runs("environment.py", &["--server-python", python.to_str().unwrap()]);
}

#[test]
fn packages_are_installed_into_a_virtual_environment_of_the_users() {
    let place = Place::new();
    let layer = place.workspace().join("layer");
    let made = Command::new(repository().join("tests/tools/layer"))
        .arg(kernel_python())
        .arg(&layer)
        .env_clear()
        .envs(environment())
        .output()
        .unwrap();
    succeeds(&made);
    First.runs_with("packages.py", &[], layer.join("bin/python"));
}

#[test]
fn tools_of_the_time_server_are_chained() {
    let params = params(tool("servers/bin/mcp-server-time"), &[]);
    First.runs("chains.py", &["time", "--params", &params]);
    SecondDiscover.runs("chains.py", &["time", "--params", &params]);
}

#[test]
fn tools_of_the_git_server_are_chained() {
    First.runs("chains.py", &["git", "--params", &params(tool("servers/bin/mcp-server-git"), &[])]);
}

#[test]
fn tools_of_the_sqlite_server_are_chained() {
    let params = params(tool("mcp1/bin/mcp-server-sqlite"), &["--db-path", "{workspace}/stock.db"]);
    SecondInitialize.runs("chains.py", &["sqlite", "--params", &params]);
}

#[test]
fn tools_of_the_filesystem_server_are_chained() {
    First.runs("chains.py", &["filesystem", "--params", &npm("server-filesystem", &["{workspace}"])]);
}

#[test]
fn tools_of_the_everything_server_are_chained() {
    SecondDiscover.runs("chains.py", &["everything", "--params", &npm("server-everything", &[])]);
}

#[test]
fn tools_listed_in_pages_are_chained() {
    First.runs("chains.py", &["pages", "--params", &python_server("pages.py")]);
}

#[test]
fn a_server_that_dies_is_connected_again() {
    First.runs("chains.py", &["probe", "--params", &python_server("probe.py"), "--chain", "probe_death"]);
}

#[test]
fn servers_on_http_are_chained() {
    let python = tool("mcp1/bin/python");
    let probe = test_server("probe.py");
    for transport in ["streamable-http", "sse"] {
        let listening =
            format!("{} {} --transport {transport} --bearer t0ken", python.display(), probe.display());
        let params =
            json!({"url": "{url}", "headers": {"Authorization": "Bearer ${PROBE_TOKEN}"}}).to_string();
        First.runs("chains.py", &["probe", "--listening", &listening, "--params", &params]);
    }
}

#[test]
fn the_inspector_lists_and_calls() {
    let place = Place::new();
    let inspect = |era: &str, request: &[&str]| {
        let mut command = Command::new(tool("bin/node"));
        command
            .arg(tool("npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"))
            .args([
                "--cli",
                "--quiet",
                "--format",
                "json",
                "--connect-timeout",
                "60000",
                "--protocol-era",
                era,
            ])
            .args(request)
            .args(["--", env!("CARGO_BIN_EXE_ipybox"), "--workspace"])
            .arg(place.workspace())
            .arg("--state-dir")
            .arg(place.states())
            .arg("--python")
            .arg(kernel_python())
            .env_clear()
            .envs(environment())
            .env("HOME", place.temporary());
        let answer: Value = serde_json::from_str(&succeeds(&command.output().unwrap())).unwrap();
        answer
    };
    for era in ["legacy", "modern"] {
        let listed = inspect(era, &["--method", "tools/list"]);
        assert!(listed.to_string().contains("register_mcp_server"), "{listed}");
        let listed = inspect(era, &["--method", "resources/list"]);
        assert!(listed.to_string().contains("skill://codeact/SKILL.md"), "{listed}");
        let read = inspect(era, &["--method", "resources/read", "--uri", "skill://codeact/SKILL.md"]);
        assert!(read.to_string().contains("# Act by code"), "{read}");
        let call = ["--method", "tools/call", "--tool-name", "execute_ipython_cell", "--tool-args-json"];
        let called = inspect(era, &[&call[..], &[r#"{"code": "6 * 7"}"#]].concat());
        assert!(called.to_string().contains(r#""text":"42""#), "{called}");
        let shown = inspect(era, &[&call[..], &[r#"{"code": "show_file(b'content', 'a.txt')"}"#]].concat());
        assert!(shown.to_string().contains("resource_link"), "{shown}");
        // With the modern one the Inspector knows tasks: it fetches the result.
        let called = inspect(
            era,
            &[&call[..], &[r#"{"code": "import time; time.sleep(7); print('slept')"}"#]].concat(),
        );
        assert!(called.to_string().contains(r#""text":"slept""#), "{called}");
    }
}

/// A user is asked; the approval timeout is short enough for a test to see it expire.
#[track_caller]
fn asks(client: Client) {
    let place = Place::new();
    let mut command = client.command("approval.py");
    command.args(["--params", &python_server("probe.py")]);
    command.args(["--", env!("CARGO_BIN_EXE_ipybox"), "--workspace", "{workspace}"]);
    command.arg("--state-dir").arg(place.states()).arg("--python").arg(kernel_python());
    command.args(["--approval", "ask", "--approve-shell-cmds"]);
    succeeds(&command.output().unwrap());
}

#[test]
fn approval_by_the_python_sdk_1() {
    asks(First);
}

#[test]
fn approval_by_the_python_sdk_2_with_initialize() {
    asks(SecondInitialize);
}

#[test]
fn approval_by_the_python_sdk_2_with_discover() {
    asks(SecondDiscover);
}
