//! The rules of `ARCHITECTURE.md` that can be checked: which room may know which.

use std::path::{Path, PathBuf};

use crate::support::repository;

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !is_test {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            files.push(path);
        }
    }
    files
}

/// No file of `room` mentions any of `strangers`.
#[track_caller]
fn never(room: &str, strangers: &[&str]) {
    let files = sources(&repository().join("src").join(room));
    assert!(!files.is_empty(), "{room} is empty");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = product.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (line, stranger) in code.flat_map(|line| strangers.iter().map(move |stranger| (line, stranger))) {
            let is_own = line.contains(&format!("use crate::{room}::"));
            assert!(is_own || !line.contains(stranger), "{} knows `{stranger}`: {line}", file.display());
        }
    }
}

#[test]
fn code_generation_is_pure() {
    never(
        "codegen",
        &["use crate::", "std::fs", "std::env", "std::net", "std::process", "std::time", "tokio", "rmcp"],
    );
}

#[test]
fn the_kernel_knows_no_tools() {
    never("kernel", &["rmcp", "axum", "crate::tools", "crate::executor", "crate::tool_server", "crate::mcp"]);
}

#[test]
fn the_client_of_jupyters_servers_knows_nobody() {
    never(
        "jupyter",
        &["crate::kernel", "crate::executor", "crate::tools", "crate::tool_server", "crate::mcp"],
    );
    never(
        "jupyter",
        &["crate::config", "crate::env", "crate::registry", "jupyter_", "axum", "rmcp", "clap::"],
    );
}

#[test]
fn the_tool_server_knows_no_kernel() {
    never("tool_server", &["crate::kernel", "crate::executor", "crate::tools", "crate::registry", "rmcp"]);
}

#[test]
fn the_clients_of_a_tool_server_know_its_messages_alone() {
    never("tool_client", &["axum", "rmcp", "crate::kernel", "crate::executor", "crate::tools", "crate::mcp"]);
    never("tool_client", &["crate::registry", "crate::config", "crate::env"]);
}

#[test]
fn the_executor_knows_no_protocols() {
    never("executor", &["rmcp", "axum", "clap", "crate::codegen", "crate::tools", "zeromq", "jupyter_"]);
}

#[test]
fn the_tools_know_no_transports() {
    never("tools", &["axum", "zeromq", "jupyter_", "reqwest"]);
}

#[test]
fn the_client_of_mcp_servers_knows_no_python() {
    never("mcp", &["axum", "crate::codegen", "crate::kernel", "crate::executor", "crate::tools"]);
}

#[test]
fn approval_knows_nobody() {
    // But the file in which answers are kept, and how text is shown.
    let rooms =
        ["audit", "codegen", "config", "describe", "env", "executor", "kernel", "mcp", "process", "registry"];
    let rooms = rooms.into_iter().chain(["environment", "tool_client", "tool_server", "tools"]);
    let rooms: Vec<String> = rooms.map(|room| format!("crate::{room}")).collect();
    let strangers: Vec<&str> = ["axum", "rmcp"].into_iter().chain(rooms.iter().map(String::as_str)).collect();
    never("approval", &strangers);
}

#[test]
fn the_audit_log_knows_decisions_and_no_way_to_them() {
    never(
        "audit",
        &["crate::kernel", "crate::tools", "crate::executor", "crate::tool_server", "rmcp", "axum"],
    );
}

#[test]
fn no_decision_is_made_off_the_record() {
    for room in ["tools", "executor", "registry", "environment", "kernel", "tool_server", "mcp"] {
        never(room, &[".decide("]);
    }
}

#[test]
fn only_the_binary_reads_flags() {
    for room in [
        "tools",
        "executor",
        "registry",
        "environment",
        "kernel",
        "tool_server",
        "tool_client",
        "audit",
        "mcp",
        "codegen",
    ] {
        never(room, &["clap::", "anyhow::", "tracing_subscriber"]);
    }
}

#[test]
fn a_look_at_the_machine_knows_no_session() {
    let session =
        ["crate::kernel", "crate::executor", "crate::tools", "crate::tool_server", "crate::registry"];
    never("doctor", &[&session[..], &["crate::mcp", "rmcp", "axum", "clap::", "anyhow::"]].concat());
    never(
        "sandbox/check",
        &[&session[..], &["crate::environment", "crate::config", "crate::doctor"]].concat(),
    );
}

#[test]
fn the_boundary_knows_nothing_of_what_it_is_around() {
    let around = ["crate::executor", "crate::tools", "crate::tool_server", "crate::registry", "crate::mcp"];
    let others =
        ["crate::environment", "crate::config", "crate::approval", "rmcp", "axum", "clap::", "anyhow::"];
    never("sandbox", &[&around[..], &others, &["crate::kernel", "crate::gateway", "jupyter_"]].concat());
    never("gateway", &[&around[..], &others, &["crate::env::"]].concat());
}
