//! The programs that start most MCP servers. Other servers work without them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ground::env::Variables;
use crate::ground::env::on_path;
use crate::ground::process::ProgramQuestion;
use crate::kernels::environment::find_uv;
use crate::kernels::sandbox::check::{CheckFinding, CheckRemedy, NODE, version};

/// npx, the slowest, takes a third of a second.
const LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn examine(variables: &Variables) -> Vec<CheckFinding> {
    let path = variables.in_process("PATH").unwrap_or_default();
    let environment = variables.for_mcp_server();
    let uv = program("uv", find_uv(variables), &environment, "servers that start with `uvx` do not", UV);
    let node = program(
        "node",
        on_path("node", path),
        &environment,
        "servers written for Node.js do not start",
        NODE,
    );
    let npx = program("npx", on_path("npx", path), &environment, "servers that start with `npx` do not", NPX);
    let (uv, node, npx) = tokio::join!(uv, node, npx);
    vec![uv, node, npx]
}

const UV: &str = "install uv (https://docs.astral.sh/uv/)";
const NPX: &str = "install npm, which comes with Node.js (https://nodejs.org/)";

async fn program(
    name: &'static str,
    program: Option<PathBuf>,
    environment: &BTreeMap<String, String>,
    consequence: &str,
    advice: &str,
) -> CheckFinding {
    let warning = |found: String| {
        CheckFinding::warning(name, found, consequence, CheckRemedy::Advice(advice.to_owned()))
    };
    let Some(program) = program else { return warning("not on PATH".to_owned()) };
    let question =
        ProgramQuestion { program: &program, environment, directory: Path::new("/"), limit: LIMIT };
    let path = program.display();
    match question.ask(&["--version"]).await {
        Ok(answer) if answer.succeeded => match version(&answer.text) {
            Some(version) => CheckFinding::ok(name, format!("{version} (`{path}`)")),
            None => CheckFinding::ok(name, format!("`{path}`")),
        },
        Ok(_) => warning(format!("`{path}` does not run")),
        Err(error) => warning(format!("`{path}` does not run: {error}")),
    }
}
