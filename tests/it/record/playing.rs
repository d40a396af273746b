//! `ipybox play` serves what recordings have, and adds what they do not have.

use std::path::Path;

use serde_json::{Value, json};

use super::recording::recording;
use super::replaying::{edited, recorded};
use crate::support::{Ipybox, Place, test_server, tool};

/// A recorded server as a client registers it.
fn played(file: &Path, flags: &[&str]) -> Value {
    let arguments = [&["play", file.to_str().unwrap()], flags].concat();
    json!({"command": env!("CARGO_BIN_EXE_ipybox"), "args": arguments})
}

/// A session, in a workspace of its own, that has registered a played server. The client is ipybox itself.
async fn playing(elsewhere: &Place, file: &Path, flags: &[&str]) -> Ipybox {
    let mut ipybox = elsewhere.ipybox().await;
    ipybox.register("played", played(file, flags)).await.ok();
    ipybox
}

/// The flags that have missing calls made at the servers that `place` has registered.
fn updating(place: &Place) -> [String; 5] {
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let flag = |flag: &str| flag.to_owned();
    [
        flag("--update"),
        flag("--workspace"),
        path(&place.workspace()),
        flag("--state-dir"),
        path(&place.states()),
    ]
}

fn texts(flags: &[String; 5]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn recorded_servers_are_played_to_any_client() {
    let place = Place::new();
    let cells = [
        "from mcptools.probe import add, echo, fail\necho.run(text='a')\nadd.run(a=1)",
        "fail.run(reason='no')",
    ];
    let file = recorded(&place, &[], &cells).await;
    let elsewhere = Place::new();
    let mut ipybox = playing(&elsewhere, &file, &[]).await;
    let code = "from mcptools.played import add, echo, fail\nprint(echo.run(text='a'), add.run(a=1).total, add.run(a=1).terms)";
    assert_eq!(ipybox.cell(code).await.ok().trim(), "a 6 [1, 5]");
    assert!(ipybox.cell("fail.run(reason='no')").await.error().contains("failed: no"));
    let unknown = ipybox.cell("echo.run(text='b')").await.error();
    assert!(
        unknown.contains("the recording does not have this call") && unknown.contains("text = \"a\""),
        "{unknown}"
    );
    ipybox.stop().await;
}

#[tokio::test]
async fn missing_calls_are_made_at_the_living_server_and_added() {
    let place = Place::new();
    let file = recorded(&place, &[], &["from mcptools.probe import echo\nprint(echo.run(text='a'))"]).await;
    // If the living server were asked for the recorded call too, the answer would be `a`.
    let file = edited(&file, "{\"result\":\"a\"}", "{\"result\":\"recorded\"}");
    let before = std::fs::read_to_string(&file).unwrap();
    let flags = [updating(&place).as_slice(), &["--server".to_owned(), "probe".to_owned()]].concat();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let code = "from mcptools.played import add, echo, fail\nprint(echo.run(text='a'), echo.run(text='b'), add.run(a=1).total)\n\
                try: fail.run(reason='no')\nexcept Exception as error: print('failed: no' in str(error))";
    let elsewhere = Place::new();
    let mut ipybox = playing(&elsewhere, &file, &flags).await;
    assert_eq!(ipybox.cell(code).await.ok().trim(), "recorded b 6\nTrue");
    ipybox.stop().await;
    let after = std::fs::read_to_string(&file).unwrap();
    let calls = |text: &str| text.matches("{\"line\":\"call\"").count();
    assert_eq!((calls(&before), calls(&after)), (1, 4), "{after}");
    assert!(after.trim_end().lines().last().unwrap().starts_with("{\"line\":\"end\""), "{after}");
    assert!(before.lines().all(|line| after.contains(line)), "nothing that was there has changed");

    // Now there is no living server.
    let third = Place::new();
    let mut ipybox = playing(&third, &file, &[]).await;
    assert_eq!(ipybox.cell(code).await.ok().trim(), "recorded b 6\nTrue");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_server_that_the_recording_does_not_have_is_added_if_the_user_has_registered_it() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    ipybox.cell("print(1)").await.ok();
    ipybox.stop().await;
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", crate::support::probe()).await.ok();
    ipybox.stop().await;
    let flags = updating(&place);
    let flags = [&["--server", "probe"][..], &texts(&flags)].concat();
    let elsewhere = Place::new();
    let mut ipybox = playing(&elsewhere, &file, &flags).await;
    let code = "from mcptools.played import echo\nprint(echo.run(text='b'))";
    assert_eq!(ipybox.cell(code).await.ok().trim(), "b");
    ipybox.stop().await;
    let third = Place::new();
    let mut ipybox = playing(&third, &file, &[]).await;
    assert_eq!(ipybox.cell(code).await.ok().trim(), "b");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_update_asks_no_server_that_a_recording_names_and_adds_no_failure_to_reach_one() {
    let place = Place::new();
    let file = recorded(&place, &[], &["from mcptools.probe import echo\nprint(echo.run(text='a'))"]).await;
    let mark = place.temporary().join("mark");
    let python = tool("mcp1/bin/python");
    let hostile = edited(&file, &format!("\"command\":\"{}\"", python.display()), "\"command\":\"touch\"");
    let script = test_server("probe.py");
    let hostile = edited(&hostile, &format!("\"{}\"", script.display()), &format!("\"{}\"", mark.display()));
    let before = std::fs::read(&hostile).unwrap();
    let nowhere = Place::new();
    let flags = updating(&nowhere);
    let elsewhere = Place::new();
    let mut ipybox = playing(&elsewhere, &hostile, &texts(&flags)).await;
    let error = ipybox.cell("from mcptools.played import echo\necho.run(text='b')").await.error();
    assert!(error.contains("no MCP server is registered as `probe`"), "{error}");
    ipybox.stop().await;
    assert!(!mark.exists() && std::fs::read(&hostile).unwrap() == before);

    let mut ipybox = elsewhere.ipybox().await;
    let flags = [&texts(&flags)[..], &["--match", "order"]].concat();
    let error = ipybox.register("ordered", played(&file, &flags)).await.error();
    assert!(error.contains("played in its order"), "{error}");
    ipybox.stop().await;
}

#[tokio::test]
async fn resources_and_prompts_are_played_too() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    let server = json!({"command": tool("mcp1/bin/python"), "args": [test_server("library.py")]});
    ipybox.register("library", server).await.ok();
    let code = |server: &str| {
        format!(
            "from mcptools.{server} import resources, prompts_1\n\
             print([link.uri for link in resources.list()], resources.read('note://7')[:])\n\
             print(resources.file_contents('a b/c')[:], [prompt.name for prompt in prompts_1.list()])\n\
             print([(message.role, message.content) for message in prompts_1.greet_user('a', style='b')])\n\
             try: resources.read('none://x')\nexcept Exception as error: print('no resource' in str(error))"
        )
    };
    let expected = ipybox.cell(&code("library")).await.ok();
    assert!(expected.contains("contents of note://7") && expected.contains("True"), "{expected}");
    ipybox.stop().await;
    let elsewhere = Place::new();
    let mut ipybox = playing(&elsewhere, &file, &[]).await;
    assert_eq!(ipybox.cell(&code("played")).await.ok(), expected);
    let error = ipybox.cell("resources.read('note://8')").await.error();
    assert!(error.contains("the recording does not have this call"), "{error}");
    ipybox.stop().await;

    let flags = updating(&place);
    let mut ipybox = playing(&elsewhere, &file, &texts(&flags)).await;
    let code = "from mcptools.played import resources\nprint(resources.read('note://8')[:])";
    let living = ipybox.cell(code).await.ok();
    assert!(living.contains("contents of note://8"), "{living}");
    ipybox.stop().await;
    let mut ipybox = playing(&elsewhere, &file, &[]).await;
    assert_eq!(ipybox.cell(code).await.ok(), living);
    ipybox.stop().await;
}
