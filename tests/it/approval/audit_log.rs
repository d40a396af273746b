//! What the audit log records of a session, and what it must not.

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, eventually, kernel_python, probe};

const SECRET: &str = "s3cret/välue";

/// ipybox with a secret in `.env` and a log, with these flags too.
async fn start(place: &Place, flags: &[&str]) -> Ipybox {
    place.write(".env", &format!("API_KEY={SECRET}\n"));
    start_with(place, flags, &[]).await
}

async fn start_with(place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
    let log = place.temporary().join("audit.jsonl");
    let python = kernel_python();
    let mut all = vec!["--python", python.to_str().unwrap(), "--audit-log", log.to_str().unwrap()];
    all.extend(flags);
    let mut ipybox = place.start_with(&all, variables).await;
    ipybox.initialize().await;
    ipybox
}

/// The lines of the log between the session's first and last. The secret is in none of them, however it is written.
fn events(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.temporary().join("audit.jsonl")).unwrap_or_default();
    assert!(!text.contains("s3cret"), "{text}");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|event| !event["event"].as_str().unwrap().starts_with("session_")).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

const CALL: &str = "import os, urllib.parse\nfrom mcptools.probe import echo\n\
    key = open('.env').read().strip().split('=')[1]\n\
    print(echo.run(echo.Params(text='key ' + key + ' ' + urllib.parse.quote(key))))";

#[tokio::test]
async fn a_cell_and_its_call_are_recorded_in_order_and_without_secrets() {
    let place = Place::new();
    let mut ipybox = start(&place, &[]).await;
    ipybox.register("probe", probe()).await.ok();
    assert!(ipybox.cell(CALL).await.ok().contains(SECRET), "the tool has got it");
    ipybox.cell("1 / 0").await.error();
    ipybox.stop().await;
    let events = events(&place);
    assert_eq!(
        names(&events),
        [
            "decision",
            "call_ended",
            "cell_started",
            "decision",
            "call_ended",
            "cell_ended",
            "cell_started",
            "cell_ended"
        ]
    );
    let [registration, registered, started, decision, call, ended, _, failed] = &events[..] else {
        unreachable!()
    };
    assert_eq!(
        (&registration["server"], &registration["tool"]),
        (&json!("ipybox"), &json!("register_mcp_server"))
    );
    assert_eq!(registration["arguments"]["server_name"], "probe");
    assert_eq!((&registered["outcome"], &registered["call"]), (&json!("result"), &registration["call"]));
    assert_eq!(started["chars"], CALL.chars().count());
    assert_eq!((&decision["server"], &decision["tool"]), (&json!("probe"), &json!("echo")));
    assert_eq!(decision["arguments"], json!({"text": "key ${API_KEY} ${API_KEY}"}));
    assert_eq!((&decision["decision"], &decision["cell"]), (&json!("accepted"), &started["cell"]));
    assert_eq!((&call["outcome"], &call["call"]), (&json!("result"), &decision["call"]));
    assert!(call["result_bytes"].as_u64() > Some(20) && call["duration_ms"].is_u64(), "{call}");
    assert_eq!((&ended["end"], &failed["end"]), (&json!("finished"), &json!("error")));
    for event in &events {
        assert!(["code", "output", "result"].iter().all(|name| event[*name].is_null()), "{event}");
    }
}

#[tokio::test]
async fn contents_are_recorded_only_if_wanted_and_without_secrets() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--audit-contents"]).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(&format!("{CALL}\n# {SECRET}")).await.ok();
    ipybox.stop().await;
    let events = events(&place);
    let [_, registered, started, _, call, ended] = &events[..] else { panic!("{events:?}") };
    assert!(registered["result"].as_array().unwrap().contains(&json!("echo")), "{registered}");
    assert_eq!(started["code"], format!("{CALL}\n# ${{API_KEY}}"));
    assert_eq!(call["result"], "key ${API_KEY} ${API_KEY}");
    assert_eq!(ended["output"], "key ${API_KEY} ${API_KEY}");
}

#[tokio::test]
async fn secrets_of_servers_registered_earlier_are_known_before_their_first_call() {
    let place = Place::new();
    let variables = [("TOKEN", "s3cret-of-a-server")];
    let mut parameters = probe();
    parameters["env"] = json!({"TOKEN": "${TOKEN}"});
    let mut ipybox = start_with(&place, &[], &variables).await;
    ipybox.register("probe", parameters).await.ok();
    ipybox.stop().await;
    let mut ipybox = start_with(&place, &["--audit-contents"], &variables).await;
    let code = "from mcptools.probe import echo\necho.run(echo.Params(text='s3cret-of-a-server'))";
    assert_eq!(ipybox.cell(code).await.ok(), "'s3cret-of-a-server'");
    ipybox.stop().await;
    assert_eq!(events(&place)[3]["arguments"], json!({"text": "${TOKEN}"}));
}

#[tokio::test]
async fn an_interrupted_call_is_recorded_as_cancelled() {
    let place = Place::new();
    let mut ipybox = start(&place, &[]).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("from mcptools.probe import slow").await.ok();
    // Time enough for the call to begin.
    let call = json!({"code": "slow.run(slow.Params(seconds=600))", "timeout": 15});
    ipybox.call("execute_ipython_cell", call).await.error();
    eventually("the call's end is recorded", || {
        names(&events(&place)).iter().filter(|name| **name == "call_ended").count() == 2
    })
    .await;
    ipybox.stop().await;
    let events = events(&place);
    let end = |name: &str| events.iter().rfind(|event| event["event"] == name).unwrap();
    assert_eq!(end("call_ended")["outcome"], "cancelled");
    assert_eq!(end("cell_ended")["end"], "timed_out");
}

#[tokio::test]
async fn a_full_log_is_renamed() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--audit-max-bytes", "500"]).await;
    for _ in 0..5 {
        ipybox.cell("1").await.ok();
    }
    ipybox.stop().await;
    let first = std::fs::read_to_string(place.temporary().join("audit.jsonl.1")).unwrap();
    assert!(first.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{first}");
    assert!(std::fs::read_to_string(place.temporary().join("audit.jsonl")).unwrap().ends_with("\"}\n"));
}

#[tokio::test]
async fn a_log_that_cannot_be_kept_keeps_ipybox_from_starting() {
    let place = Place::new();
    let log = place.temporary().join("missing/audit.jsonl");
    let mut ipybox = place.start(&["--audit-log", log.to_str().unwrap()]).await;
    assert_eq!(ipybox.ended().await.code(), Some(1));
    eventually("the file is named", || ipybox.log().contains(&format!("`{}`", log.display()))).await;
}
