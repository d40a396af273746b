//! Sessions beside the client's own.

use serde_json::json;

use crate::support::{Ipybox, PATIENT_EXIT, Place, probe};

async fn cell(ipybox: &mut Ipybox, code: &str, session: &str) -> String {
    ipybox.call("execute_ipython_cell", json!({"code": code, "session": session})).await.ok()
}

/// The handle in an answer.
fn handle(text: &str) -> String {
    text.split('`').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn each_agent_has_a_kernel_of_its_own() {
    let place = Place::new();
    // No answer says that an exit was cut short.
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    ipybox.cell("x = 'own'").await.ok();
    let text = cell(&mut ipybox, "x = 'first'", "new").await;
    assert!(text.starts_with("[New session `") && text.contains("pass it as `session`"), "{text}");
    let first = handle(&text);
    let second = handle(&cell(&mut ipybox, "x = 'second'", "new").await);
    for (session, expected) in [(first.as_str(), "first"), (&second, "second"), ("main", "own")] {
        let text = cell(&mut ipybox, "print(x)", session).await;
        assert_eq!(text, format!("[Session `{session}`]\n\n{expected}"));
    }
    assert_eq!(ipybox.cell("print(x)").await.ok(), "own");
    // A package that is registered while they run is there for all.
    ipybox.register("probe", probe()).await.ok();
    cell(&mut ipybox, "from mcptools.probe import pid\npid.run(pid.Params())", &first).await;

    let text = ipybox.call("reset", json!({"session": first})).await.ok();
    assert_eq!(text, format!("[Session `{first}`]\nThe kernel was reset."));
    let gone = ipybox.call("execute_ipython_cell", json!({"code": "x", "session": first})).await.error();
    assert!(gone.contains("NameError"), "{gone}");
    assert_eq!(cell(&mut ipybox, "print(x)", &second).await, format!("[Session `{second}`]\n\nsecond"));

    for tool in ["execute_ipython_cell", "reset"] {
        let mut arguments = json!({"session": "nobody"});
        if tool == "execute_ipython_cell" {
            arguments["code"] = json!("1");
        }
        let text = ipybox.call(tool, arguments).await.error();
        assert!(text.starts_with("there is no session `nobody`. There are `main`, `"), "{text}");
        assert!(text.contains(&first) && text.contains(&second), "{text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn an_agent_ends_a_session_of_its_own_and_its_place_is_free() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("x = 1").await.ok();
    let before = crate::support::descendants(ipybox.id()).len();
    for _ in 0..10 {
        let first = handle(&cell(&mut ipybox, "y = 2", "new").await);
        let running = json!({"code": "import time; time.sleep(600)", "session": first});
        let running = ipybox.start_call("execute_ipython_cell", running).await;
        let text = ipybox.call("reset", json!({"session": first, "end": true})).await.ok();
        assert_eq!(text, format!("Session `{first}` has ended, and its variables are gone."));
        running.answer().await.error();
        let text = ipybox.call("reset", json!({"session": first, "end": true})).await.error();
        assert!(
            text.starts_with(&format!("the session `{first}` has ended, as a call of `reset` asked")),
            "{text}"
        );
    }
    // A template of kernels may have come.
    crate::support::eventually("their processes end", || {
        crate::support::descendants(ipybox.id()).len() <= before + 2
    })
    .await;
    for session in [json!("main"), json!(null)] {
        let text = ipybox.call("reset", json!({"session": session, "end": true})).await.error();
        assert!(text.starts_with("the argument `end` cannot be used for `main`"), "{text}");
    }
    let text = ipybox.call("reset", json!({"session": "main", "end": true, "cells": 1})).await.error();
    assert!(text.starts_with("the argument `end` cannot be used with `cells` or `to`"), "{text}");
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn cells_of_different_sessions_run_at_the_same_time() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let wait =
        "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('waited')";
    let waiting = ipybox.start_cell(wait).await;
    cell(&mut ipybox, "open('go', 'w').close()", "new").await;
    assert_eq!(waiting.answer().await.ok(), "waited");
    ipybox.stop().await;
}

#[tokio::test]
async fn there_are_not_too_many() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let new = json!({"code": "1", "session": "new"});
    let mut calls = Vec::new();
    for _ in 0..12 {
        calls.push(ipybox.start_call("execute_ipython_cell", new.clone()).await);
    }
    let mut opened = 0;
    for call in calls {
        opened += usize::from(!call.answer().await.is_error);
    }
    assert_eq!(opened, 8);
    let text = ipybox.call("execute_ipython_cell", new).await.error();
    assert!(text.starts_with("no session can be opened: there are 8 beside `main`"), "{text}");
    let kernels = crate::support::descendants(ipybox.id()).len();
    assert!(kernels >= 9, "{kernels}");
    ipybox.stop().await;
}
