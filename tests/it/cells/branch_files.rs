//! Copies of sessions that work in copies of the workspace.

use ipybox::CodeExecutor;
use serde_json::{Value, json};

use crate::support::changes::{changes, copies, shown, told};
use crate::support::{Ipybox, Place, kernel_python, probe};

async fn started(place: &Place) -> Ipybox {
    let python = kernel_python();
    let mut ipybox = place.start(&["--python", python.to_str().unwrap(), "--branch-files"]).await;
    ipybox.initialize().await;
    ipybox
}

/// Runs a cell in a session, and returns the answer with the words about the session.
async fn cell(ipybox: &mut Ipybox, code: &str, session: &str) -> String {
    ipybox.call("execute_ipython_cell", json!({"code": code, "session": session})).await.ok()
}

/// The handle of the session in an answer, and the id of its copy of the workspace.
fn names(text: &str) -> (String, String) {
    let (_, id) = text.split_once("`ipybox changes ").unwrap_or_else(|| panic!("{text}"));
    let id = id.split(|char: char| !char.is_ascii_alphanumeric()).next().unwrap();
    (text.split('`').nth(1).unwrap().to_owned(), id.to_owned())
}

#[tokio::test]
async fn a_copy_writes_files_of_its_own_until_a_user_applies_them() {
    let place = Place::new();
    place.write("a.txt", "one");
    place.write("inner/helper.py", "value = 'origin'");
    place.write("gentools/__init__.py", "");
    let mut ipybox = started(&place).await;
    ipybox.register("probe", probe()).await.ok();
    let prepare = "import os, sys, gentools\nos.chdir('inner'); sys.path.insert(0, os.getcwd())\nworkspace = os.path.dirname(os.getcwd())";
    ipybox.cell(prepare).await.ok();
    let work = "assert not os.path.samefile('..', workspace) and os.path.basename(os.getcwd()) == 'inner'
open('helper.py', 'w').write(\"value = 'copy'\")
open('../gentools/tool.py', 'w').write('made = 1')
open('../a.txt', 'w').write('two'); open('../new.txt', 'w').write('new')
import helper, gentools.tool
from mcptools.probe import echo
print(helper.value, gentools.tool.made, echo.run(echo.Params(text='hi')), open(workspace + '/a.txt').read())";
    let text = cell(&mut ipybox, work, "copy").await;
    assert!(text.ends_with("copy 1 hi one"), "{text}");
    assert!(text.contains("[In the copy: its files are a copy of the workspace, `"), "{text}");
    let (first, id) = names(&text);
    let note = told(&mut ipybox, Some(&first), text).await;
    assert!(note.contains("4 changes wait there until the user applies them"), "{note}");
    assert_eq!((place.read("a.txt").as_str(), place.workspace().join("new.txt").exists()), ("one", false));
    let again =
        ipybox.cell("import helper; print(helper.value, os.path.samefile('..', workspace))").await.ok();
    assert_eq!(again, "origin True");
    // A fresh kernel of the copy works there too, and its own copy begins with its files.
    ipybox.call("reset", json!({"session": first})).await.ok();
    let text =
        cell(&mut ipybox, "import gentools.tool; print(open('a.txt').read(), gentools.tool.made)", &first)
            .await;
    assert!(text.ends_with("two 1"), "{text}");
    let text = cell(
        &mut ipybox,
        "import os; print(open('a.txt').read()); os.remove('new.txt')",
        &format!("copy of {first}"),
    )
    .await;
    let (second, other) = names(&text);
    assert!(text.ends_with("two"), "{text}");
    let files =
        |text: &str| text.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let all = files(&shown(&place, &[&id]));
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(all[0].starts_with("changed  a.txt") && all[3].starts_with("added    new.txt"), "{all:?}");
    assert_eq!(files(&shown(&place, &[&other])), all[..3]);
    // Nothing waits in a third one, which goes with its session.
    let (third, _) = names(&cell(&mut ipybox, "1", "copy").await);
    assert_eq!(copies(&place).len(), 3);
    for handle in [third, second, first] {
        ipybox.call("reset", json!({"session": handle, "end": true})).await.ok();
    }
    assert_eq!(copies(&place).len(), 2);
    assert!(changes(&place, &[&id, "apply", "a.txt"]).status.success());
    assert!(changes(&place, &[&id, "discard"]).status.success());
    assert_eq!((place.read("a.txt").as_str(), place.workspace().join("new.txt").exists()), ("two", false));
    assert!(changes(&place, &[&other, "discard"]).status.success());
    assert_eq!(copies(&place).len(), 0);
    ipybox.stop().await;
}

#[tokio::test]
async fn the_log_of_the_session_has_what_a_command_applies() {
    let place = Place::new();
    let log = place.temporary().join("log/audit.jsonl");
    std::fs::create_dir(log.parent().unwrap()).unwrap();
    let python = kernel_python();
    let flags =
        ["--python", python.to_str().unwrap(), "--branch-files", "--audit-log", log.to_str().unwrap()];
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize().await;
    let (_, id) = names(&cell(&mut ipybox, "open('a.txt', 'w').write('a')", "copy").await);
    shown(&place, &[&id]);
    let directory = log.parent().unwrap();
    let moved = directory.with_extension("moved");
    std::fs::rename(directory, &moved).unwrap();
    let refused = changes(&place, &[&id, "apply"]);
    assert!(!refused.status.success() && !place.workspace().join("a.txt").exists(), "{refused:?}");
    std::fs::rename(&moved, directory).unwrap();
    assert!(changes(&place, &[&id, "apply"]).status.success());
    assert_eq!(place.read("a.txt"), "a");
    ipybox.stop().await;
    let lines = std::fs::read_to_string(log).unwrap();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let applied = events.iter().find(|event| event["event"] == "changes").expect(&lines);
    assert_eq!((&applied["copy"], &applied["via"]), (&json!(id), &json!("command")));
    let of_command = |event: &&Value| event["session"] == applied["session"];
    let names: Vec<&Value> = events.iter().filter(of_command).map(|event| &event["event"]).collect();
    assert_eq!(names, ["session_started", "changes", "session_ended"]);
}

#[tokio::test]
async fn a_copy_that_is_refused_leaves_no_files() {
    let place = Place::new();
    place.write("a.txt", "one");
    let mut ipybox = started(&place).await;
    ipybox.cell("log = open('log', 'w')").await.ok();
    let refused = json!({"code": "1", "session": "copy"});
    let text = ipybox.call("execute_ipython_cell", refused).await.error();
    assert!(text.contains("`log`"), "{text}");
    assert_eq!(copies(&place).len(), 0);
    // What an undo finds changed is in the copy.
    ipybox.cell("log.close()").await.ok();
    let (handle, _) = names(&cell(&mut ipybox, "1", "copy").await);
    cell(&mut ipybox, "open('made', 'w').close()", &handle).await;
    let text = ipybox.call("reset", json!({"session": handle, "cells": 1})).await.ok();
    assert!(text.contains("new: `made`"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_executor_copies_its_files_and_a_sandbox_is_refused() {
    let place = Place::new();
    place.write("a.txt", "one");
    let builder = CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .cold_start(true)
        .branch_files(true);
    let refused = builder.clone().sandbox(true).start().await.unwrap_err();
    let refused = format!("{:#}", anyhow::Error::from(refused));
    assert!(
        refused.contains("(`--branch-files`) in a sandbox, which shows nothing that comes later"),
        "{refused}"
    );
    let origin = builder.start().await.unwrap();
    let copied = origin.copy().await.unwrap();
    copied.execute("open('a.txt', 'w').write('two')").await.unwrap();
    assert_eq!(place.read("a.txt"), "one");
    copied.stop().await;
    origin.stop().await;
    assert_eq!(copies(&place).len(), 1);
}
