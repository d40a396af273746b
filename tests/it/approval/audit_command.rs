//! `ipybox audit`, with the logs of real sessions.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Ipybox, Place, eventually, kernel_python, probe};

pub(super) fn log(place: &Place) -> PathBuf {
    place.temporary().join("audit.jsonl")
}

pub(super) async fn start(place: &Place, flags: &[&str]) -> Ipybox {
    let (python, log) = (kernel_python(), log(place));
    let mut all = vec!["--python", python.to_str().unwrap(), "--audit-log", log.to_str().unwrap()];
    all.extend(flags);
    let mut ipybox = place.start(&all).await;
    ipybox.initialize_with(serde_json::json!({"elicitation": {}})).await;
    ipybox
}

/// Runs `ipybox audit` with this input. Returns its exit code, and what it prints.
pub(super) fn audit_of(input: &str, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
    command.arg("audit").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), text)
}

#[track_caller]
fn check(path: &Path, arguments: &[&str], code: i32, words: &[&str]) -> String {
    let (ended, text) = audit_of("", &[&[path.to_str().unwrap()], arguments].concat());
    assert_eq!(ended, code, "{text}");
    for words in words {
        assert!(text.contains(words), "{words} in {text}");
    }
    text
}

fn head(text: &str) -> String {
    text.lines().find_map(|line| line.strip_prefix("head: ")).unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_shown_and_its_chain_verified() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--approval", "ask"]).await;
    let params = serde_json::json!({"server_name": "probe", "server_params": probe()});
    let registration = ipybox.start_call("register_mcp_server", params).await;
    ipybox.decide("allow once").await;
    registration.answer().await.ok();
    for decision in ["allow for this session", "deny"] {
        let code = match decision {
            "deny" => "from mcptools.probe import add\nadd.run(a=1, b=2)",
            _ => {
                "from mcptools.probe import fail\nfor reason in ('\\x1b[31mred', 'again'):\n    try: fail.run(reason=reason)\n    \
                 except Exception: pass"
            }
        };
        let cell = ipybox.start_cell(code).await;
        ipybox.decide(decision).await;
        cell.answer().await;
    }
    let running = check(&log(&place), &[], 3, &["the chain is whole", "of 1 session", "has no last record"]);
    ipybox.stop().await;
    let ended = check(
        &log(&place),
        &["--head", &head(&running)],
        0,
        &[
            "the chain is whole: ",
            "mcp, in ",
            "cells: 2 (1 error, 1 finished)",
            "fail: 2 permitted, 0 denied, 2 failed (1 session (remembered), 1 session by mcp_elicitation)",
            "cell 1  reason='\\x1b[31mred'  [session by mcp_elicitation; error]",
            "add: 0 permitted, 1 denied, 0 failed (1 no by mcp_elicitation)",
            "register_mcp_server: 1 permitted",
        ],
    );
    assert!(!ended.contains('\u{1b}'), "{ended:?}");
    let json: Value =
        serde_json::from_str(&check(&log(&place), &["--json", "--since", "1h"], 0, &[])).unwrap();
    assert_eq!((&json["whole"], &json["sessions"][0]["has_ended"]), (&true.into(), &true.into()));
    assert_eq!(json["head"], head(&ended));

    let text = std::fs::read_to_string(log(&place)).unwrap();
    let without = text.lines().filter(|line| !line.contains("\"add\"")).collect::<Vec<_>>().join("\n") + "\n";
    let (code, output) = audit_of(&without, &["-"]);
    assert!(code == 1 && output.contains("THE CHAIN IS BROKEN") && output.contains("stdin line"), "{output}");
    let (code, output) = audit_of(&text.replace("\"denied\"", "\"accepted\""), &["-"]);
    assert!(code == 1 && output.contains("edited: its hash is not that of its content"), "{output}");
    let cut = text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n";
    let (code, output) = audit_of(&cut, &["-", "--head", &head(&ended)]);
    assert!(code == 1 && output.contains("removed"), "{output}");
    check(&log(&place).with_extension("jsonl.decisions"), &[], 0, &["the chain is whole"]);
}

#[tokio::test]
async fn sessions_side_by_side_write_one_chain_and_a_killed_one_breaks_none() {
    let place = Place::new();
    let mut first = start(&place, &["--audit-max-bytes", "4000"]).await;
    let mut second = start(&place, &["--audit-max-bytes", "4000"]).await;
    for _ in 0..5 {
        tokio::join!(async { first.cell("1").await.ok() }, async { second.cell("2").await.ok() });
    }
    let endless = first.start_cell("while True: pass").await;
    let written = || std::fs::read_to_string(log(&place)).unwrap_or_default();
    eventually("the cell has begun", || written().contains("\"cell\":6")).await;
    first.signal(Signal::SIGKILL);
    first.ended().await;
    drop(endless);
    second.cell("3").await.ok();
    second.stop().await;
    let mut third = start(&place, &[]).await;
    third.cell("4").await.ok();
    third.stop().await;
    let path = |number: usize| PathBuf::from(format!("{}.{number}", log(&place).display()));
    let mut files: Vec<PathBuf> = (1..6).rev().map(path).filter(|path| path.exists()).collect();
    assert!(!files.is_empty(), "too small a log");
    files.push(log(&place));
    let names: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    let (code, text) = audit_of("", &names);
    assert!(code == 3 && text.contains("of 3 sessions"), "{text}");
    assert_eq!(text.matches("has no last record").count(), 1, "{text}");
    assert!(!text.contains("begins after") || names.len() == 6, "{text}");
    // A file in between is missing, or in the wrong place.
    let reversed: Vec<&str> = names.iter().rev().copied().collect();
    assert_eq!(audit_of("", &reversed).0, 1);
}

#[test]
fn what_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    check(&missing, &[], 1, &["failed to read the audit log", "missing"]);
    check(directory.path(), &[], 1, &["failed to read the audit log", "directory"]);
    let (code, text) = audit_of("", &["-"]);
    assert!(code == 3 && text.contains("there is no record"), "{text}");
    let (code, text) = audit_of("\u{1b}[2J\nno log\n", &["-"]);
    assert!(code == 3 && !text.contains('\u{1b}'), "{code} {text:?}");
    assert_eq!(audit_of("", &["-", "--since", "yesterday"]).0, 2);
    assert!(audit_of("", &["-", "--head", "abc"]).1.contains("64 hexadecimal digits"));
    let moved = audit_of("", &["-", "--policy", "/nowhere/policy"]);
    assert!(
        moved.0 == 1 && moved.1.contains("--mode policy --approval-policy /nowhere/policy"),
        "{}",
        moved.1
    );
}
