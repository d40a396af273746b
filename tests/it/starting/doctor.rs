//! `ipybox doctor`, on this machine and on one that lacks everything.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Place, environment, equipped, kernel_python, tool};

/// Runs the doctor for a place, with this `PATH`.
fn doctor(place: &Place, path: &str, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .arg("doctor")
        .arg("--workspace")
        .arg(place.workspace().join("new"))
        .arg("--state-dir")
        .arg(place.states())
        .args(flags)
        .env_clear()
        .env("PATH", path)
        .env("HOME", place.workspace())
        .env("TMPDIR", place.temporary())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn find<'a>(report: &'a Value, group: &str, name: &str) -> &'a Value {
    let findings = report["groups"][group].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["name"] == name);
    finding.unwrap_or_else(|| panic!("{group} has no {name}: {report:#}"))
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn on_this_machine_both_sandboxes_start() {
    let place = Place::new();
    let python = kernel_python();
    for flags in [&["--sandbox"][..], &["--sandbox-backend", "srt"], &["--sandbox-backend", "bwrap"]] {
        let flags = [&["--json", "--python", python.to_str().unwrap()], flags].concat();
        let output = doctor(&place, &equipped(), &flags);
        let report = json(&output);
        assert_eq!(output.status.code(), Some(0), "{report:#}");
        assert_eq!(report["can_sandbox"], serde_json::json!({"srt": true, "bwrap": true}), "{report:#}");
        assert_eq!(find(&report, "sandbox_srt", "start")["status"], "ok");
        let python = find(&report, "kernel", "python")["found"].as_str().unwrap();
        assert!(python.contains("ipython 9.") && python.contains("pydantic 2."), "{python}");
    }
}

#[test]
fn nothing_is_created_or_left_behind() {
    let place = Place::new();
    let output = doctor(&place, &equipped(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("an environment will be made by"), "{text}");
    assert!(text.contains("workspace/new`, which will be"), "{text}");
    assert_eq!(entries(&place.workspace()), 0);
    assert!(!place.states().exists());
    assert_eq!(entries(&place.temporary()), 0, "temporary files are removed");
}

#[test]
fn the_report_on_a_machine_that_lacks_everything_says_what_to_install() {
    let place = Place::new();
    let output = doctor(&place, "/nonexistent", &["--json", "--sandbox"]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["can_run"], false);
    let python = find(&report, "kernel", "python");
    assert_eq!(python["status"], "failed");
    assert!(python["advice"].as_str().unwrap().contains("install uv"), "{python}");
    for name in ["uv", "node", "npx"] {
        assert_eq!(find(&report, "mcp_servers", name)["status"], "warning");
    }
    let srt = find(&report, "sandbox_srt", "srt");
    assert!(
        srt["command"].as_str().unwrap().starts_with("npm install -g @anthropic-ai/sandbox-runtime@"),
        "{srt}"
    );
    assert_eq!(find(&report, "sandbox_bwrap", "bwrap")["status"], "failed");
}

#[test]
fn the_exit_code_is_about_what_was_asked_for() {
    let place = Place::new();
    let python = kernel_python();
    let python = ["--python", python.to_str().unwrap()];
    // No sandbox without its programs, but a kernel.
    for (flags, code) in [(&[][..], 0), (&["--sandbox"], 1), (&["--sandbox-backend", "bwrap"], 1)] {
        let output = doctor(&place, "/nonexistent", &[&python, flags].concat());
        assert_eq!(
            output.status.code(),
            Some(code),
            "{flags:?}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    let output = doctor(&place, &equipped(), &["--python", "/no/such/python"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("FAILED  python") && text.contains("/no/such/python"), "{text}");
}

#[test]
fn a_python_without_ipython_is_reported_with_the_command_that_installs_it() {
    let place = Place::new();
    let python = tool("mcp1/bin/python");
    let output = doctor(&place, "/nonexistent", &["--json", "--python", python.to_str().unwrap()]);
    let report = json(&output);
    let found = find(&report, "kernel", "python");
    assert_eq!(found["status"], "failed");
    assert!(found["command"].as_str().unwrap().contains("'ipython>=8'"), "{found}");
}

/// In a user namespace of its own, which allows no further ones: the machine stays as it is.
#[cfg(target_os = "linux")]
#[test]
fn a_machine_that_refuses_user_namespaces_is_reported_with_the_reason() {
    let place = Place::new();
    let python = kernel_python();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_ipybox"), "doctor"])
        .args(["--json", "--sandbox", "--python", python.to_str().unwrap(), "--state-dir"])
        .arg(place.states())
        .env_clear()
        .envs(environment())
        .env("PATH", equipped())
        .current_dir(place.workspace())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    assert_eq!(report["can_run"], true);
    assert_eq!(report["can_sandbox"], serde_json::json!({"srt": false, "bwrap": false}));
    for group in ["sandbox_srt", "sandbox_bwrap"] {
        let refusal = find(&report, group, "user-namespaces");
        assert_eq!(refusal["status"], "failed", "{refusal}");
        assert!(refusal["found"].as_str().unwrap().contains("Creating new namespace failed"), "{refusal}");
        assert!(refusal["command"].is_string() || refusal["advice"].is_string(), "{refusal}");
    }
}

/// Here `--help` is the documentation of the flags, and `docs/doctor.md` that of the keys.
#[test]
fn every_key_is_documented() {
    let documentation = std::fs::read_to_string(crate::support::repository().join("docs/doctor.md")).unwrap();
    let place = Place::new();
    let report = json(&doctor(&place, &equipped(), &["--json"]));
    let groups = report["groups"].as_object().unwrap();
    let findings = groups.values().flat_map(|group| group.as_array().unwrap());
    let names = findings.clone().map(|finding| finding["name"].as_str().unwrap());
    let keys = findings.clone().flat_map(|finding| finding.as_object().unwrap().keys().map(String::as_str));
    let words = report.as_object().unwrap().keys().chain(groups.keys()).map(String::as_str);
    for word in words.chain(names).chain(keys) {
        assert!(documentation.contains(&format!("`{word}`")), "`{word}` is not in docs/doctor.md");
    }
}
