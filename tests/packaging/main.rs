//! Every way in which ipybox comes to its users, and what they read about it.
//!
//! The scenarios are the scripts beside this file and in `tests/docs`; each test runs one, with the real client of its
//! ecosystem. `tests/tools/install` has installed what they need.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../it/support/environment.rs"]
mod environment;
#[path = "../it/support/tools.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use environment::{environment, equipped};
use tools::{kernel_python, repository, tool};

/// The program without what a debugger needs, which is most of it: packages are made of it.
///
/// A copy, because tests that build write the program anew.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packaging");
        std::fs::create_dir_all(&directory).unwrap();
        let copy = directory.join("ipybox");
        // One of an earlier run may still be running.
        let _ = std::fs::remove_file(&copy);
        std::fs::copy(env!("CARGO_BIN_EXE_ipybox"), &copy).unwrap();
        let stripped = Command::new("strip").arg(&copy).status().expect("`strip` comes with the C compiler");
        assert!(stripped.success(), "{stripped}");
        copy.into_os_string().into_string().unwrap()
    })
}

fn path(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap()
}

/// A tool's path, as an argument.
fn at(name: &str) -> String {
    path(tool(name))
}

/// The directory of all tools.
fn all_tools() -> String {
    path(tool("bin").parent().unwrap().to_owned())
}

/// Where Rust is, for scripts that call cargo.
fn rust() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let at = |name, default| (name, std::env::var_os(name).map_or_else(|| home.join(default), PathBuf::from));
    let toolchain = std::env::var_os("RUSTUP_TOOLCHAIN").map(|name| ("RUSTUP_TOOLCHAIN", name.into()));
    [at("CARGO_HOME", ".cargo"), at("RUSTUP_HOME", ".rustup")].into_iter().chain(toolchain)
}

/// Runs a script below `tests/` by the Python of an MCP client.
#[track_caller]
fn passes(script: &str, arguments: &[&str]) {
    passes_with("mcp1/bin/python", script, arguments);
}

#[track_caller]
fn passes_with(python: &str, script: &str, arguments: &[&str]) {
    program();
    let mut command = Command::new(tool(python));
    command.arg(repository().join("tests").join(script)).args(arguments).current_dir(repository());
    command.env_clear().envs(environment()).env("PATH", equipped()).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.envs(rust()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
}

/// Runs one part of npm's steps.
fn npm(part: &str) {
    let (node, python) = (at("bin"), path(kernel_python()));
    let time = at("servers/bin/mcp-server-time");
    let own = ["--binary", program(), "--node-bin", &node, "--python", &python, "--time-server", &time];
    passes("packaging/npm.py", &[&own[..], &["--part", part]].concat());
}

#[test]
fn npm_installs_it() {
    npm("installation");
}

#[test]
fn npx_runs_it() {
    npm("launcher");
}

#[test]
fn npx_keeps_what_it_downloads_for_a_server() {
    let own = ["--ipybox", program(), "--node-bin", &at("bin"), "--python", &path(kernel_python())];
    passes("packaging/npx_starts.py", &own);
}

/// What builds, and takes as long, is done by `just package-test`.
#[test]
fn the_crate_holds_what_it_needs_and_one_tls_library() {
    passes("packaging/cargo.py", &["--no-build"]);
}

#[test]
fn docker_build_builds_for_its_user() {
    passes("packaging/docker_build.py", &[]);
}

#[test]
fn a_bundle_is_made_and_starts() {
    let (mcpb, node) = (at("npm/node_modules/@anthropic-ai/mcpb/dist/cli/cli.js"), at("bin/node"));
    let python = path(kernel_python());
    let own = ["--ipybox", program(), "--mcpb", &mcpb, "--python", &python, "--node", &node];
    passes("packaging/mcpb.py", &own);
}

#[test]
fn the_entry_of_the_registry_is_valid() {
    let (skillsaw, node) = (at("lint/bin/skillsaw"), at("bin/node"));
    passes("packaging/registry.py", &["--skillsaw", &skillsaw, "--node", &node]);
}

#[test]
fn the_documented_entries_of_clients_start_it() {
    passes("packaging/clients.py", &["--ipybox", program()]);
}

#[test]
fn what_the_skill_teaches_works() {
    let states = tempfile::tempdir().unwrap();
    let (tools, python) = (all_tools(), path(kernel_python()));
    let own = ["--tools", &tools, "--", program(), "--workspace", "{workspace}", "--python", &python];
    passes("packaging/skill.py", &[&own[..], &["--state-dir", states.path().to_str().unwrap()]].concat());
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_skill_teaches_works_in_a_sandbox() {
    let states = tempfile::tempdir().unwrap();
    let (tools, python) = (all_tools(), path(kernel_python()));
    let own = ["--tools", &tools, "--", program(), "--workspace", "{workspace}", "--python", &python];
    let sandbox = ["--sandbox", "--sandbox-backend", "bwrap", "--state-dir", states.path().to_str().unwrap()];
    passes("packaging/skill.py", &[&own[..], &sandbox].concat());
}

#[cfg(target_os = "linux")]
#[test]
fn a_workspaces_policy_is_safe_from_code() {
    let python = path(kernel_python());
    let own = ["--ipybox", program(), "--python", &python, "--backend", "bwrap"];
    passes("packaging/workspace_policy.py", &own);
}

#[test]
fn sessions_last_for_the_sdks_and_the_inspector() {
    passes("packaging/lasting.py", &["--ipybox", program(), "--tools", &all_tools()]);
}

#[test]
fn versions_and_names_are_the_same_everywhere() {
    passes("packaging/versions.py", &[]);
}

#[test]
fn a_release_is_made_and_published_once() {
    passes("packaging/release.py", &["--binary", program(), "--tools", &all_tools()]);
}

#[test]
fn the_workflows_are_sound() {
    passes_with("lint/bin/python", "packaging/workflows.py", &["--tools", &all_tools()]);
}

#[test]
fn the_manifests_for_kubernetes_are_valid() {
    passes_with("lint/bin/python", "packaging/manifests.py", &["--tools", &all_tools()]);
}

#[test]
fn the_pictures_are_current() {
    passes("packaging/pictures.py", &["--binary", program(), "--tools", &all_tools()]);
}

#[test]
fn the_benchmark_of_code_mode_counts_and_verifies() {
    let python = path(kernel_python());
    passes("packaging/code_mode.py", &["--binary", program(), "--python", &python]);
}

#[test]
fn every_block_of_the_documentation_does_what_it_says() {
    passes("docs/run.py", &["--binary", program(), "--tools", &all_tools()]);
}

#[test]
fn a_wrong_block_is_found() {
    passes(
        "docs/run.py",
        &["--binary", program(), "--tools", &all_tools(), "--wrong", "tests/docs/wrong.md"],
    );
}

#[test]
fn links_flags_and_messages_in_the_documentation_are_true() {
    passes("docs/prose.py", &["--binary", program()]);
}
