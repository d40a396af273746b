//! The room as a whole, with programs on a PATH of the test's own.

use std::path::Path;

use super::bubblewrap;
use super::finding::{CheckFinding, FindingStatus};
use super::machine::MachineSettings;
use super::srt;
use super::surroundings::{CheckSurroundings, version};
use super::*;

/// A directory of programs: some are the system's, some are scripts that act as them.
struct Programs(tempfile::TempDir);

impl Programs {
    /// Links to the system's own.
    fn linked(names: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            let program = crate::ground::env::on_path(name, "/usr/bin:/bin").unwrap();
            std::os::unix::fs::symlink(program, directory.path().join(name)).unwrap();
        }
        Self(directory)
    }

    /// A script in place of a program.
    fn acting(self, name: &str, script: &str) -> Self {
        let text = format!("#!/bin/sh\n{script}\n");
        // Written by a child: a file that we have open ourselves may be inherited by what another test
        // starts at that moment, and then cannot be run ("text file busy").
        let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
        let mut shell = std::process::Command::new("/bin/sh");
        let written = shell.args(["-c", write]).arg(self.0.path().join(name)).arg(text).status();
        assert!(written.unwrap().success());
        self
    }

    fn surroundings(&self, machine: MachineSettings) -> CheckSurroundings {
        let path = self.0.path().to_str().unwrap();
        CheckSurroundings::on(machine, &Variables::from_pairs([("PATH", path)])).unwrap()
    }
}

/// Programs of which each says that all is well.
fn healthy() -> Programs {
    let programs =
        Programs::linked(&[]).acting("node", "echo v24.1.0").acting("bwrap", "echo bubblewrap 0.8.0");
    let programs = programs.acting("srt", "echo 0.0.78").acting("sandbox-exec", "");
    ["socat", "rg", "which", "apt-get"].into_iter().fold(programs, |programs, name| programs.acting(name, ""))
}

fn find(findings: &[CheckFinding], name: &str) -> CheckFinding {
    findings.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("{findings:?}")).clone()
}

#[track_caller]
fn check(findings: &[CheckFinding], name: &str, status: FindingStatus, words: &[&str]) {
    let finding = find(findings, name);
    let text = serde_json::to_string(&finding).unwrap();
    assert_eq!(finding.status, status, "{text}");
    words.iter().for_each(|word| assert!(text.contains(word), "{word}: {text}"));
}

#[tokio::test]
async fn on_a_healthy_machine_all_is_well() {
    let programs = healthy();
    let surroundings = programs.surroundings(MachineSettings::default());
    let findings = srt::examine(&surroundings).await;
    for finding in &findings {
        assert_eq!(finding.status, FindingStatus::Ok, "{findings:?}");
    }
    check(&findings, "node", FindingStatus::Ok, &["24.1.0", "/node`"]);
    let place = surroundings.directory().to_owned();
    drop(surroundings);
    assert!(!place.exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn each_missing_program_is_reported_with_the_command_that_installs_it() {
    for (name, package) in
        [("bwrap", "bubblewrap"), ("socat", "socat"), ("rg", "ripgrep"), ("which", "debianutils")]
    {
        let programs = healthy();
        std::fs::remove_file(programs.0.path().join(name)).unwrap();
        let findings = srt::examine(&programs.surroundings(MachineSettings::default())).await;
        let command = format!("sudo apt install {package}");
        check(&findings, name, FindingStatus::Failed, &["not on PATH", &command]);
        check(&findings, "start", FindingStatus::NotNeeded, &["not tried"]);
    }
}

#[tokio::test]
async fn a_missing_or_old_srt_is_reported_with_the_version_to_install() {
    let fix = "npm install -g @anthropic-ai/sandbox-runtime@0.0.78";
    let examine =
        async |programs: Programs| srt::examine(&programs.surroundings(MachineSettings::default())).await;
    let programs = healthy();
    std::fs::remove_file(programs.0.path().join("srt")).unwrap();
    check(&examine(programs).await, "srt", FindingStatus::Failed, &["not on PATH", fix]);
    let findings = examine(healthy().acting("srt", "echo 0.0.9")).await;
    check(&findings, "srt", FindingStatus::Failed, &["0.0.9 (", "one so old", fix]);
    let findings = examine(healthy().acting("srt", "echo 0.1.0")).await;
    check(&findings, "srt", FindingStatus::Warning, &["0.1.0 (", fix]);
    check(&findings, "start", FindingStatus::Ok, &[]);
    let findings = examine(healthy().acting("srt", "echo nonsense")).await;
    check(&findings, "srt", FindingStatus::Failed, &["does not report", fix]);
    let findings = examine(healthy().acting("node", "echo v18.20.1")).await;
    check(&findings, "node", FindingStatus::Failed, &["18.20.1", "20.11"]);
}

#[tokio::test]
async fn an_srt_that_starts_no_sandbox_is_reported_with_its_output() {
    let script = "[ $1 = --version ] && echo 0.0.78 && exit; echo 'no sandbox today' >&2; exit 1";
    let findings =
        srt::examine(&healthy().acting("srt", script).surroundings(MachineSettings::default())).await;
    check(&findings, "start", FindingStatus::Failed, &["no sandbox today", "--debug"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_container_without_namespaces_is_reported_to_be_the_sandbox() {
    let refusal = "[ $1 = --version ] && echo bubblewrap 0.8.0 && exit\n\
        echo 'bwrap: No permissions to create a new namespace' >&2; exit 1";
    let programs = healthy().acting("bwrap", refusal);
    let machine = || MachineSettings { container: Some("Docker"), ..MachineSettings::default() };
    let words = ["No permissions to create", "the container is the sandbox", "without `--sandbox`"];
    for findings in [
        srt::examine(&programs.surroundings(machine())).await,
        bubblewrap::examine(&programs.surroundings(machine())).await,
    ] {
        check(&findings, "user-namespaces", FindingStatus::Failed, &words);
    }
}

#[test]
fn versions_are_found_in_what_programs_say() {
    for (text, expected) in [
        ("v20.20.2\n", Some("20.20.2")),
        ("bubblewrap 0.8.0", Some("0.8.0")),
        ("uv 0.9.1 (x86_64)", Some("0.9.1")),
        ("nothing", None),
    ] {
        assert_eq!(version(text), expected, "{text}");
    }
}

#[tokio::test]
async fn an_error_at_the_start_has_the_words_of_the_findings() {
    let findings = missing(SandboxBackend::Srt, &Variables::from_pairs([("PATH", "/nonexistent")])).await;
    let of_srt = findings.iter().filter(|finding| ["node", "srt"].contains(&finding.name)).cloned().collect();
    let message = UnusableSandbox { backend: SandboxBackend::Srt, findings }.to_string();
    assert!(message.starts_with("start the sandbox (srt): node: not on PATH; srt: not on PATH"), "{message}");
    assert!(
        message.contains("\nhint: run `npm install -g @anthropic-ai/sandbox-runtime@0.0.78`"),
        "{message}"
    );
    assert_eq!(message.matches("hint: install Node.js").count(), 1, "{message}");
    assert!(!message.contains("--sandbox-backend bwrap"), "bubblewrap is missing, too: {message}");
    let message = UnusableSandbox { backend: SandboxBackend::Srt, findings: of_srt }.to_string();
    let hint = "hint: `--sandbox --sandbox-backend bwrap` needs none of these programs";
    assert_eq!(message.ends_with(hint), cfg!(target_os = "linux"), "{message}");
}

/// Needs bubblewrap, and a machine that lets it work.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_real_bubblewrap_is_tried() {
    let programs = Programs::linked(&["bwrap", "true"]);
    let machine = MachineSettings::read(Path::new("/"), rustix::process::geteuid().is_root(), false);
    let findings = bubblewrap::examine(&programs.surroundings(machine)).await;
    check(&findings, "bwrap", FindingStatus::Ok, &["/bwrap`"]);
    check(&findings, "user-namespaces", FindingStatus::Ok, &["bubblewrap makes them"]);
}
