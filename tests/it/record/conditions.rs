//! A replay needs files beside its recording, and leaves nothing behind.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::recording::recording;
use super::replaying::{edited, recorded, replay_with, report, results};
use crate::support::{PATIENCE, Place, environment, eventually, kernel_python};

/// The directories that replays have made and not removed.
fn left(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.temporary()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("ipybox-replay-")).collect()
}

#[tokio::test]
async fn files_that_were_in_the_workspace_are_named_and_can_be_given() {
    let place = Place::new();
    place.write("data.csv", "1,2");
    place.write(".env", "API_KEY=the-secret-value\n");
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    ipybox.cell("import os\nprint(open('data.csv').read(), os.path.exists('mcptools/x'))").await.ok();
    ipybox.stop().await;
    let missing = report(&place, &file, &[]).await;
    let notes = missing["notes"].to_string();
    assert!(notes.contains("data.csv") && notes.contains("--files DIR"), "{missing:#}");
    let files = place.workspace();
    let given = report(&place, &file, &["--files", files.to_str().unwrap()]).await;
    assert_eq!((results(&given), &given["notes"]), (vec!["same"], &json!([])), "{given:#}");
    let unread = edited(&file, "print(open('data.csv').read(), ", "print(os.path.exists('.env'), ");
    let output = replay_with(&place, &unread, &["--files", files.to_str().unwrap()], &[]).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("+ False False"), "{text}");
}

#[tokio::test]
async fn code_sees_the_day_of_the_recording() {
    let place = Place::new();
    let days = "import time\nfrom datetime import date, datetime, timezone\nfrom mcptools.probe import echo\n\
        days = date.today(), datetime.now().date(), datetime.now(timezone.utc).date(), datetime.utcnow().date()\n\
        print(echo.run(text=str(date.today())), *days, time.strftime('%Y-%m-%d'), time.time_ns() > 10**18)";
    let file = recorded(&place, &[], &[days]).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let call = lines.into_iter().find(|line| line["line"] == "call").unwrap();
    let today = call["arguments"]["text"].as_str().unwrap();
    // As if it had been made on another day, at noon.
    let (first, rest) = text.split_once('\n').unwrap();
    let mut session: serde_json::Value = serde_json::from_str(first).unwrap();
    session["time"] = json!("2021-03-05T12:00:00Z");
    let other = file.with_file_name("other.jsonl");
    std::fs::write(&other, format!("{session}\n{}", rest.replace(today, "2021-03-05"))).unwrap();
    let report = report(&place, &other, &[]).await;
    assert_eq!(results(&report), ["same"], "{report:#}");
    let output = replay_with(&place, &edited(&other, "2021-03-05T12:00:00Z", "noon"), &[], &[]).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("line 1: `noon` is no time as `2026-01-31T12:00:00Z`"), "{text}");
}

#[tokio::test]
async fn a_replay_that_is_interrupted_leaves_nothing_behind() {
    let place = Place::new();
    place.write("here", "");
    let mark = place.temporary().join("mark");
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    // Endless in the replay alone.
    let code = format!(
        "import os, time\nif not os.path.exists('here'):\n    open({:?}, 'w').close()\n    while True: time.sleep(1)",
        mark.to_str().unwrap()
    );
    ipybox.cell(&code).await.ok();
    ipybox.stop().await;
    let mut replay = tokio::process::Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args([Path::new("replay"), &file, Path::new("--python"), &kernel_python()])
        .arg("--state-dir")
        .arg(place.states())
        .current_dir(place.workspace())
        .env_clear()
        .envs(environment())
        .env("TMPDIR", place.temporary())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("the cell runs", || mark.exists()).await;
    assert_eq!(left(&place).len(), 1);
    kill(Pid::from_raw(replay.id().unwrap().try_into().unwrap()), Signal::SIGINT).unwrap();
    let status = tokio::time::timeout(PATIENCE, replay.wait()).await.unwrap().unwrap();
    assert_eq!((status.code(), left(&place)), (Some(1), Vec::new()));
}

#[tokio::test]
async fn installations_are_recorded_and_not_repeated() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    ipybox.cell("print(1)").await.ok();
    ipybox.stop().await;
    let end = "{\"line\":\"end\"";
    let line = json!({"line": "installation", "cells": 1, "packages": ["no-such-package-of-ipybox"]});
    let installed = edited(&file, end, &format!("{line}\n{end}"));
    let report = report(&place, &installed, &[]).await;
    assert_eq!(results(&report), ["same"]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("`no-such-package-of-ipybox`; a replay installs nothing"), "{report:#}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_author_of_a_copy_learns_that_its_recording_cannot_be_replayed() {
    let place = Place::new();
    let directory = place.temporary().join("many");
    std::fs::create_dir(&directory).unwrap();
    let mut ipybox = recording(&place, &directory, &[]).await;
    ipybox.cell("x = 1").await.ok();
    let answer =
        ipybox.call("execute_ipython_cell", json!({"code": "print(x)", "session": "copy"})).await.ok();
    assert!(answer.contains("but not replayed"), "{answer}");
    ipybox.stop().await;
    let mut refusals = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let output = replay_with(&place, &entry.unwrap().path(), &[], &[]).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() != error.contains("began as a copy"), "{error}");
        refusals += usize::from(!output.status.success());
    }
    assert_eq!(refusals, 1);
}
