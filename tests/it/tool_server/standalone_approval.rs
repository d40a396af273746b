//! Approval of the standalone tool server's calls: its WebSocket, and who is at the other end.

use std::time::Duration;

use futures::SinkExt as _;
use ipybox::{ApprovalClient, ApprovalClientError, ToolRunnerError, ToolServer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;

use crate::support::standalone::{
    asking, client, echo, next, open_as_host, probe_at, receive_json, send, send_json,
};
use crate::support::{PATIENCE, probe};

#[tokio::test]
async fn a_call_runs_when_it_is_approved_and_not_otherwise() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut client = client(&server).await;
    let call = echo(&runner, "hi");
    let request = next(&mut client).await;
    assert_eq!(request.to_string(), "probe.echo(text='hi')");
    assert!(request.target().to_string().contains("probe.py"), "{}", request.target());
    assert!(request.accept());
    assert_eq!(call.await.unwrap().unwrap(), "hi");

    let call = echo(&runner, "hi");
    assert!(next(&mut client).await.reject());
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
    assert!(accepted.accept());
    client.disconnect().await;
    assert_eq!(first.await.unwrap().unwrap(), "a");
    let error = second.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Rejected(_)), "{error:?}");
    assert!(!rejected.accept());
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
    assert!(!request.accept());
    let error = echo(&runner, "hi").await.unwrap().unwrap_err().to_string();
    assert!(error.contains("no approval client is connected"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_answered_in_time_is_withdrawn() {
    let server = ToolServer::builder().port(0).approval_required(true);
    let server = server.approval_timeout(Duration::from_secs(20)).start().await.unwrap();
    let runner = probe_at(&server).await;
    let mut client = client(&server).await;
    let call = echo(&runner, "hi");
    let request = next(&mut client).await;
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Timeout(_)), "{error:?}");
    // A later question arrives after the withdrawal.
    let call = echo(&runner, "again");
    assert!(next(&mut client).await.accept());
    call.await.unwrap().unwrap();
    assert!(!request.accept());
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_leaves_withdraws_its_question() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut socket = open_as_host(&server).await;
    let call = echo(&runner, "hi");
    let question = receive_json(&mut socket).await;
    call.abort();
    let withdrawal = receive_json(&mut socket).await;
    let expected = json!({"jsonrpc": "2.0", "method": "withdrawn", "params": {"id": question["id"]}});
    assert_eq!(withdrawal, expected);
    send_json(&mut socket, json!({"jsonrpc": "2.0", "result": true, "id": question["id"]})).await;
    assert_eq!(receive_json(&mut socket).await["error"]["code"], -32001);
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
    assert!(next(&mut first).await.accept());
    call.await.unwrap().unwrap();
    // One that waits gets the place of one that leaves.
    let (mut third, ()) = tokio::join!(client(&server), first.disconnect());
    let call = echo(&runner, "hi");
    assert!(next(&mut third).await.accept());
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
    let mut question = receive_json(&mut socket).await;
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
        assert_eq!(receive_json(&mut socket).await["error"]["code"], code, "{garbage:?}");
    }
    assert!(!call.is_finished());
    send_json(&mut socket, json!({"jsonrpc": "2.0", "result": true, "id": id})).await;
    assert_eq!(call.await.unwrap().unwrap(), "hi");
    send_json(&mut socket, json!({"jsonrpc": "2.0", "result": true, "id": id})).await;
    assert_eq!(receive_json(&mut socket).await["error"]["code"], -32001, "an id is used once");

    // A message that is too long ends the connection, and what is open with it.
    let call = echo(&runner, "hi");
    receive_json(&mut socket).await;
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
            0 => assert!(request.accept()),
            _ => assert!(request.reject()),
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
async fn what_was_approved_does_not_run_on_another_server() {
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut client = client(&server).await;
    let call = echo(&runner, "hi");
    let request = next(&mut client).await;
    let mut other = probe();
    other["env"] = json!({"OTHER": "1"});
    runner.register(&other).await.unwrap();
    assert!(request.accept());
    let error = call.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("registered anew while the call waited"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn a_client_has_so_many_questions_before_it_and_large_ones_too() {
    const OPEN: usize = 256;
    const MORE: usize = 5;
    let server = asking().await;
    let runner = probe_at(&server).await;
    let mut socket = open_as_host(&server).await;
    let calls: Vec<_> = (0..OPEN + MORE).map(|number| echo(&runner, &number.to_string())).collect();
    let mut ids = Vec::new();
    for _ in 0..OPEN {
        ids.push(receive_json(&mut socket).await["id"].take());
    }
    let bearer = format!("Bearer {}", server.host_token());
    loop {
        let (_, status) = send(&server, "GET /status", &[("Authorization", &bearer)], "").await;
        let status: Value = serde_json::from_str(&status).unwrap();
        if status["waiting"] == OPEN + MORE {
            break;
        }
    }
    assert!(timeout(Duration::from_millis(100), receive_json(&mut socket)).await.is_err(), "the rest waits");
    for id in ids {
        send_json(&mut socket, json!({"jsonrpc": "2.0", "result": false, "id": id})).await;
    }
    for _ in 0..MORE {
        let id = receive_json(&mut socket).await["id"].take();
        send_json(&mut socket, json!({"jsonrpc": "2.0", "result": false, "id": id})).await;
    }
    for call in calls {
        call.await.unwrap().unwrap_err();
    }
    socket.close(None).await.unwrap();

    let mut client = client(&server).await;
    let text = "x".repeat(17 * 1024 * 1024);
    let call = echo(&runner, &text);
    let request = next(&mut client).await;
    assert_eq!(request.tool_args()["text"].as_str().unwrap().len(), text.len());
    assert!(request.reject());
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolRunnerError::Rejected(_)), "{error:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_client_makes_do_with_a_strange_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connecting = tokio::spawn(async move { ApprovalClient::connect("127.0.0.1", port, "token").await });
    let mut socket = accept_async(listener.accept().await.unwrap().0).await.unwrap();
    let mut client = connecting.await.unwrap().unwrap();
    let question = |id: &str, target: Value| {
        let params = json!({"server_name": "a", "tool_name": "b", "tool_args": {}, "target": target});
        json!({"jsonrpc": "2.0", "method": "approve", "params": params, "id": id})
    };
    socket.send(Message::text("nonsense")).await.unwrap();
    assert_eq!(receive_json(&mut socket).await["error"]["code"], -32700);
    send_json(&mut socket, question("1", json!({"something": "new"}))).await;
    let refusal = receive_json(&mut socket).await;
    assert!(refusal["id"] == "1" && refusal["error"].is_object(), "{refusal}");
    for (id, expected) in
        [("2", json!(true)), ("3", json!("session")), ("4", json!("always")), ("5", json!(false))]
    {
        send_json(&mut socket, question(id, json!("kernel"))).await;
        let request = next(&mut client).await;
        let is_in_time = match id {
            "2" => request.accept(),
            "3" => request.accept_for_session(),
            "4" => request.accept_always(),
            _ => request.reject(),
        };
        assert!(is_in_time);
        assert_eq!(receive_json(&mut socket).await, json!({"jsonrpc": "2.0", "result": expected, "id": id}));
    }
    send_json(&mut socket, question("6", json!({"url": "http://x/mcp"}))).await;
    let request = next(&mut client).await;
    drop(socket);
    let error = timeout(PATIENCE, client.next()).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, ApprovalClientError::Lost { .. }), "{error:?}");
    assert!(client.next().await.is_none());
    assert!(!request.accept());
}
