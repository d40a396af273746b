//! The standalone tool server: its two tokens, its servers, its end.

use std::process::Stdio;

use ipybox::{ApprovalClient, ApprovalClientError, ToolRunner, ToolRunnerError, ToolServer, ToolServerError};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Error as SocketError;

use crate::support::standalone::{asking, client, echo, next, open, probe_at, runner, send};
use crate::support::{
    PATIENCE, Place, environment, eventually, is_running, kernel_python, probe, repository,
};

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
async fn the_status_lists_servers_and_the_approval_client() {
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
    assert!(request.accept());
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
            .env_clear()
            .envs(environment())
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
            .env_clear()
            .envs(environment())
            .env("PYTHONPATH", repository().join("src/tools/tool_server"))
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
        assert!(status.success(), "{status}");
        eventually("the server has ended", || !is_running(pid)).await;
        assert_eq!(lines.next_line().await.unwrap(), None, "one line");
    }
}

#[tokio::test]
async fn a_program_that_cannot_listen_says_why() {
    let output = Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args(["tool-server", "--host", "0.0.0.0"])
        .env_clear()
        .envs(environment())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("for this machine only"), "{text}");
}

#[tokio::test]
async fn a_stop_ends_what_is_under_way() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut client = client(&server).await;
    let slow = {
        let runner = runner.clone();
        tokio::spawn(async move { runner.run("slow", &json!({"seconds": 600})).await })
    };
    assert!(next(&mut client).await.accept());
    let waiting = echo(&runner, "hi");
    let request = next(&mut client).await;
    timeout(PATIENCE, server.stop()).await.unwrap();
    for call in [slow, waiting] {
        let error = timeout(PATIENCE, call).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, ToolRunnerError::Refused { status: 503, .. }), "{error:?}");
    }
    assert!(timeout(PATIENCE, client.next()).await.unwrap().is_none(), "the end is no error");
    assert!(!request.accept());
    let error = ApprovalClient::connect("localhost", server.address().port(), server.host_token()).await;
    assert!(matches!(error, Err(ApprovalClientError::Unreachable { .. })), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_says_nothing_does_not_hold_up_the_end() {
    let server = asking().await;
    let _idle = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let half = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    half.writable().await.unwrap();
    half.try_write(b"POST /run HTTP/1.1\r\nHost: ").unwrap();
    timeout(PATIENCE, server.stop()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_come_up_can_be_replaced_meanwhile() {
    let place = Place::new();
    let marker = place.temporary().join("marker");
    let server = ToolServer::builder().port(0).connect_timeout(PATIENCE).start().await.unwrap();
    let runner = runner(&server, "probe");
    let command = format!("touch {}; sleep 600", marker.display());
    runner.register(&json!({"command": "sh", "args": ["-c", command]})).await.unwrap();
    let calls = ["a", "b"].map(|text| (text, echo(&runner, text)));
    eventually("the server starts", || marker.exists()).await;
    timeout(PATIENCE / 2, runner.register(&probe())).await.unwrap().unwrap();
    for (sent, call) in calls {
        // The registration ends the start that one of them waits for; the other waits for that one, whichever it is, and
        // finds the new server.
        match timeout(PATIENCE / 2, call).await.unwrap().unwrap() {
            Ok(text) => assert_eq!(text, sent),
            Err(error) => {
                let error = error.to_string();
                let reasons = ["another registration ended it", "was registered anew"];
                assert!(reasons.iter().any(|reason| error.contains(reason)), "{error}");
            }
        }
    }
    assert_eq!(echo(&runner, "c").await.unwrap().unwrap(), "c");
    server.stop().await;
}

/// Futures can be used from any task.
#[test]
fn everything_can_be_shared() {
    fn check<T: Send + Sync>(_: &T) {}
    fn futures(server: &ToolServer, client: ApprovalClient, runner: &ToolRunner, value: &Value) {
        check(server);
        check(&client);
        check(&ToolServer::builder().start());
        check(&server.join());
        check(&server.stop());
        check(&ApprovalClient::connect("localhost", 1, "token"));
        check(&client.disconnect());
        check(&runner.run("tool", value));
        check(&runner.register(value));
        check(&runner.reset());
    }
    let _compiles = futures;
}
