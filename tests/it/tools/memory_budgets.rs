//! Memory for messages from code and from MCP servers: the host holds no more than its budgets, and goes on to work.

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, held_kib, peak_kib, repository};

/// What the host may take at most: 300 MB.
const LIMIT_KIB: u64 = 300_000_000 / 1024;

/// Sends bodies from as many threads as asked for, and returns the status and text of each answer.
const SEND: &str = r#"
import http.client, json, os, socket, threading
HOST, PORT = os.environ["IPYBOX_TOOL_SERVER"].rsplit(":", 1)
HEAD = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["IPYBOX_TOOL_SERVER_TOKEN"]}
def send(body, path="/run"):
    connection = http.client.HTTPConnection(HOST, int(PORT))
    try:
        try:
            connection.request("POST", path, body, HEAD)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The answer has come before the end of the body.
        response = connection.getresponse()
        return response.status, response.read().decode()
    except (http.client.HTTPException, OSError) as error:
        return 0, repr(error)
    finally:
        connection.close()
def flood(body, times=10, path="/run"):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(send(body, path))) for _ in range(times)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return answers
def call(server, args):
    return b'{"server_name":"%s","tool_name":"echo","tool_args":{"text":%s}}' % (server, args)
def empty(size):
    return b"[" + b"[]," * (size // 3) + b"[]]"
def check(answers):
    # Refused in words, or with the connection.
    assert all(status in (0, 413, 503) or (status, "error" in text) == (200, True) for status, text in answers), answers
    assert any("MiB of memory" in text or "levels deep" in text for status, text in answers), answers
"#;

fn hostile(list: &str) -> Value {
    json!({"command": "python3", "args": [repository().join("tests/servers/hostile.py"), "stdio", list]})
}

async fn session(place: &Place) -> Ipybox {
    let mut ipybox = place.ipybox().await;
    ipybox.register("hostile", hostile("")).await.ok();
    ipybox.cell(SEND).await.ok();
    ipybox
}

async fn check_peak(ipybox: &Ipybox) {
    let peak = peak_kib(ipybox).await;
    assert!(peak < LIMIT_KIB, "{peak} KiB");
}

#[tokio::test]
async fn what_code_sends_is_held_as_far_as_there_is_memory() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    for code in [
        "check(flood(call(b'no', empty(30_000_000))))",
        "check(flood(call(b'hostile', empty(30_000_000))))",
        "check(flood(call(b'hostile', b'[' * 100_000 + b']' * 100_000)))",
        "inner = json.dumps('[' + '[],' * 2_000_000 + '[]]').encode()",
        "check(flood(b'{\"server_name\":\"hostile\",\"module\":\"echo\",\"results\":[%s]}' % inner, path='/infer'))",
        "idle = [socket.create_connection((HOST, int(PORT))) for _ in range(600)]",
        "assert send(call(b'hostile', b'\"x\"')) == (200, '{\"result\":\"x\"}')",
    ] {
        ipybox.cell(code).await.ok();
    }
    check_peak(&ipybox).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn what_servers_send_is_held_as_far_as_there_is_memory() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "
from mcptools.hostile import empty, text
def refused(run, words):
    try: run()
    except Exception as error: assert words in str(error), error
    else: raise AssertionError(words)
import functools
call = lambda tool, **args: __import__('ipybox_runtime').ToolRunner('hostile').call_sync(tool, args)
refused(lambda: call('empty', bytes=60_000_000), 'so many values')
refused(lambda: call('deep', depth=100_000), 'levels deep')
refused(lambda: call('text', bytes=60_000_000), 'longer than 40 MiB')
assert len(call('text', bytes=30_000_000)) == 30_000_000
assert call('echo', text='x') == 'x'";
    ipybox.cell(code).await.ok();
    for list in ["pages", "thick", "deep"] {
        let text = ipybox.register("listed", hostile(list)).await.error();
        assert!(text.contains("is refused"), "{text}");
    }
    check_peak(&ipybox).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_server_that_floods_and_reads_nothing_is_not_answered_for_ever() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    for message in [
        r#"{"jsonrpc":"2.0","id":ID,"method":"ping"}"#.to_owned(),
        format!(
            r#"{{"jsonrpc":"2.0","id":ID,"method":"sampling/createMessage","params":"{}"}}"#,
            "x".repeat(200_000)
        ),
    ] {
        let flood = json!({"message": message}).to_string();
        let call = format!(
            "import ipybox_runtime\nipybox_runtime.ToolRunner('hostile').call_sync('flood', {flood})"
        );
        let answer = ipybox.call("execute_ipython_cell", json!({"code": call, "timeout": 8})).await;
        assert!(answer.is_error, "{}", answer.text);
        ipybox.reset().await;
    }
    check_peak(&ipybox).await;
    ipybox.cell("1").await.ok();
    ipybox.stop().await;
}

/// Prints much, and displays images of 25 MB, which are none.
const DISPLAY: &str = r"
import os
from IPython.display import Image, display
for _ in range(2):
    print('x' * 5_000_000)
    display(Image(data=b'\x89PNG\r\n\x1a\n' + os.urandom(25_000_000), format='png'))
";

#[tokio::test]
async fn what_nine_kernels_display_at_once_is_held_as_far_as_there_is_memory_and_given_back() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let mut calls = Vec::new();
    for session in ["main"].into_iter().chain(["new"; 8]) {
        let arguments = json!({"code": DISPLAY, "session": session, "timeout": 600});
        calls.push(ipybox.start_call("execute_ipython_cell", arguments).await);
    }
    for call in calls {
        let answer = call.answer().await.ok();
        assert!(answer.matches(".png").count() >= 2, "{answer}");
        assert!(!answer.contains("of output are left out"), "{answer}");
    }
    check_peak(&ipybox).await;
    ipybox.cell("1").await.ok();
    let held = held_kib(&ipybox).await;
    assert!(held < LIMIT_KIB / 2, "{held} KiB");
    ipybox.stop().await;
}
