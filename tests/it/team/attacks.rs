//! Attacks of one user on another one and on the server: by code in a cell, and by a hostile client.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::support::{LEGACY, TeamPlace, user_directory};
use crate::support::{eventually, free_port};

/// Tries everything that one user's code may reach of another one's; prints what it has reached.
const NEIGHBOUR: &str = include_str!("neighbour.py");

/// Directories in which all programs of a machine leave files. Root alone can write the last one.
const SHARED: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// A file that everybody may read, if one can be made there.
fn bait(directory: &Path) -> Option<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("bait-").tempfile_in(directory).ok()?;
    file.write_all(b"of somebody else").unwrap();
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).unwrap();
    Some(file)
}

#[tokio::test]
async fn code_reaches_nothing_of_another_user() {
    let place = TeamPlace::new("");
    let metrics = free_port();
    place.change("[login]", &format!("metrics = \"127.0.0.1:{metrics}\"\n[login]"));
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    // So does somebody outside of the server, readable for all of the machine.
    let outside: Vec<_> = SHARED.iter().filter_map(|directory| bait(Path::new(directory))).collect();
    assert!(outside.len() >= 3, "{outside:?}");
    let server = place.serve();
    let mut ann = place.begun(&tokens[0]).await;
    let mut bob = place.begun(&tokens[1]).await;
    // Bob leaves what could be found.
    let bait = "import os, socket, tempfile, multiprocessing.shared_memory as shared
mark = 'secret-of-' + 'bob'
open('bait.txt', 'w').write(mark)
left = tempfile.gettempdir() + '/bait-of-bob'
open(left, 'w').write(mark)
memory = shared.SharedMemory('bait-of-bob', create=True, size=64)
try:
    abstract = socket.socket(socket.AF_UNIX); abstract.bind('\\0bait-of-bob'); abstract.listen()
except PermissionError: pass
port = socket.socket(); port.bind(('127.0.0.1', 0)); port.listen()
print(port.getsockname()[1], left)";
    let said = bob.cell(bait).await;
    let numbers = said.lines().last().unwrap_or_default();
    let (port, left) = numbers.split_once(' ').unwrap_or_else(|| panic!("{said}"));
    let victim = place.user("bob");
    let sessions = place.json(&["sessions", "bob"]);
    let aims = |directory: &Path| {
        let aims = json!({
            "left": left,
            "outside": outside.iter().map(|file| file.path()).collect::<Vec<_>>(),
            "directory": directory,
            "closed": [place.path("tokens.json"), place.path("state/accounts"), place.path("state/sessions")],
            "ports": [port.parse::<u16>().unwrap(), metrics, place.port],
            "process": sessions[0]["process"],
            "server": server.id(),
            "id": victim["id"],
        });
        format!("{NEIGHBOUR}\nimport json\nprint('reached:', attack(json.loads({:?})))", aims.to_string())
    };
    let seen = ann.cell(&aims(&user_directory(&place, &victim["key"]))).await;
    assert!(seen.ends_with("reached: []"), "{seen}");
    // It would find what is there.
    let own = ann.cell(&aims(&user_directory(&place, &place.user("ann")["key"]))).await;
    assert!(own.contains("read workspace") && own.contains("write workspace"), "{own}");
    // The bait is still there, and so is its owner.
    let kept = "print(open('bait.txt').read(), open(left).read(), bytes(memory.buf[:3])); memory.unlink()";
    let kept = bob.cell(kept).await;
    assert!(kept.contains("secret-of-bob secret-of-bob b'\\x00\\x00\\x00'"), "{kept}");
    server.stop().await;
}

#[tokio::test]
async fn links_in_what_users_write_lead_the_server_nowhere() {
    let place = TeamPlace::new("");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    let mut bob = place.begun(&tokens[1]).await;
    assert_eq!(bob.cell("x = 1; x").await, "1");
    let mut ann = place.begun(&tokens[0]).await;
    assert_eq!(ann.cell("1").await, "1");
    let [own, other] = ["ann", "bob"].map(|name| user_directory(&place, &place.user(name)["key"]));
    let (log, accounts) = (other.join("audit/log.jsonl"), place.path("state/accounts"));
    let seen = || {
        [&log, &accounts].map(|path| {
            let metadata = std::fs::metadata(path).unwrap();
            (metadata.uid(), metadata.mode(), metadata.len())
        })
    };
    server.stop().await;
    let before = seen();
    // As a program of Ann's outside of a sandbox could: directories of hers lead elsewhere.
    for (name, target) in
        [("audit", other.join("audit")), ("home", accounts.clone()), ("state", place.path("new"))]
    {
        std::fs::rename(own.join(name), own.join(format!("workspace/{name}"))).unwrap();
        std::os::unix::fs::symlink(target, own.join(name)).unwrap();
    }
    let server = place.serve();
    let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let text = place.client(&tokens[0]).send("initialize", params).await.text().await.unwrap();
    place.run(&["sessions", "ann"]);
    if rustix::process::geteuid().is_root() {
        assert!(text.contains("error"), "{text}");
        assert_eq!(seen(), before);
        assert!(!place.path("new").exists());
    }
    server.stop().await;
    // For the end of the test, which ends her sessions.
    for name in ["audit", "home", "state"] {
        std::fs::remove_file(own.join(name)).unwrap();
        std::fs::rename(own.join(format!("workspace/{name}")), own.join(name)).unwrap();
    }
}

#[tokio::test]
async fn a_client_replays_no_stream_of_another_user() {
    let place = TeamPlace::new("");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    let mut ann = place.begun(&tokens[0]).await;
    let response = ann
        .send(
            "tools/call",
            json!({"name": "execute_ipython_cell", "arguments": {"code": "'word-' + 'of-ann'"}}),
        )
        .await;
    let text = response.text().await.unwrap();
    assert!(text.contains("word-of-ann"), "{text}");
    let ids: Vec<String> =
        text.lines().filter_map(|line| Some(line.strip_prefix("id:")?.trim().to_owned())).collect();
    let bob = place.begun(&tokens[1]).await;
    for id in ids.iter().map(String::as_str).chain(["0", "0/0", "-1", "99999999999999999999/1"]) {
        let mut thief = bob.again();
        let response = thief
            .request(Method::GET)
            .header("last-event-id", id)
            .timeout(Duration::from_secs(2))
            .send()
            .await;
        // Either an end, or a stream of Bob's own on which nothing comes.
        if let Ok(response) = response {
            let text = response.text().await.unwrap_or_default();
            assert!(!text.contains("word-of-ann"), "{id}: {text}");
        }
        thief.session.clone_from(&ann.session);
        let response = thief.request(Method::GET).header("last-event-id", id).send().await.unwrap();
        assert_eq!(response.status(), 404);
    }
    server.stop().await;
}

#[tokio::test]
async fn connections_and_streams_that_nobody_reads_hold_nobody_up() {
    let place = TeamPlace::new("");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    let mut ann = place.begun(&tokens[0]).await;
    let mut bob = place.begun(&tokens[1]).await;
    assert_eq!(bob.cell("1").await, "1");
    let body = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params":
        {"name": "execute_ipython_cell", "arguments": {"code": "print('x' * 3_000_000)", "max_output_chars": 3_000_000}}})
    .to_string();
    let mut unread = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nMcp-Session-Id: {}\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            place.port,
            ann.token,
            ann.session.as_deref().unwrap(),
            body.len(),
        );
        stream.write_all(head.as_bytes()).unwrap();
        unread.push(stream);
    }
    assert_eq!(bob.cell("2").await, "2");
    // Requests of no user.
    for _ in 0..200 {
        let mut stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ").unwrap();
        unread.push(stream);
    }
    assert_eq!(bob.cell("3").await, "3");
    drop(unread);
    assert!(ann.cell("4").await.ends_with('4'));
    server.stop().await;
}

#[tokio::test]
async fn names_of_users_and_clients_add_no_lines_to_the_log() {
    let place = TeamPlace::new("");
    for name in ["a\nb", "../ann", "a b", "a\u{1b}[2J"] {
        assert!(!place.run(&["user", "add", name]).status.success(), "{name:?}");
    }
    let token = place.token("ann");
    let (server, log) = place.serve_and_log();
    let mut client = place.begun(&token).await;
    let forged = "x\nipybox: serving a forged line\u{1b}[2J";
    let response = client.send("tools/call", json!({"name": forged, "arguments": {forged: forged}})).await;
    drop(response.text().await);
    drop(client.send(forged, json!({})).await.text().await);
    let wrong = place
        .client("ipybox_wrong")
        .request(Method::POST)
        .header("user-agent", "x\tforged")
        .body("{}")
        .send()
        .await;
    assert_eq!(wrong.unwrap().status(), 401);
    server.stop().await;
    eventually("the log has ended", || log.is_finished()).await;
    let lines = log.join().unwrap();
    assert!(
        !lines.iter().any(|line| line.starts_with("ipybox: serving a forged") || line.contains('\u{1b}')),
        "{lines:?}"
    );
}

#[tokio::test]
async fn limits_that_were_taken_away_hold_no_more() {
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/sys/fs/cgroup/pids").exists() {
        return;
    }
    let place = TeamPlace::new("[users]\nlimit_processes = 200\nlimit_memory = \"1G\"\n");
    let token = place.token("ann");
    let most = |session: &serde_json::Value| {
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", session["process"])).unwrap();
        let group = groups.lines().find_map(|line| line.split_once(":pids:")).unwrap().1.to_owned();
        std::fs::read_to_string(format!("/sys/fs/cgroup/pids{group}/pids.max")).unwrap().trim().to_owned()
    };
    let server = place.serve();
    let mut client = place.begun(&token).await;
    assert_eq!(client.cell("1").await, "1");
    let session = place.json(&["sessions"])[0].clone();
    assert_eq!(most(&session), "200");
    server.stop().await;
    place.change("limit_processes = 200\nlimit_memory = \"1G\"", "limit_memory = \"2G\"");
    let server = place.serve();
    assert!(client.cell("2").await.ends_with('2'));
    assert_eq!(most(&session), "max");
    server.stop().await;
}
