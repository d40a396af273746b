//! The standalone tool server: its two tokens, its servers, and approval over a WebSocket.

use std::process::Stdio;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use ipybox::{
    ApprovalClient, ApprovalClientError, ApprovalRequest, ToolRunner, ToolRunnerError, ToolServer,
    ToolServerError,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::support::{PATIENCE, Place, eventually, is_running, kernel_python, probe, repository};

type Socket = WebSocketStream<TcpStream>;

/// A server that asks before each call.
async fn asking() -> ToolServer {
    ToolServer::builder().port(0).approval_required(true).approval_timeout(PATIENCE).start().await.unwrap()
}

/// A runner of `probe`, which is registered.
async fn probe_at(server: &ToolServer) -> ToolRunner {
    let runner = runner(server, "probe");
    runner.register(&probe()).await.unwrap();
    runner
}

fn runner(server: &ToolServer, name: &str) -> ToolRunner {
    let runner = ToolRunner::new(name).host("127.0.0.1").port(server.address().port());
    runner.token(server.token()).host_token(server.host_token())
}

async fn client(server: &ToolServer) -> ApprovalClient {
    ApprovalClient::connect("localhost", server.address().port(), server.host_token()).await.unwrap()
}

async fn next(client: &mut ApprovalClient) -> ApprovalRequest {
    timeout(PATIENCE, client.next()).await.expect("a request").expect("the stream goes on").unwrap()
}

/// Calls `echo` in the background.
fn echo(runner: &ToolRunner, text: &str) -> tokio::task::JoinHandle<Result<Value, ToolRunnerError>> {
    let (runner, arguments) = (runner.clone(), json!({"text": text}));
    tokio::spawn(async move { runner.run("echo", &arguments).await })
}

/// Any HTTP request; the status, and the text of the answer.
async fn send(server: &ToolServer, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let mut head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// The approval channel as any client opens it.
async fn open(server: &ToolServer, headers: &[(&str, &str)]) -> Result<Socket, SocketError> {
    let mut request = format!("ws://{}/approval", server.address()).into_client_request().unwrap();
    for (name, value) in headers {
        let name: tokio_tungstenite::tungstenite::http::HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(server.address()).await.unwrap();
    client_async(request, stream).await.map(|(socket, _)| socket)
}

async fn open_as_host(server: &ToolServer) -> Socket {
    let bearer = format!("Bearer {}", server.host_token());
    open(server, &[("authorization", &bearer)]).await.unwrap()
}

async fn told(socket: &mut Socket) -> Value {
    loop {
        let message = timeout(PATIENCE, socket.next()).await.expect("a message").unwrap().unwrap();
        if let Message::Text(text) = message {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

async fn tell(socket: &mut Socket, message: Value) {
    socket.send(Message::text(message.to_string())).await.unwrap();
}

#[tokio::test]
async fn a_registered_server_runs_and_another_takes_its_place() {
    let server = ToolServer::builder().port(0).start().await.unwrap();
    let runner = runner(&server, "probe");
    let error = runner.run("echo", &json!({})).await.unwrap_err().to_string();
    assert!(error.contains("no MCP server is registered as `probe`"), "{error}");
    assert!(error.contains("PUT /servers/{name}"), "{error}");
    runner.register(&probe()).await.unwrap();
    assert_eq!(runner.run("echo", &json!({"text": "hi"})).await.unwrap(), "hi");
    assert_eq!(runner.run("add", &json!({"a": 1, "b": 2})).await.unwrap()["total"], 3);
    let error = runner.run("fail", &json!({"reason": "so"})).await.unwrap_err();
    assert!(matches!(&error, ToolRunnerError::Tool(text) if text.contains("failed: so")), "{error:?}");

    let pid = async || -> i32 {
        let pid = runner.run("pid", &json!({})).await.unwrap();
        pid.as_str().unwrap().parse().unwrap()
    };
    let first = pid().await;
    runner.register(&probe()).await.unwrap();
    assert_eq!(pid().await, first, "the same parameters change nothing");
    let mut other = probe();
    other["env"] = json!({"PROBE": "other"});
    runner.register(&other).await.unwrap();
    eventually("the server of before ends", || !is_running(first)).await;
    let second = pid().await;
    let env = runner.run("env", &json!({})).await.unwrap();
    assert_eq!(env["values"]["PROBE"], "other");
    assert!(env["values"].as_object().unwrap().keys().all(|name| !name.starts_with("IPYBOX")), "{env}");

    runner.reset().await.unwrap();
    eventually("a reset ends the server", || !is_running(second)).await;
    let third = pid().await;
    server.stop().await;
    assert!(!is_running(third), "a stop ends the server");
    let error = runner.run("pid", &json!({})).await.unwrap_err();
    assert!(matches!(error, ToolRunnerError::Unreachable { .. }), "{error:?}");
    timeout(PATIENCE, server.join()).await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_with_a_registration_is_said() {
    let server = ToolServer::builder().port(0).start().await.unwrap();
    for (name, parameters, words) in [
        ("probe", json!({}), "a stdio server needs `command`"),
        ("probe", json!({"command": "x", "arg": []}), "`arg` is not a parameter"),
        ("ipybox", json!({"command": "x"}), "choose another"),
        ("A%2fB", json!({"command": "x"}), "must be lower-case"),
    ] {
        let error = runner(&server, name).register(&parameters).await.unwrap_err();
        let ToolRunnerError::Refused { status: 400, message } = &error else { panic!("{error:?}") };
        assert!(message.contains(words), "{message}");
    }
    let error = runner(&server, "probe").register(&json!([1])).await.unwrap_err();
    assert!(matches!(error, ToolRunnerError::Refused { status: 422, .. }), "{error:?}");
    let missing = runner(&server, "missing");
    missing.register(&json!({"command": "x", "env": {"A": "${NOT_SET_ANYWHERE}"}})).await.unwrap();
    let error = missing.run("x", &json!({})).await.unwrap_err().to_string();
    assert!(error.contains("`NOT_SET_ANYWHERE` is set neither"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn each_route_needs_its_own_token() {
    let server = asking().await;
    let [caller, host] = [server.token(), server.host_token()].map(|token| format!("Bearer {token}"));
    let run = r#"{"server_name": "x", "tool_name": "y"}"#;
    let routes = [
        ("POST /run", run, &caller, &host, 200),
        ("PUT /reset", "", &host, &caller, 204),
        ("GET /status", "", &host, &caller, 200),
        ("PUT /servers/x", r#"{"command": "x"}"#, &host, &caller, 204),
        ("DELETE /servers/x", "", &host, &caller, 204),
        ("DELETE /servers/x", "", &host, &caller, 404),
        ("GET /approval", "", &host, &caller, 400),
        ("GET /other", "", &host, &caller, 404),
    ];
    for (line, body, right, wrong, expected) in routes {
        let status = async |headers: &[(&str, &str)]| send(&server, line, headers, body).await;
        assert_eq!(status(&[]).await.0, 401, "{line}");
        assert_eq!(status(&[("Authorization", "Bearer ")]).await.0, 401, "{line}");
        assert_eq!(status(&[("Authorization", &right[..right.len() - 1])]).await.0, 401, "{line}");
        let (refused, message) = status(&[("Authorization", wrong)]).await;
        let needed = if line.contains("/run") { "needs the caller token" } else { "needs the host token" };
        assert!(refused == 403 && message.contains(needed), "{line}: {refused} {message}");
        let origin = ("Origin", "http://localhost:8900");
        assert_eq!(status(&[("Authorization", right), origin]).await.0, 403, "{line}");
        assert_eq!(status(&[("Authorization", right)]).await.0, expected, "{line}");
    }
    for headers in [
        &[("authorization", caller.as_str())][..],
        &[("authorization", host.as_str()), ("origin", "http://localhost")],
        &[("authorization", host.as_str()), ("origin", "null")],
        &[],
    ] {
        let Err(SocketError::Http(response)) = open(&server, headers).await else { panic!("{headers:?}") };
        assert!(matches!(response.status().as_u16(), 401 | 403), "{headers:?}");
    }
    let error = ApprovalClient::connect("localhost", server.address().port(), server.token()).await;
    let Err(ApprovalClientError::Refused { status: 403, message }) = error else { panic!("{error:?}") };
    assert!(message.contains("needs the host token"), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn a_call_runs_when_it_is_approved_and_not_otherwise() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut client = client(&server).await;
    let call = echo(&runner, "hi");
    let request = next(&mut client).await;
    assert_eq!(request.to_string(), "probe.echo(text='hi')");
    assert!(request.target().to_string().contains("probe.py"), "{}", request.target());
    request.accept().unwrap();
    assert_eq!(call.await.unwrap().unwrap(), "hi");

    let call = echo(&runner, "hi");
    next(&mut client).await.reject().unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Rejected(_)), "{error:?}");
    let call = echo(&runner, "hi");
    drop(next(&mut client).await);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Rejected(_)), "{error:?}");

    // An answer that was given before the farewell counts; what is open is rejected.
    let (first, second) = (echo(&runner, "a"), echo(&runner, "b"));
    let (one, other) = (next(&mut client).await, next(&mut client).await);
    let (accepted, rejected) = if one.tool_args()["text"] == "a" { (one, other) } else { (other, one) };
    accepted.accept().unwrap();
    client.disconnect().await;
    assert_eq!(first.await.unwrap().unwrap(), "a");
    let error = second.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Rejected(_)), "{error:?}");
    rejected.accept().unwrap_err();
    server.stop().await;
}

#[tokio::test]
async fn without_a_client_a_call_fails_at_once() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let error = echo(&runner, "hi").await.unwrap().unwrap_err();
    let ToolRunnerError::Rejected(message) = &error else { panic!("{error:?}") };
    assert!(message.contains("no approval client is connected"), "{message}");
    // A client that goes away without a word.
    let mut client = client(&server).await;
    let call = echo(&runner, "hi");
    let request = next(&mut client).await;
    drop(client);
    let error = timeout(PATIENCE, call).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Rejected(_)), "{error:?}");
    request.accept().unwrap_err();
    let error = echo(&runner, "hi").await.unwrap().unwrap_err().to_string();
    assert!(error.contains("no approval client is connected"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_answered_in_time_is_withdrawn() {
    let server = ToolServer::builder().port(0).approval_required(true);
    let server = server.approval_timeout(Duration::from_secs(1)).start().await.unwrap();
    let runner = probe_at(&server).await;
    let mut client = client(&server).await;
    let call = echo(&runner, "hi");
    let request = next(&mut client).await;
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Timeout(_)), "{error:?}");
    // A later question arrives after the withdrawal.
    let call = echo(&runner, "again");
    next(&mut client).await.accept().unwrap();
    call.await.unwrap().unwrap();
    request.accept().unwrap_err();
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_leaves_withdraws_its_question() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut socket = open_as_host(&server).await;
    let call = echo(&runner, "hi");
    let question = told(&mut socket).await;
    call.abort();
    let withdrawal = told(&mut socket).await;
    let expected = json!({"jsonrpc": "2.0", "method": "withdrawn", "params": {"id": question["id"]}});
    assert_eq!(withdrawal, expected);
    tell(&mut socket, json!({"jsonrpc": "2.0", "result": true, "id": question["id"]})).await;
    assert_eq!(told(&mut socket).await["error"]["code"], -32001);
    server.stop().await;
}

#[tokio::test]
async fn one_client_at_a_time() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut first = client(&server).await;
    let begun = std::time::Instant::now();
    let mut second = client(&server).await;
    let error = timeout(PATIENCE, second.next()).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, ApprovalClientError::Closed { code: 1008, .. }), "{error:?}");
    assert!(begun.elapsed() >= Duration::from_secs(5) && second.next().await.is_none());
    let call = echo(&runner, "hi");
    next(&mut first).await.accept().unwrap();
    call.await.unwrap().unwrap();
    // One that waits gets the place of one that leaves.
    let (mut third, ()) = tokio::join!(client(&server), first.disconnect());
    let call = echo(&runner, "hi");
    next(&mut third).await.accept().unwrap();
    call.await.unwrap().unwrap();
    server.stop().await;
    assert!(timeout(PATIENCE, third.next()).await.unwrap().is_none(), "the end is no error");
}

#[tokio::test]
async fn the_exchange_is_as_documented() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut socket = open_as_host(&server).await;
    let call = echo(&runner, "hi");
    let mut question = told(&mut socket).await;
    let id = question["id"].take();
    let command = question["params"]["target"]["command"].take();
    assert!(id.as_str().unwrap().len() == 36 && command.as_str().unwrap().contains("probe.py"));
    let params = json!({
        "server_name": "probe", "tool_name": "echo", "tool_args": {"text": "hi"}, "target": {"command": null},
    });
    let expected = json!({"jsonrpc": "2.0", "method": "approve", "params": params, "id": null});
    assert_eq!(question, expected);

    // Nothing of this is an answer.
    let other = "9f1c1a52-4e2c-4c39-a3a5-6a3f0f0a4b8e";
    for (garbage, code) in [
        (Message::text(""), -32700),
        (Message::text("true"), -32600),
        (Message::text("[".repeat(10_000)), -32700),
        (Message::binary(br#"{"jsonrpc":"2.0","result":true}"#.to_vec()), -32600),
        (Message::text(json!({"result": true, "id": id}).to_string()), -32600),
        (Message::text(json!({"jsonrpc": "2.0", "result": "yes", "id": id}).to_string()), -32600),
        (Message::text(json!({"jsonrpc": "2.0", "result": 1, "id": id}).to_string()), -32600),
        (Message::text(json!({"jsonrpc": "2.0", "result": true, "id": other}).to_string()), -32001),
    ] {
        socket.send(garbage.clone()).await.unwrap();
        assert_eq!(told(&mut socket).await["error"]["code"], code, "{garbage:?}");
    }
    assert!(!call.is_finished());
    tell(&mut socket, json!({"jsonrpc": "2.0", "result": true, "id": id})).await;
    assert_eq!(call.await.unwrap().unwrap(), "hi");
    tell(&mut socket, json!({"jsonrpc": "2.0", "result": true, "id": id})).await;
    assert_eq!(told(&mut socket).await["error"]["code"], -32001, "an id is used once");

    // A message that is too long ends the connection, and what is open with it.
    let call = echo(&runner, "hi");
    told(&mut socket).await;
    socket.send(Message::text("x".repeat(100_000))).await.unwrap();
    let error = timeout(PATIENCE, call).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Rejected(_)), "{error:?}");
    server.stop().await;
}

#[tokio::test]
async fn many_calls_at_once_get_their_own_answers() {
    const CALLS: usize = 200;
    let server = asking().await;
    let runner = probe_at(&server).await;
    let client = client(&server).await;
    let approving = tokio::spawn(client.on_request(async |request| {
        let text = request.tool_args()["text"].as_str().unwrap().to_owned();
        tokio::time::sleep(Duration::from_millis(text.len() as u64 % 3)).await;
        match text.parse::<usize>().unwrap() % 2 {
            0 => request.accept().unwrap(),
            _ => request.reject().unwrap(),
        }
    }));
    let calls: Vec<_> = (0..CALLS).map(|number| echo(&runner, &number.to_string())).collect();
    for (number, call) in calls.into_iter().enumerate() {
        match timeout(PATIENCE, call).await.unwrap().unwrap() {
            Ok(text) => assert_eq!((number % 2, text), (0, json!(number.to_string()))),
            Err(ToolRunnerError::Rejected(_)) => assert!(number % 2 == 1, "{number}"),
            Err(error) => panic!("{number}: {error:?}"),
        }
    }
    server.stop().await;
    timeout(PATIENCE, approving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn the_status_tells_what_there_is() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let bearer = format!("Bearer {}", server.host_token());
    let status = async || -> Value {
        let (_, body) = send(&server, "GET /status", &[("Authorization", &bearer)], "").await;
        serde_json::from_str(&body).unwrap()
    };
    let before = status().await;
    assert_eq!(before["approval_client"], false);
    assert_eq!(before["servers"]["probe"]["is_connected"], false);
    let mut client = client(&server).await;
    let call = echo(&runner, "hi");
    let request = next(&mut client).await;
    assert_eq!((&status().await["approval_client"], &status().await["waiting"]), (&json!(true), &json!(1)));
    request.accept().unwrap();
    call.await.unwrap().unwrap();
    assert_eq!(status().await["servers"]["probe"]["is_connected"], true);
    server.stop().await;
}

#[tokio::test]
async fn tokens_that_protect_nothing_are_refused() {
    let builder = || ToolServer::builder().port(0);
    let error = builder().token("").start().await.unwrap_err();
    assert!(matches!(error, ToolServerError::Token { which: "caller" }), "{error:?}");
    let error = builder().host_token("short").start().await.unwrap_err();
    assert!(matches!(error, ToolServerError::Token { which: "host" }), "{error:?}");
    let token = "0123456789abcdef";
    let error = builder().token(token).host_token(token).start().await.unwrap_err();
    assert!(matches!(error, ToolServerError::SameTokens), "{error:?}");
    let error = builder().host("0.0.0.0").start().await.unwrap_err();
    assert!(matches!(error, ToolServerError::NotLoopback { .. }), "{error:?}");
    let server = builder().token(token).start().await.unwrap();
    assert!(server.token() == token && server.host_token().len() == 64);
    assert!(!format!("{server:?}").contains(token));
    server.stop().await;
}

#[tokio::test]
async fn the_program_says_where_it_listens_and_ends_on_a_signal() {
    for (given, signal) in [
        (&[][..], nix::sys::signal::Signal::SIGTERM),
        (&[("IPYBOX_TOOL_SERVER_HOST_TOKEN", "host-token-of-a-test")], nix::sys::signal::Signal::SIGHUP),
    ] {
        let place = Place::new();
        let mut program = Command::new(env!("CARGO_BIN_EXE_ipybox"))
            .args(["tool-server", "--port", "0"])
            .current_dir(place.workspace())
            .envs(given.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let (address, token) = (line["address"].as_str().unwrap(), line["token"].as_str().unwrap());
        let host_token = match given {
            [] => line["host_token"].as_str().unwrap(),
            [(_, token), ..] => {
                assert_eq!(line["host_token"], Value::Null, "what was given is not printed");
                token
            }
        };
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        let runner = ToolRunner::new("probe").port(port).token(token).host_token(host_token);
        runner.register(&probe()).await.unwrap();

        // What generated packages call tools with, in a Python that no kernel has started.
        let python = Command::new(kernel_python())
            .args([
                "-c",
                "from ipybox_runtime import ToolRunner, ToolRunnerError\n\
                import asyncio\n\
                probe = ToolRunner('probe')\n\
                print(probe.run_sync('add', {'a': 1, 'b': 2})['total'])\n\
                print(asyncio.run(probe.run('echo', {'text': 'hi'})))\n\
                try: probe.run_sync('fail', {})\n\
                except ToolRunnerError as error: print('failed' in str(error))",
            ])
            .env("PYTHONPATH", repository().join("src/tool_server"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("IPYBOX_TOOL_SERVER", address)
            .env("IPYBOX_TOOL_SERVER_TOKEN", token)
            .output();
        let output = timeout(PATIENCE, python).await.unwrap().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, "3\nhi\nTrue\n", "{}", String::from_utf8_lossy(&output.stderr));

        let pid = runner.run("pid", &json!({})).await.unwrap().as_str().unwrap().parse().unwrap();
        let id = nix::unistd::Pid::from_raw(program.id().unwrap().try_into().unwrap());
        nix::sys::signal::kill(id, signal).unwrap();
        let status = timeout(PATIENCE, program.wait()).await.unwrap().unwrap();
        assert!(status.success() && !is_running(pid), "{status}");
        assert_eq!(lines.next_line().await.unwrap(), None, "one line");
    }
}

#[tokio::test]
async fn a_program_that_cannot_listen_says_why() {
    let output = Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args(["tool-server", "--host", "0.0.0.0"])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("for this machine only"), "{text}");
}
