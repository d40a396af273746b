//! Sessions outlive their clients, and both outlive the server.

use serde_json::json;

use super::support::TeamPlace;
use crate::support::eventually;

#[tokio::test]
async fn a_client_goes_on_when_the_server_was_killed() {
    let place = TeamPlace::new("");
    let token = place.token("ann");
    let server = place.serve();
    let mut first = place.begun(&token).await;
    let mut second = place.begun(&token).await;
    // One has a note, once, that the other one saves its variables.
    assert!(first.cell("x = 1; x").await.ends_with('1'));
    assert!(second.cell("x = 2; x").await.ends_with('2'));
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
    assert!(without.modern_cell("y = 6; y").await.ends_with('6'));
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
