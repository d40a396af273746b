//! Connections to small servers of our own that misbehave on demand: over stdio (`fake_server.py`, standard
//! library only) here, over HTTP in `http`.

mod hostile;
mod http;
mod revisions;
mod sessions;
mod starts;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::*;
use crate::ground::env::Variables;
use crate::kernels::sandbox::ExposedPlaces;

/// Held by tests with large answers, which have one budget together.
pub(super) static LARGE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How long anything here may take that should take no time.
const SOON: Duration = Duration::from_secs(120);

fn connector(workspace: &Path) -> Connector {
    guarded(workspace, StartGuard::without_directory())
}

fn guarded(workspace: &Path, guard: StartGuard) -> Connector {
    let path = std::env::var("PATH").unwrap();
    let variables = [("PATH", path.as_str()), ("TOKEN", "hunter2hunter2"), ("OTHER", "not passed on")];
    Connector::new(Arc::new(Variables::from_pairs(variables)), workspace.to_owned(), guard)
}

fn parameters(value: Value) -> ServerParameters {
    ServerParameters::parse(value.as_object().unwrap()).unwrap()
}

fn fake(mode: &str) -> ServerParameters {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/connections/mcp_client/tests/fake_server.py");
    parameters(json!({"command": "python3", "args": [script, mode], "env": {"SECRET": "${TOKEN}"}}))
}

async fn connect(mode: &str) -> Connection {
    connector(Path::new("/")).connect("fake", &fake(mode)).await.unwrap()
}

async fn refusal(mode: &str, timeout: Duration) -> String {
    let connector = connector(Path::new("/")).with_connect_timeout(timeout);
    match connector.connect("fake", &fake(mode)).await {
        Ok(_) => panic!("connected to a server in mode {mode}"),
        Err(error) => error.to_string(),
    }
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn structured(connection: &Connection, tool: &str, value: Value) -> Value {
    connection.call(tool, arguments(value)).await.unwrap().output.structured.unwrap()
}

async fn text(connection: &Connection, tool: &str, value: Value) -> String {
    connection.call(tool, arguments(value)).await.unwrap().output.to_string()
}

#[tokio::test]
async fn a_server_says_who_it_is_and_lists_all_pages_of_its_tools() {
    let connection = connect("ok").await;
    assert_eq!(connection.identity().name, "fake");
    assert_eq!(connection.identity().version, "1.2");
    assert_eq!(connection.identity().instructions.as_deref(), Some("be kind"));
    let tools = connection.list_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["echo", "fail", "die", "sleep", "cancelled", "huge", "where", "ask"]);
    assert_eq!(tools[0].annotations.as_ref().unwrap().read_only_hint, Some(true));
    assert!(connection.is_alive());
    connection.close().await;
    assert!(!connection.is_alive());
}

#[tokio::test]
async fn a_repeated_empty_cursor_is_the_end_of_a_list() {
    let tools = connect("empty-cursor").await.list_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["echo", "fail", "die"]);
}

#[tokio::test]
async fn a_cursor_that_does_not_advance_ends_the_list() {
    for (mode, expected) in [
        ("stuck", &["echo", "fail", "die", "sleep"][..]),
        ("circle", &["echo", "fail", "die", "sleep", "cancelled", "huge"]),
        ("deaf-to-cursors", &["echo"]),
    ] {
        let tools = connect(mode).await.list_tools().await.unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, expected, "{mode}");
    }
}

#[tokio::test]
async fn lines_of_a_log_are_no_answers() {
    let connection = connect("logging").await;
    assert_eq!(text(&connection, "echo", json!({"text": "hi"})).await, "hi");
    assert_eq!(connection.list_tools().await.unwrap().len(), 8);
}

#[tokio::test]
async fn answers_that_have_all_members_of_messages_are_read() {
    let connection = connect("all-members").await;
    assert_eq!(connection.list_tools().await.unwrap().len(), 8);
    assert_eq!(text(&connection, "echo", json!({"text": "x"})).await, "x");
    let error = connection.call("nothing", Map::new()).await.unwrap_err();
    assert!(matches!(&error, CallError::Protocol { code: -32602, message } if message == "no tool nothing"));
}

#[tokio::test]
async fn calls_run_side_by_side() {
    let connection = connect("ok").await;
    // None is answered before the last one has come.
    let calls = (0..20).map(|_| text(&connection, "meet", json!({})));
    let met = tokio::time::timeout(SOON, futures::future::join_all(calls)).await;
    assert_eq!(met.expect("all are answered"), ["met"; 20]);
}

#[tokio::test]
async fn a_tools_error_is_reported_without_secrets() {
    let connection = connect("ok").await;
    let error = connection.call("fail", Map::new()).await.unwrap_err();
    assert!(matches!(&error, CallError::Tool(text) if text == "it failed: ${TOKEN}"), "{error:?}");
    let error = connection.call("nothing", Map::new()).await.unwrap_err();
    assert!(matches!(&error, CallError::Protocol { code: -32602, message } if message == "no tool nothing"));
    assert!(connection.is_alive());
}

#[tokio::test]
async fn a_server_gets_its_own_environment_and_a_directory_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let guard = StartGuard::new(place.join("state/servers"), ExposedPlaces::default());
    let connection = guarded(&place, guard).connect("fake", &fake("ok")).await.unwrap();
    let found = structured(&connection, "where", json!({})).await;
    assert_eq!(found["cwd"], json!(place.join("state/servers/fake")));
    assert!(found["env"].get("PYTHONSAFEPATH").is_none(), "nothing is exposed: {found}");
    assert_eq!(found["env"]["SECRET"], "hunter2hunter2");
    assert!(found["env"].get("OTHER").is_none() && found["env"].get("TOKEN").is_none(), "{found}");
}

#[tokio::test]
async fn a_relative_directory_is_relative_to_the_workspace() {
    let workspace = tempfile::tempdir().unwrap();
    std::fs::create_dir(workspace.path().join("inner")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/connections/mcp_client/tests/fake_server.py");
    let there = |cwd: &str| parameters(json!({"command": "python3", "args": [script], "cwd": cwd}));
    let connector = connector(workspace.path());
    let connection = connector.connect("fake", &there("inner")).await.unwrap();
    let found = structured(&connection, "where", json!({})).await;
    assert!(found["cwd"].as_str().unwrap().ends_with("/inner"), "{found}");
    let error = connector.connect("fake", &there("nowhere")).await.err().unwrap();
    assert!(matches!(error, Error::WorkingDirectory { .. }), "{error}");
}

#[test]
fn a_path_that_means_the_workspace_must_say_so() {
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().join("work");
    std::fs::create_dir_all(workspace.join("data")).unwrap();
    for name in ["server.py", "data/a.db", "stdio"] {
        std::fs::write(workspace.join(name), "").unwrap();
    }
    let connector =
        guarded(&workspace, StartGuard::new(place.path().join("servers"), ExposedPlaces::default()));
    let check = |value: Value, key: Option<&str>| {
        let checked = connector.check("s", &parameters(value.clone()));
        match (checked, key) {
            (Ok(()), None) => {}
            (Err(Error::Relative { key: found, .. }), Some(key)) => assert_eq!(found, key, "{value}"),
            (other, _) => panic!("{value}: {other:?}"),
        }
    };
    check(json!({"command": "python3", "args": ["server.py"]}), Some("args[0]"));
    check(json!({"command": "python3", "args": ["-m", "s", "--db=data/a.db"]}), Some("args[2]"));
    check(json!({"command": "python3", "args": ["../x.py"]}), Some("args[0]"));
    check(json!({"command": "python3", "env": {"DB": "data/a.db"}}), Some("env.DB"));
    check(json!({"command": "python3", "env": {"PYTHONPATH": "."}}), Some("env.PYTHONPATH"));
    check(json!({"command": "python3", "args": ["run", "-v", ".:/data", "image"]}), Some("args[2]"));
    check(json!({"command": "./server.py"}), Some("command"));
    check(json!({"command": "python3", "args": ["stdio", "data", "1.2", "none.py", "@a/b"]}), None);
    check(json!({"command": "python3", "args": ["server.py"], "cwd": "${workspace}"}), None);
    check(json!({"command": "python3", "args": ["${workspace}/server.py", "${workspace}"]}), None);
    // A file that the server has made itself.
    std::fs::create_dir_all(place.path().join("servers/s/data")).unwrap();
    std::fs::write(place.path().join("servers/s/data/a.db"), "").unwrap();
    check(json!({"command": "python3", "env": {"DB": "data/a.db"}}), None);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    let connection = connect("ok").await;
    let call = connection.call("sleep", arguments(json!({"seconds": 600})));
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    let deadline = Instant::now() + SOON;
    while text(&connection, "cancelled", json!({})).await == "[]" {
        assert!(Instant::now() < deadline, "the server was not notified");
    }
    connection.close().await;
}

#[tokio::test]
async fn a_servers_death_ends_its_calls_and_is_reported() {
    for child in [false, true] {
        let connection = connect("ok").await;
        let started = Instant::now();
        let sleeping = connection.call("sleep", arguments(json!({"seconds": 600})));
        let dying = connection.call("die", arguments(json!({"child": child})));
        let (slept, died) = tokio::join!(sleeping, dying);
        assert!(started.elapsed() < SOON, "child: {child}");
        for error in [slept.unwrap_err(), died.unwrap_err()] {
            let message = error.to_string();
            assert!(matches!(error, CallError::Disconnected { may_have_run: true, .. }), "{error:?}");
            assert!(message.contains("exit status: 3") && message.contains("about to die"), "{message}");
        }
        assert!(!connection.is_alive());
        let error = connection.call("echo", Map::new()).await.unwrap_err();
        assert!(matches!(error, CallError::Disconnected { may_have_run: false, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_message_beyond_rmcps_limit_arrives() {
    let _turn = LARGE.lock().await;
    let connection = connect("ok").await;
    let text = text(&connection, "huge", json!({"bytes": 20 * 1024 * 1024})).await;
    assert_eq!(text.len(), 20 * 1024 * 1024);
}

#[tokio::test]
async fn pings_are_answered_and_other_requests_of_the_server_refused() {
    let connection = connect("ok").await;
    let answers = structured(&connection, "ask", json!({})).await;
    assert_eq!(answers["ping"], json!({}));
    for method in ["roots/list", "sampling/createMessage", "elicitation/create"] {
        assert_eq!(answers[method]["code"], -32601, "{answers}");
    }
}

#[tokio::test]
async fn garbage_between_messages_is_ignored() {
    let connection = connect("noisy").await;
    assert_eq!(text(&connection, "echo", json!({"text": "hi"})).await, "hi");
}

#[tokio::test]
async fn a_server_that_exits_is_reported_with_its_last_lines_and_without_secrets() {
    let message = refusal("exits", SOON).await;
    assert!(message.contains("`initialize` (exit status: 7)"), "{message}");
    assert!(message.contains("cannot start: SECRET is ${TOKEN}"), "{message}");
    let message = refusal("exits-child-holds-stdout", SOON).await;
    assert!(message.contains("exit status: 7"), "{message}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_reported_with_what_it_writes() {
    let check = async |mode: &str, words: &str| {
        let connector = connector(Path::new("/")).with_connect_timeout(Duration::from_millis(200));
        let deadline = Instant::now() + SOON;
        loop {
            let message = connector.connect("fake", &fake(mode)).await.err().unwrap().to_string();
            assert!(message.contains("not ready after 0.2 s"), "{message}");
            if message.contains(words) {
                break;
            }
            assert!(Instant::now() < deadline, "{message}");
        }
    };
    check("silent", "\nI read nothing\nhint: ").await;
    check("greeting", "not an MCP message:\nWelcome to the server!").await;
}

#[tokio::test]
async fn a_line_without_end_ends_the_connection() {
    let _turn = LARGE.lock().await;
    let message = refusal("endless-line", SOON).await;
    assert!(message.contains("a message of more than"), "{message}");
}

#[tokio::test]
async fn a_refused_handshake_is_reported_in_the_servers_words() {
    assert_eq!(
        refusal("refuse", SOON).await,
        "the server answered `initialize` with an error: not today (code -32000)"
    );
}

#[tokio::test]
async fn a_server_that_says_next_to_nothing_about_itself_is_used() {
    let connection = connect("bare").await;
    let identity = connection.identity();
    assert_eq!((identity.name.as_str(), identity.version.as_str()), ("fake", ""));
    assert_eq!(connection.list_tools().await.unwrap().len(), 8);
    let message = refusal("no-object", SOON).await;
    assert_eq!(
        message,
        "`initialize` failed: the server's answer cannot be read: its result is a list, not an object"
    );
}

#[tokio::test]
async fn a_program_that_refuses_the_newest_revision_is_asked_for_an_older_one() {
    let connection = connect("old").await;
    assert_eq!(connection.identity().protocol_version, "2025-03-26");
    assert_eq!(text(&connection, "echo", json!({"text": "hi"})).await, "hi");
}

#[tokio::test]
async fn an_unknown_program_is_named() {
    let connector = connector(Path::new("/"));
    let check = async |command: &str, expected: &str| {
        let error = connector.connect("x", &parameters(json!({"command": command}))).await.err().unwrap();
        assert_eq!(error.to_string(), expected);
    };
    check("no-such-program", "the program `no-such-program` was not found on `PATH`").await;
    check("/no/such", "the program `/no/such` was not found").await;
    check("${TOKEN}", "the program `${TOKEN}` was not found on `PATH`").await;
    let missing = "the variable `NOWHERE` is set neither in the environment nor in the workspace's `.env` \
                   (asked for by `command`)";
    check("${NOWHERE}", missing).await;
}

#[tokio::test]
async fn a_broken_list_is_reported() {
    let error = connect("endless").await.list_tools().await.unwrap_err();
    assert!(matches!(error, Error::EndlessList { .. }), "{error}");
    assert_eq!(connect("no-tools").await.list_tools().await.unwrap(), []);
    let message = connect("dies-listing").await.list_tools().await.unwrap_err().to_string();
    assert!(message.contains("`tools/list` (exit status: 5)"), "{message}");
}

#[tokio::test]
async fn lists_for_code_have_all_pages_and_no_icons() {
    let _turn = LARGE.lock().await;
    for mode in ["ok", "large-lists"] {
        let connection = connect(mode).await;
        for (kind, key, names) in [
            (ListKind::Resources, "uri", ["r://0", "r://1"]),
            (ListKind::ResourceTemplates, "uriTemplate", ["r://0/{a}", "r://1/{a}"]),
            (ListKind::Prompts, "name", ["p0", "p1"]),
        ] {
            let received = connection.list_for_code(kind).await.unwrap();
            let listed = received.output.structured.unwrap();
            let found: Vec<_> = listed.as_array().unwrap().iter().map(|item| &item[key]).collect();
            assert_eq!(found, names, "{mode}");
            assert!(listed.as_array().unwrap().iter().all(|item| item.get("icons").is_none()), "{mode}");
        }
        let prompts = connection.list_prompts().await.unwrap();
        assert_eq!(prompts.len(), 2);
        assert_eq!(connection.list_resource_templates().await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn broken_lists_are_reported_by_their_names() {
    let connection = connect("endless").await;
    let message = connection.list_prompts().await.unwrap_err().to_string();
    assert_eq!(message, "the list of prompts has no end: 1000 pages were read");
    let message = connection.list_for_code(ListKind::ResourceTemplates).await.unwrap_err().to_string();
    assert_eq!(message, "the list of resource templates has no end: 1000 pages were read");
    let connection = connect("no-tools").await;
    assert!(connection.identity().has_prompts && !connection.identity().has_resources);
    assert!(connection.list_prompts().await.unwrap().is_empty());
    assert!(connection.list_resource_templates().await.unwrap().is_empty());
    let error = connection.list_for_code(ListKind::Prompts).await.unwrap_err();
    assert!(matches!(error, CallError::Protocol { code: -32601, .. }), "{error}");
}

#[tokio::test]
async fn prompts_have_roles_and_contents_however_large_they_are() {
    let _turn = LARGE.lock().await;
    let connection = connect("ok").await;
    for bytes in [1, 2_000_000] {
        let given = arguments(json!({"bytes": bytes.to_string()}));
        let output = connection.get_prompt("any", given).await.unwrap().output;
        assert_eq!(output.structured, Some(json!({"roles": ["user", "assistant"]})));
        assert_eq!(output.to_string().len(), 2 * bytes + 1);
    }
}

#[tokio::test]
async fn closing_is_bounded_and_may_happen_twice_at_once() {
    for mode in ["ok", "stubborn"] {
        let connection = connect(mode).await;
        let started = Instant::now();
        let call = connection.call("sleep", arguments(json!({"seconds": 600})));
        let ((), (), called) = tokio::join!(connection.close(), connection.close(), call);
        assert!(matches!(called.unwrap_err(), CallError::Disconnected { .. }));
        assert!(started.elapsed() < SOON, "{mode}: {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_reads_nothing_can_be_closed() {
    let connection = connect("deaf").await;
    let started = Instant::now();
    // More than fits into the pipe: the write blocks until the server is killed.
    let text = "x".repeat(1_000_000);
    let call = connection.call("echo", arguments(json!({"text": text})));
    let close = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        connection.close().await;
    };
    let (called, ()) = tokio::join!(call, close);
    assert!(matches!(called.unwrap_err(), CallError::Disconnected { .. }));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}
