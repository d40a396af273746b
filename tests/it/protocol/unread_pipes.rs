//! Clients that do not read what the server writes, to stdout or to stderr.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::support::{PATIENCE, Place, environment, eventually, kernel_python};

/// ipybox as a client starts it that does not care for all of its pipes.
fn bare(place: &Place, log_level: &str, stderr: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args(["--log-level", log_level, "--workspace"])
        .arg(place.workspace())
        .arg("--state-dir")
        .arg(place.states())
        .arg("--python")
        .arg(kernel_python())
        .env_clear()
        .envs(environment())
        .env("TMPDIR", place.temporary())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

fn client() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "0"}})
}

async fn send(input: &mut ChildStdin, id: u32, method: &str, params: Value) {
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    input.write_all(format!("{request}\n").as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_stderr_that_is_closed_or_not_read_stops_nothing() {
    for is_closed in [true, false] {
        let place = Place::new();
        let mut child = bare(&place, "DEBUG", Stdio::piped());
        let stderr = child.stderr.take();
        let unread = (!is_closed).then_some(stderr);
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        send(&mut input, 1, "initialize", client()).await;
        let flood = "for i in range(3000): display({'image/png': '%'}, raw=True)\n'survived'";
        let params = json!({"name": "execute_ipython_cell", "arguments": {"code": flood}});
        send(&mut input, 2, "tools/call", params).await;
        let answer = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("no answer");
                if line.contains(r#""id":2"#) {
                    return line;
                }
            }
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("it hangs");
        assert!(answer.contains("survived"), "{answer}");
        drop(input);
        assert!(child.wait().await.unwrap().success());
        drop(unread);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_suspend_a_timeout() {
    let place = Place::new();
    let mut child = bare(&place, "INFO", Stdio::null());
    let mut input = child.stdin.take().unwrap();
    send(&mut input, 0, "initialize", client()).await;
    // More answers than a pipe holds, and nobody reads them.
    for id in 1..60 {
        send(&mut input, id, "tools/list", json!({})).await;
    }
    let code = "
import time
try:
    while True: print('x' * 1000); time.sleep(0.001)
except KeyboardInterrupt: open('interrupted', 'w').close()";
    let params = json!({
        "name": "execute_ipython_cell", "arguments": {"code": code, "timeout": 15}, "_meta": {"progressToken": 1},
    });
    send(&mut input, 100, "tools/call", params).await;
    let interrupted = place.workspace().join("interrupted");
    eventually("the cell is interrupted", || interrupted.exists()).await;
    drop(input);
    assert!(child.wait().await.unwrap().success());
}
