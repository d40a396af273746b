//! A session as an agent holds it: starts the built `ipybox`, registers a real MCP server and runs a cell that chains
//! its tools. Needs Python 3.10 or newer and a package index; keeps its files in `target/demo`.
//!
//! ```sh
//! cargo run --example demo
//! ```

#![allow(clippy::print_stdout, reason = "a demonstration")]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, JsonObject};
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};

/// Two tools of the server in one go: what the one returns is what the other is asked.
const CODE: &str = r#"from mcptools.time import convert_time, get_current_time

here = get_current_time.run(timezone="Europe/Berlin")
print("It is", here.datetime, "in Berlin")
for city in ["America/New_York", "Asia/Tokyo", "Australia/Sydney"]:
    there = convert_time.run(source_timezone="Europe/Berlin", time="12:00", target_timezone=city)
    print("Noon there is", there.target.datetime, "in", city)"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/demo");
    let agent = Agent::start(&directory).await?;

    agent.call("install_package", json!({"package_name": "mcp-server-time"})).await?;
    let python =
        agent.call("execute_ipython_cell", json!({"code": "import sys; print(sys.executable)"})).await?;
    let server = json!({"command": python, "args": ["-m", "mcp_server_time"]});
    agent.call("register_mcp_server", json!({"server_name": "time", "server_params": server})).await?;
    let times = agent.call("execute_ipython_cell", json!({"code": CODE})).await?;

    ensure!(times.contains("Asia/Tokyo"), "the cell did not print the time in Tokyo");
    agent.session.cancel().await?;
    Ok(())
}

/// An MCP client with a running `ipybox`.
struct Agent {
    session: RunningService<RoleClient, ()>,
    _server: tokio::process::Child,
}

impl Agent {
    async fn start(directory: &Path) -> anyhow::Result<Self> {
        let program = build()?;
        println!("$ ipybox --workspace {}\n", directory.join("workspace").display());
        let mut server = tokio::process::Command::new(program)
            .arg("--workspace")
            .arg(directory.join("workspace"))
            .arg("--state-dir")
            .arg(directory.join("state"))
            .args(["--log-level", "WARNING"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = server.stdout.take().zip(server.stdin.take()).context("open the pipes of ipybox")?;
        Ok(Self { session: ().serve(pipes).await?, _server: server })
    }

    /// Calls a tool, shows the call and the answer, and returns the answer's text.
    async fn call(&self, tool: &'static str, arguments: Value) -> anyhow::Result<String> {
        println!("→ {tool}");
        for (name, value) in arguments.as_object().into_iter().flatten() {
            println!("    {name}: {}", value.as_str().map_or_else(|| value.to_string(), indented));
        }
        let arguments: JsonObject = serde_json::from_value(arguments)?;
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = self.session.call_tool(request).await?;
        let texts: Vec<&str> = result
            .content
            .iter()
            .filter_map(|block| block.as_text())
            .map(|text| text.text.as_str())
            .collect();
        let text = texts.join("\n");
        println!("←   {}\n", indented(text.trim_end()));
        if result.is_error == Some(true) {
            bail!("the tool `{tool}` failed");
        }
        Ok(text)
    }
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n    ")
}

/// Builds the program, in the profile of this example, and returns its path.
fn build() -> anyhow::Result<PathBuf> {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let mut cargo = std::process::Command::new(env!("CARGO"));
    // ring's build script watches what the outer cargo says of this package, and would see a change.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&variable);
        }
    }
    let built = cargo
        // Together with this example, which is built already: alone it would be built with other features, all anew.
        .args(["build", "--quiet", "--bin", "ipybox", "--example", "demo", "--profile", profile])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    ensure!(built.success(), "`cargo build --bin ipybox` failed");
    let example = std::env::current_exe()?;
    let directory = example.ancestors().nth(2).context("find the directory of built programs")?;
    Ok(directory.join("ipybox"))
}
