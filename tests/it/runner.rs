//! `tests/run`, with stand-ins for all that its steps run: which of them run, and what it says at the end.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{repository, write_program};

/// Prints its command line, and fails if that has the words that are to fail.
const STAND_IN: &str = r#"#!/bin/sh
line="${0##*/} $*"
echo "$line"
case $line in *"$FAILING"*) exit 1 ;; esac
"#;

const PROGRAMS: [&str; 10] = [
    "bin/cargo",
    "bin/python3",
    "tests/tools/install",
    "tools/bin/node",
    "tools/lint/bin/hadolint",
    "tools/lint/bin/ruff",
    "tools/lint/bin/shellcheck",
    "tools/lint/bin/skillsaw",
    "tools/lint/bin/typos",
    "tools/python/bin/python",
];

/// What `tests/run` prints if the steps with `failing` in their command lines fail.
fn run(failing: &str, arguments: &[&str]) -> Output {
    let place = tempfile::tempdir().unwrap();
    for name in PROGRAMS {
        let program = place.path().join(name);
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        write_program(&program, STAND_IN);
    }
    std::fs::copy(repository().join("tests/run"), place.path().join("tests/run")).unwrap();
    let mut runner = Command::new("/bin/sh");
    runner.arg("tests/run").args(arguments).current_dir(&place).env_clear();
    runner.env("PATH", format!("{}:/usr/bin:/bin", place.path().join("bin").display()));
    runner.env("IPYBOX_TEST_TOOLS", place.path().join("tools")).env("FAILING", failing).output().unwrap()
}

/// The steps that run, which may be found in `tests/run` too, and the last lines on standard error.
#[track_caller]
fn check(failing: &str, arguments: &[&str], expected: &[&str], not_expected: &[&str]) {
    let output = run(failing, arguments);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{failing}: {err}");
    for step in expected {
        assert!(out.lines().any(|line| line.contains(step)), "{failing}: {step} does not run: {out}");
    }
    for step in not_expected {
        assert!(!out.contains(step), "{failing}: {step} runs: {out}");
    }
    let (_, list) = err.split_once("\nerror: failed:\n").expect("a list of failures");
    assert!(list.lines().all(|line| line.contains(failing)), "{failing}: {list}");
}

const LAST: &str = "cargo test --locked --no-fail-fast --lib --bins --tests";

#[test]
fn a_step_that_fails_keeps_no_other_from_running_and_is_named_at_the_end() {
    for failing in ["ruff check", "clippy", "demo.py", "-m pytest", "cargo test --locked --doc"] {
        check(failing, &[], &["cargo fmt --check", "-m pytest", "--doc", LAST], &[]);
    }
    check("cargo", &[], &["cargo fmt --check", "cargo test --locked --doc", LAST], &[]);
    check(LAST, &[], &[LAST], &[]);
    check("--lib", &["--quick"], &["cargo test --locked --test it"], &[LAST]);
    check("--test it", &["--quick"], &["cargo test --locked --test it"], &[LAST]);
}

#[test]
fn a_step_that_needs_one_that_failed_does_not_run() {
    check("cargo build", &[], &["cargo test --locked --doc", LAST], &["pytest"]);
    let output = run("install", &[]);
    assert!(!output.status.success());
    assert_eq!(output.stdout, b"install \n", "nothing runs without tools");
}

#[test]
fn the_last_lines_of_a_run_that_passes_are_those_of_the_tests() {
    for (arguments, last) in [(&[][..], LAST), (&["--quick"], "cargo test --locked --test it")] {
        let output = run("no step", arguments);
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{err}");
        assert!(out.lines().last().unwrap().starts_with(last), "{out}");
        assert!(err.lines().last().unwrap().starts_with("== cargo test"), "{err}");
    }
}

#[test]
fn the_test_command_is_what_the_readme_and_ci_run() {
    let read = |path: &str| std::fs::read_to_string(repository().join(Path::new(path))).unwrap();
    assert!(read("README.md").contains("```sh\ntests/run\n```"));
    assert!(read(".ci/run").contains("exec tests/run\n"));
}
