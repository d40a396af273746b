//! Sessions outlive their clients, and both outlive the server.

use serde_json::json;

use super::support::TeamPlace;
use crate::support::{copy_program, eventually};

#[tokio::test]
async fn a_client_goes_on_when_the_server_was_killed() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    let mut first = place.begun(&token).await;
    let mut second = place.begun(&token).await;
    assert_eq!(first.cell("x = 1; x").await, "1");
    assert_eq!(second.cell("x = 2; x").await, "2");
    server.kill();
    let _server = place.serve();
    // The answers before may not have arrived, and come again.
    for (client, x) in [(&mut second, 2), (&mut first, 1)] {
        let text = client.cell("x").await;
        assert!(
            text.ends_with(&format!("\n\n{x}")) && text.contains("[End of the earlier answer]"),
            "{text}"
        );
        assert_eq!(client.cell("x + 10").await, (x + 10).to_string());
    }
}

#[tokio::test]
async fn a_cell_goes_on_while_the_server_is_killed() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    assert_eq!(client.cell("import time, pathlib; y = 0").await, "[no output]");
    let caller = client.again();
    let running = tokio::spawn(async move {
        // The connection breaks.
        let code = "pathlib.Path('begun').touch()\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\ny = 7; y";
        let request = json!({"name": "execute_ipython_cell", "arguments": {"code": code}});
        let message = json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": request});
        let sent = caller.request(reqwest::Method::POST).header("content-type", "application/json");
        sent.body(message.to_string()).send().await.map(|response| response.text())
    });
    let workspace =
        place.path("state/users").join(place.json(&["users"])[0]["key"].as_str().unwrap()).join("workspace");
    eventually("the cell runs", || workspace.join("begun").exists()).await;
    server.kill();
    // It has no whole answer.
    drop(running.await.unwrap());
    std::fs::write(workspace.join("go"), "").unwrap();
    let server = place.serve();
    let text = client.cell("y").await;
    assert!(text.contains("7") && text.ends_with("\n\n7"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_ends_in_order_leaves_sessions_that_know_what_was_read() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    assert_eq!(client.cell("x = 5; x").await, "5");
    server.stop().await;
    let server = place.serve();
    assert_eq!(client.cell("x + 1").await, "6");
    server.stop().await;
}

#[tokio::test]
async fn the_next_session_of_a_user_has_the_variables_of_one_that_was_deleted() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    client.cell("x = 5").await;
    let mut beside = place.begun(&token).await;
    assert!(beside.cell("x").await.contains("NameError"), "another session has other variables");
    let response = client.request(reqwest::Method::DELETE).send().await.unwrap();
    assert_eq!(response.status(), 204);
    let gone = client.send("tools/list", json!({})).await;
    assert_eq!(gone.status(), 404);
    let mut next = place.begun(&token).await;
    let text = next.cell("x").await;
    assert!(text.starts_with("[This session was taken over as it was") && text.ends_with("\n\n5"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn processes_that_nobody_needs_end_and_the_kernel_goes_on() {
    let place = TeamPlace::new("[sessions]\nidle = \"1s\"\n");
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    client.cell("x = 5").await;
    let sessions = || place.json(&["sessions"]);
    eventually("no client has it", || sessions()[0]["is_attended"] == false).await;
    assert_eq!(client.cell("x").await, "5");
    let mut without = place.client(&token);
    assert_eq!(without.modern_cell("y = 6; y").await, "6");
    eventually("no client has them", || {
        let sessions = sessions();
        let sessions = sessions.as_array().unwrap();
        sessions.len() == 2 && sessions.iter().all(|session| session["is_attended"] == false)
    })
    .await;
    assert_eq!(without.modern_cell("y").await, "6");
    assert_eq!(client.cell("x").await, "5");
    server.stop().await;
}

/// Sessions end when nobody uses them for a while that is longer than the time between two requests.
const SHORT_LIVED: &str = "[sessions]\nidle = \"10s\"\nkeep = \"10s\"\n";

/// Waits until no process of a user's sessions is left.
async fn all_have_ended(place: &TeamPlace) {
    eventually("all sessions have ended", || place.json(&["sessions"]).as_array().unwrap().is_empty()).await;
}

#[tokio::test]
async fn sessions_that_ended_while_nobody_used_them_have_their_own_variables_again() {
    let place = TeamPlace::new(SHORT_LIVED);
    let token = place.token("ann");
    let server = place.serve();
    let mut clients = [place.begun(&token).await, place.begun(&token).await];
    for (number, client) in clients.iter_mut().enumerate() {
        let code = format!("x = {number}\ndef double(): return 2 * x\nhidden = (each for each in 'ab')");
        client.cell(&code).await;
    }
    let mut without = place.client(&token);
    without.modern_cell("x = 20").await;
    all_have_ended(&place).await;
    for (number, client) in clients.iter_mut().enumerate() {
        let text = client.cell("double()").await;
        assert!(
            text.contains("begun anew: it had ended, because no client took it over within 10 s"),
            "{text}"
        );
        assert!(text.contains("Restored: x, double") && text.contains("- hidden: was not saved"), "{text}");
        assert!(text.ends_with(&format!("\n\n{}", 2 * number)), "{text}");
        assert_eq!(client.cell("x").await, number.to_string());
    }
    let text = without.modern_cell("x").await;
    assert!(text.contains("Restored: x") && text.ends_with("\n\n20"), "{text}");
    // Also after the server has been another one.
    all_have_ended(&place).await;
    server.kill();
    let server = place.serve();
    let text = clients[1].cell("x").await;
    assert!(text.contains("Restored: ") && text.ends_with("\n\n1"), "{text}");
    let text = without.modern_cell("x").await;
    assert!(text.ends_with("\n\n20"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn what_was_restored_can_be_undone_to_and_reset() {
    let place = TeamPlace::new(SHORT_LIVED);
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    client.cell("x = 1").await;
    all_have_ended(&place).await;
    assert!(client.cell("x = 2; x").await.ends_with("\n\n2"));
    let undone = client.call("tools/call", json!({"name": "reset", "arguments": {"cells": 1}})).await;
    assert_eq!(undone["result"]["isError"].as_bool(), Some(false), "{undone}");
    assert_eq!(client.cell("x").await, "1");
    client.call("tools/call", json!({"name": "reset", "arguments": {}})).await;
    all_have_ended(&place).await;
    let text = client.cell("x").await;
    assert!(text.contains("NameError") && !text.contains("Restored"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn a_value_that_kills_its_kernel_is_loaded_once() {
    let place = TeamPlace::new(SHORT_LIVED);
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    client.cell("import os\nclass Bomb:\n    def __reduce__(self): return os._exit, (1,)\nx = Bomb()").await;
    all_have_ended(&place).await;
    let text = client.cell("1 + 1").await;
    assert!(text.contains("were not restored") && text.ends_with("\n\n2"), "{text}");
    assert_eq!(client.cell("2 + 2").await, "4");
    server.stop().await;
}

#[tokio::test]
async fn the_next_session_is_offered_what_one_that_was_deleted_has_saved() {
    let place = TeamPlace::new(SHORT_LIVED);
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    client.cell("x = 5").await;
    let response = client.request(reqwest::Method::DELETE).send().await.unwrap();
    assert_eq!(response.status(), 204);
    all_have_ended(&place).await;
    let mut next = place.begun(&token).await;
    let text = next.cell("'x' in globals()").await;
    assert!(
        text.contains("Variables of an earlier kernel are saved") && text.ends_with("\n\nFalse"),
        "{text}"
    );
    let text = next.cell("import ipybox_checkpoint; ipybox_checkpoint.restore(); x").await;
    assert!(text.ends_with("\n5"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn sessions_stay_with_the_program_that_they_were_begun_with() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let [program, newer] = ["ipybox", "newer-ipybox"].map(|name| place.path(name));
    copy_program(env!("CARGO_BIN_EXE_ipybox"), &program);
    let server = place.serve_with(&program);
    let mut client = place.begun(&token).await;
    let before = client.cell("import os; x = 5; os.getpid()").await;
    server.stop().await;
    // As an update does.
    copy_program(env!("CARGO_BIN_EXE_ipybox"), &newer);
    std::fs::rename(&newer, &program).unwrap();
    let server = place.serve_with(&program);
    assert_eq!(client.cell("os.getpid()").await, before);
    let keepers = || {
        let sessions = place.json(&["sessions"]);
        let processes = sessions.as_array().unwrap().iter().map(|session| session["process"].clone());
        processes.map(|id| std::fs::read_link(format!("/proc/{id}/exe")).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(keepers(), [place.path("ipybox (deleted)")]);
    // The next one begins with the new program.
    let mut next = place.begun(&token).await;
    assert!(next.cell("x").await.contains("NameError"));
    let keepers = keepers();
    assert!(keepers.len() == 2 && keepers.contains(&program), "{keepers:?}");
    assert_eq!(client.cell("x").await, "5");
    server.stop().await;
}

#[tokio::test]
async fn sessions_of_earlier_settings_are_begun_anew_with_their_variables() {
    let place = TeamPlace::new("[sessions]\nlimit_processes = 200\n");
    let token = place.token("ann");
    let server = place.serve();
    let mut client = place.begun(&token).await;
    client.cell("x = 5").await;
    let processes = || -> Vec<i64> {
        let sessions = place.json(&["sessions"]);
        sessions.as_array().unwrap().iter().filter_map(|session| session["process"].as_i64()).collect()
    };
    let before = processes();
    server.stop().await;
    place.change("limit_processes = 200", "limit_processes = 100");
    let server = place.serve();
    let text = client.cell("x").await;
    assert!(text.contains("because the settings of its server have changed"), "{text}");
    assert!(text.contains("Restored: x") && text.ends_with("\n\n5"), "{text}");
    let after = processes();
    assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
    server.stop().await;
}
