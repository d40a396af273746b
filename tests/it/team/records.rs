//! The records that the server's operator keeps of users: exports of audit logs, and retention.

use std::fs::{File, FileTimes};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::support::{TeamPlace, user_directory};
use crate::support::eventually;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The events that `ipybox team audit` prints, and its exit code with what it says.
fn audit(place: &TeamPlace, arguments: &[&str]) -> (Vec<Value>, bool, String) {
    let output = place.run(&[&["audit"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (events, output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn audit_logs_are_exported_by_user_until_a_chain_is_broken() {
    let place = TeamPlace::new("");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    for token in &tokens {
        let mut client = place.begun(token).await;
        assert_eq!(client.cell("1").await, "1");
    }
    server.stop().await;
    let (events, is_whole, said) = audit(&place, &[]);
    assert!(is_whole, "{said}");
    for name in ["ann", "bob"] {
        let of_user = |event: &&Value| event["actor"]["user"]["name"] == name;
        let own: Vec<&Value> = events.iter().filter(of_user).collect();
        let codes: Vec<&str> =
            own.iter().map(|event| event["metadata"]["event_code"].as_str().unwrap()).collect();
        assert_eq!(codes[0], "session_started", "{codes:?}");
        assert!(codes.contains(&"cell_started"), "{codes:?}");
        assert_eq!(own[0]["actor"]["user"]["uid_alt"], place.user(name)["key"]);
    }
    let (alone, _, _) = audit(&place, &["ann"]);
    assert!(!alone.is_empty() && alone.iter().all(|event| event["actor"]["user"]["name"] == "ann"));
    // Somebody changes a line.
    let log = user_directory(&place, &place.user("ann")["key"]).join("audit/log.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("\"end\":\"finished\"", "\"end\":\"error\"", 1)).unwrap();
    let (broken, is_whole, said) = audit(&place, &["ann"]);
    assert!(!is_whole && broken.len() < alone.len() && !broken.is_empty(), "{said}");
    assert!(said.contains("THE CHAIN IS BROKEN") && said.contains("log.jsonl line 3: edited"), "{said}");
    assert_eq!(broken[..], alone[..broken.len()]);
    // The log of somebody else is none of hers, wherever a link leads.
    if rustix::process::geteuid().is_root() {
        std::fs::remove_file(&log).unwrap();
        let other = user_directory(&place, &place.user("bob")["key"]).join("audit/log.jsonl");
        std::os::unix::fs::symlink(other, &log).unwrap();
        let (events, is_whole, said) = audit(&place, &["ann"]);
        assert!(events.is_empty() && !is_whole, "{said}");
    }
}

/// Writes a file whose content is so many years old.
fn write_old(path: &Path, years: u32) {
    std::fs::write(path, "line\n").unwrap();
    let times = FileTimes::new().set_modified(SystemTime::now() - years * YEAR);
    File::options().append(true).open(path).unwrap().set_times(times).unwrap();
}

#[tokio::test]
async fn what_is_old_goes_when_the_server_starts() {
    let place = TeamPlace::new("[retention]\naudit = \"365d\"\nusers = \"90d\"\n");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    let mut bob = place.begun(&tokens[1]).await;
    assert_eq!(bob.cell("x = 1; x").await, "1");
    let mut ann = place.begun(&tokens[0]).await;
    assert_eq!(ann.cell("open('file', 'w').write('x')").await, "1");
    server.stop().await;
    let users = ["ann", "bob"].map(|name| place.user(name));
    let [of_ann, of_bob] = [&users[0], &users[1]].map(|user| user_directory(&place, &user["key"]));
    write_old(&of_bob.join("audit/log.jsonl.5"), 2);
    // Ann has ended her sessions, and was seen a year ago.
    let sessions = place.json(&["sessions", "ann"]);
    let ids: Vec<&str> =
        sessions.as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap()).collect();
    let ended = place.json(&[&["end", "ann"], &ids[..]].concat());
    assert_eq!(ended, json!(ids));
    // Once more: they have ended.
    assert_eq!(place.json(&[&["end", "ann"], &ids[..]].concat()), json!([]));
    for user in &users {
        let file = place.path("state/accounts").join(format!("{}.json", user["key"].as_str().unwrap()));
        let mut account: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        account["seen"] = json!(account["seen"].as_u64().unwrap() - YEAR.as_secs());
        std::fs::write(&file, account.to_string()).unwrap();
    }
    let server = place.serve();
    eventually("what Ann has left is gone", || !of_ann.join("workspace").exists()).await;
    eventually("an old file of Bob's log is gone", || !of_bob.join("audit/log.jsonl.5").exists()).await;
    eventually("nothing waits to be removed", || {
        std::fs::read_dir(place.path("state/left")).is_ok_and(|left| left.count() == 0)
    })
    .await;
    assert!(of_ann.join("audit/log.jsonl").exists() && !of_ann.join("home").exists());
    // Bob has a session, and keeps all.
    assert!(bob.cell("x + 1").await.ends_with('2'));
    // She can come again, with her id.
    let mut ann = place.begun(&tokens[0]).await;
    assert!(ann.cell("import os; os.path.exists('file')").await.contains("False"));
    assert_eq!(place.user("ann")["id"], users[0]["id"]);
    if let Some(id) = users[0]["id"].as_u64() {
        assert_eq!(u64::from(std::fs::metadata(of_ann.join("workspace")).unwrap().uid()), id);
    }
    server.stop().await;
}
